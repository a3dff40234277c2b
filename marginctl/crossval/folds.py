"""Repeated k-fold partitions: the test rows of each fold."""

import warnings
from typing import Literal

import numpy as np

from marginctl.metrics.arrays import IntArray
from marginctl.utils.seed import generator


def partition(
    labels: IntArray,
    folds: int,
    *,
    stratified: bool | Literal["equal-test-counts"],
    seed: int,
    repeat: int,
    outer_fold: int | None = None,
    groups: IntArray | None = None,
) -> list[IntArray]:
    """Return the test rows of each fold of one repeat, in ascending order.

    Fold sizes differ by at most one row. With `stratified`, the number of rows of each class also
    differs by at most one between folds; a class with fewer rows than folds is absent from some.
    Every row is in exactly one fold, so each is tested exactly once per repeat.

    With `equal-test-counts`, every fold tests the same number of rows of each class, n / k rounded
    up: the last folds reuse rows that other folds test too. This is not a partition, but a
    published table may have been computed this way.

    With groups, the rows of a group are in one fold: scikit-learn's GroupKFold, or with
    `stratified` its StratifiedGroupKFold, which keeps the numbers of rows of each class close.

    Args:
        labels: (n,) class of each row.
        folds: k, from 2 to n, or to the number of groups.
        groups: (n,) group of each row.
        seed, repeat: identify the partition, which is a function of them and of the labels alone.
        outer_fold: in nested cross-validation, the fold whose training rows are partitioned.
    """
    name = () if outer_fold is None else ("inside", outer_fold)
    stream = generator(seed, "partition", repeat, *name)
    if groups is not None:
        random_state = int(stream.integers(2**31))
        return _group_folds(labels, groups, folds, bool(stratified), random_state)
    order = stream.permutation(len(labels))
    if stratified == "equal-test-counts":
        rows_by_class = [order[labels[order] == c] for c in np.unique(labels)]
        return [
            np.sort(np.concatenate([_equal_part(rows, fold, folds) for rows in rows_by_class]))
            for fold in range(folds)
        ]
    if stratified:
        order = order[np.argsort(labels[order], kind="stable")]
    return [np.sort(order[fold::folds]) for fold in range(folds)]


def _group_folds(
    labels: IntArray, groups: IntArray, folds: int, stratified: bool, random_state: int
) -> list[IntArray]:
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

    kind = StratifiedGroupKFold if stratified else GroupKFold
    rows = np.zeros(len(labels))
    with warnings.catch_warnings(action="ignore"):  # of a class with fewer rows than folds
        for one in (kind, GroupKFold):
            split = one(folds, shuffle=True, random_state=random_state).split(rows, labels, groups)
            tests = [np.sort(test).astype(np.int64) for _, test in split]
            if all(map(len, tests)):  # stratified folds of few groups may be empty
                break
    return tests


def _equal_part(rows: IntArray, fold: int, folds: int) -> IntArray:
    """Return a fold's part of `rows`: ceil(n / k) rows, the last parts shifted back to fit."""
    size = -(-len(rows) // folds)
    first = min(fold * size, len(rows) - size)
    return rows[first : first + size]
