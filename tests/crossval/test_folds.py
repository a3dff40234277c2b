"""Partitions: every row once, sizes even, classes even when stratified."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold

from marginctl.crossval.folds import partition


def fold_of_each_row(y, folds, **names):
    """The fold that tests each row; fails where one is tested by none or by several."""
    fold = np.full(len(y), -1)
    for i, tested in enumerate(partition(y, folds, **names)):
        assert (fold[tested] == -1).all()
        fold[tested] = i
    assert (fold >= 0).all()
    return fold


@given(
    labels=st.lists(st.integers(0, 4), min_size=2, max_size=80),
    folds=st.integers(2, 12),
    stratified=st.booleans(),
    seed=st.integers(0, 2**40),
    repeat=st.integers(0, 3),
)
def test_every_row_is_in_one_fold_and_sizes_differ_by_one(labels, folds, stratified, seed, repeat):
    y = np.array(labels)
    folds = min(folds, len(y))
    fold = fold_of_each_row(y, folds, stratified=stratified, seed=seed, repeat=repeat)
    sizes = np.bincount(fold, minlength=folds)
    assert len(fold) == len(y)
    assert sizes.sum() == len(y)
    assert sizes.max() - sizes.min() <= 1
    if stratified:
        for label in set(labels):
            counts = np.bincount(fold[y == label], minlength=folds)
            assert counts.max() - counts.min() <= 1


def test_stratified_folds_equal_those_of_scikit_learn():
    y = np.random.default_rng(0).integers(3, size=151)
    fold = fold_of_each_row(y, 10, stratified=True, seed=0, repeat=0)
    ours = sorted(tuple(np.bincount(y[fold == f], minlength=3)) for f in range(10))
    theirs = StratifiedKFold(10, shuffle=True, random_state=0).split(y, y)
    spread = [tuple(np.bincount(y[test], minlength=3)) for _, test in theirs]
    for c in range(3):
        assert {o[c] for o in ours} == {t[c] for t in spread}


def test_seed_and_repeat_identify_the_partition():
    y = np.zeros(50, np.int64)

    def one(seed, repeat):
        return fold_of_each_row(y, 5, stratified=False, seed=seed, repeat=repeat).tolist()

    assert one(0, 0) == one(0, 0)
    assert len({tuple(one(s, r)) for s in (0, 1) for r in (0, 1)}) == 4


def test_each_row_is_equally_likely_in_each_fold():
    y = np.zeros(20, np.int64)
    names = {"stratified": False, "seed": 0}
    folds = np.stack([fold_of_each_row(y, 4, **names, repeat=r) for r in range(2000)])
    share = (folds == 0).mean(0)
    assert share == pytest.approx(0.25, abs=5 * (0.25 * 0.75 / 2000) ** 0.5)


def test_equal_test_counts_tests_the_same_number_of_each_class():
    """Haberman's 225 and 81 rows: 23 and 9 in each fold, where majority alone scores 23/32."""
    y = np.repeat([0, 1], [225, 81])
    tests = partition(y, 10, stratified="equal-test-counts", seed=0, repeat=0)
    assert all(np.bincount(y[tested]).tolist() == [23, 9] for tested in tests)
    assert set(np.concatenate(tests)) == set(range(306))
    assert all(len(set(tested)) == len(tested) for tested in tests)
