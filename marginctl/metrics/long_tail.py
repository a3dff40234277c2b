"""Long-tailed recognition: the accuracy of many-, medium- and few-shot classes.

The limits are those of Liu et al. 2019 (Large-Scale Long-Tailed Recognition in an Open World): more
than 100 training images, 20 to 100, fewer than 20. We assume them for the temperature paper's Table
7, too: the paper's text available to us does not give its limits.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from marginctl.metrics.arrays import IntArray

MEDIUM_SHOT = (20, 100)  # fewest and most training images of a medium-shot class
DESCRIPTIONS = {
    "many": f"more than {MEDIUM_SHOT[1]} training images",
    "medium": f"{MEDIUM_SHOT[0]} to {MEDIUM_SHOT[1]} training images",
    "few": f"fewer than {MEDIUM_SHOT[0]} training images",
}


def class_groups(counts: Sequence[int] | IntArray) -> dict[str, IntArray]:
    """Return the classes of each group, from the (C,) training images of each class."""
    n = np.asarray(counts)
    fewest, most = MEDIUM_SHOT
    groups = {"many": n > most, "medium": (n >= fewest) & (n <= most), "few": n < fewest}
    return {name: np.flatnonzero(members) for name, members in groups.items()}


def long_tail_accuracy(
    counts: IntArray, labels: IntArray, predicted: IntArray
) -> dict[str, Any] | None:
    """Return the accuracy of each group of classes, over its test images and over its classes.

    Both are equal where each class has as many test images.

    Args:
        counts: (C,) training images of each class.

    Returns:
        By group `accuracy` (the fraction of test images), `mean_class_accuracy` (the mean of the
        classes' accuracies, as in Liu et al. 2019; without classes that have no test image),
        `classes` and test `images`; null where a group is empty, with its reason under `reasons`.
        None where all classes are in one group.
    """
    groups = class_groups(counts)
    if sum(len(classes) > 0 for classes in groups.values()) < 2:
        return None
    record: dict[str, Any] = {}
    reasons = {}
    for name, classes in groups.items():
        in_group = np.isin(labels, classes)
        n, correct = int(in_group.sum()), (predicted == labels)[in_group]
        _, tested = np.unique(labels[in_group], return_inverse=True)
        by_class = np.bincount(tested, correct) / np.bincount(tested)
        record[name] = {
            "accuracy": float(correct.mean()) if n else None,
            "mean_class_accuracy": float(by_class.mean()) if n else None,
            "classes": len(classes),
            "images": n,
        }
        if not n:
            missing = "test image of a class" if len(classes) else "class"
            reasons[name] = f"no {missing} with {DESCRIPTIONS[name]}"
    return record | {"reasons": reasons}
