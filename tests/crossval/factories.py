"""Data sets made for tests."""

import numpy as np

from marginctl.data.tabular.dataset import Column, TabularDataset


def dataset(n=41, d=4, c=3, *, seed=0, counts=None, name="made"):
    """Two-dimensional blobs with noise columns; `counts` fixes the rows of each class."""
    stream = np.random.default_rng(seed)
    y = np.repeat(np.arange(c), counts) if counts else stream.integers(c, size=n)
    y[: c if not counts else 0] = np.arange(c if not counts else 0)
    x = stream.normal(size=(len(y), d)) * 3 + 10
    x[:, 0] += 12 * y
    return TabularDataset(
        name,
        x,
        y.astype(np.int64),
        tuple(f"class{i}" for i in range(c)),
        tuple(Column(f"column{i}") for i in range(d)),
    )
