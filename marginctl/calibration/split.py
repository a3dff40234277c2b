"""Splits samples into a part that a map is fitted on and a part that it is measured on."""

import numpy as np
from numpy.typing import NDArray

from marginctl.calibration.outputs import Labels, Outputs
from marginctl.errors import RequestError
from marginctl.utils.seed import generator

Rows = NDArray[np.int64]


def split(outputs: Outputs, share: float, seed: int, repeat: int) -> tuple[Rows, Rows]:
    """Two parts at random, each class in both by its share; rows of each in order.

    The samples are put in the order of their classes, at random within them, and taken at equal
    steps from a random start: the parts, and each class in them, are at most one sample off.

    Args:
        outputs: N samples.
        share: of the first part, between 0 and 1.
        seed, repeat: which split it is.

    Returns:
        The rows to fit on and the rows to measure on.

    Raises:
        RequestError: too few samples for two parts with two classes in the first.
    """
    stream = generator(seed, "calibrate", "split", repeat)
    labels: Labels = outputs.labels
    order = np.lexsort((stream.random(len(labels)), labels))
    taken = np.floor(np.arange(len(labels) + 1) * share + stream.random())
    first = np.diff(taken) > 0
    fitted, measured = np.sort(order[first]), np.sort(order[~first])
    if not len(measured) or len(np.unique(labels[fitted])) < 2:
        raise RequestError(
            f"{outputs.name}: {len(labels)} samples at --split {share:g}: {len(fitted)} to fit on "
            f"and {len(measured)} to measure on: expected two classes to fit on and a sample to "
            "measure on: name other samples to fit on with --calibration, or more in all"
        )
    return fitted, measured
