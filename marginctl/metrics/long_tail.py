"""Accuracy of the classes with many, with some and with few training images: long tails.

The limits are those of Liu et al. 2019 (Large-Scale Long-Tailed Recognition in an Open World): more
than 100 images, 20 to 100, fewer than 20. That the temperature paper's Table 7 has the same is our
guess: its text is not to be had.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Classes = NDArray[np.int64]

FEWEST, MOST = 20, 100  # training images of a class with neither few nor many
WORDS = {
    "many": f"more than {MOST} training images",
    "medium": f"{FEWEST} to {MOST} training images",
    "few": f"fewer than {FEWEST} training images",
}


def class_groups(counts: Sequence[int] | Classes) -> dict[str, Classes]:
    """The classes of each group by its name, in order: `many`, `medium`, `few`.

    Args:
        counts: (C,) training images of each class.
    """
    n = np.asarray(counts)
    found = {"many": n > MOST, "medium": (n >= FEWEST) & (n <= MOST), "few": n < FEWEST}
    return {name: np.flatnonzero(of) for name, of in found.items()}


def long_tail_accuracy(
    counts: Classes, labels: Classes, predicted: Classes
) -> dict[str, Any] | None:
    """The accuracy of each group of classes, over the test images of its classes.

    Args:
        counts: (C,) training images of each class.
        labels: (N,) of the test images.
        predicted: (N,) classes.

    Returns:
        By the group `accuracy`, a share, `classes` and `images` of the test part; null where a
        group has none, and why under `reasons`. None where all classes are in one group.
    """
    groups = class_groups(counts)
    if sum(len(classes) > 0 for classes in groups.values()) < 2:
        return None
    record: dict[str, Any] = {}
    reasons = {}
    for name, classes in groups.items():
        own = np.isin(labels, classes)
        n = int(own.sum())
        right = int((predicted[own] == labels[own]).sum())
        accuracy = right / n if n else None
        record[name] = {"accuracy": accuracy, "classes": len(classes), "images": n}
        if not n:
            has = "test image of a class" if len(classes) else "class"
            reasons[name] = f"no {has} with {WORDS[name]}"
    return record | {"reasons": reasons}
