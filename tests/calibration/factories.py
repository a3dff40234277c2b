"""Random outputs with labels drawn from their softmax."""

import numpy as np

from marginctl.calibration.outputs import Outputs


def noisy(n=600, c=5, temperature=2.0, seed=0, dtype=np.float64):
    """Logits that are `temperature` times those that the labels were drawn by."""
    stream = np.random.default_rng([seed, n, c])
    f = stream.normal(size=(n, c)) * 2
    p = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
    labels = (p.cumsum(axis=1) < stream.random((n, 1))).sum(axis=1).clip(0, c - 1)
    return Outputs("noisy", "logits", (temperature * f).astype(dtype), labels)


def with_probabilities(outputs):
    """The same as probabilities."""
    f = outputs.values.astype(np.float64)
    exp = np.exp(f - f.max(axis=1, keepdims=True))
    return Outputs(
        outputs.name, "probabilities", exp / exp.sum(axis=1, keepdims=True), outputs.labels
    )
