"""Repeated k-fold partitions."""

import numpy as np
from numpy.typing import NDArray

from marginctl.seeds import generator

IntArray = NDArray[np.int64]


def partition(
    labels: IntArray,
    folds: int,
    *,
    stratified: bool,
    seed: int,
    repeat: int,
    inside: int | None = None,
) -> IntArray:
    """The fold of each row in one repeat: (n,) integers from 0 to folds - 1.

    Fold sizes differ by at most one row. With `stratified`, the number of rows of each class also
    differs by at most one between folds; a class with fewer rows than folds is absent from some.
    Every row is in exactly one fold, so each is tested exactly once a repeat.

    Args:
        labels: (n,) class of each row.
        folds: k, from 2 to n.
        seed, repeat: name the partition; it is a function of them and of the labels alone.
        inside: the fold whose training rows are partitioned once more, in nested cross-validation.
    """
    n = len(labels)
    within = () if inside is None else ("inside", inside)
    order = generator(seed, "partition", repeat, *within).permutation(n)
    if stratified:
        order = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(n, np.int64)
    fold[order] = np.arange(n) % folds
    return fold
