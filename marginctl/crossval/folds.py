"""Repeated k-fold partitions."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from marginctl.utils.seed import generator

IntArray = NDArray[np.int64]


def partition(
    labels: IntArray,
    folds: int,
    *,
    stratified: bool | Literal["equal-test-counts"],
    seed: int,
    repeat: int,
    inside: int | None = None,
) -> list[IntArray]:
    """The rows that each fold of one repeat tests, in rising order.

    Fold sizes differ by at most one row. With `stratified`, the number of rows of each class also
    differs by at most one between folds; a class with fewer rows than folds is absent from some.
    Every row is in exactly one fold, so each is tested exactly once a repeat.

    With `equal-test-counts` every fold tests the same number of rows of each class, n / k rounded
    up: the
    last folds take rows that others test too. Not a partition; a published table may hide one.

    Args:
        labels: (n,) class of each row.
        folds: k, from 2 to n.
        seed, repeat: name the partition; it is a function of them and of the labels alone.
        inside: the fold whose training rows are partitioned once more, in nested cross-validation.
    """
    n = len(labels)
    within = () if inside is None else ("inside", inside)
    order = generator(seed, "partition", repeat, *within).permutation(n)
    if stratified == "equal-test-counts":
        of_class = [order[labels[order] == c] for c in np.unique(labels)]
        return [
            np.sort(np.concatenate([_share(r, fold, folds) for r in of_class]))
            for fold in range(folds)
        ]
    if stratified:
        order = order[np.argsort(labels[order], kind="stable")]
    return [np.sort(order[fold::folds]) for fold in range(folds)]


def _share(rows: IntArray, fold: int, folds: int) -> IntArray:
    """A fold's rows of one class: as many in every fold, the last ones shifted back into `rows`."""
    size = -(-len(rows) // folds)
    first = min(fold * size, len(rows) - size)
    return rows[first : first + size]
