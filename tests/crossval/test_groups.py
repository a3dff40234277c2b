"""Groups: rows of one person or object share a fold, outside and inside."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marginctl.crossval.folds import partition
from marginctl.crossval.nested_cv import inner_splits
from marginctl.crossval.search_space import Candidate, Setting
from marginctl.crossval.stack import StackTuning, build_stacks
from marginctl.data.tabular.uci import load_uci
from marginctl.objectives.parsing import parse
from marginctl.recipe.uci_cv import Protocol


def made(seed, groups=30, n=200):
    stream = np.random.default_rng(seed)
    of_row = stream.integers(groups, size=n)
    label_of_group = stream.integers(3, size=groups)
    return label_of_group[of_row].astype(np.int64), of_row.astype(np.int64)


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_no_group_is_in_two_folds(seed, stratified):
    labels, groups = made(seed)
    folds = partition(labels, 5, stratified=stratified, seed=seed, repeat=seed % 2, groups=groups)
    assert sorted(np.concatenate(folds).tolist()) == list(range(len(labels)))
    assert all(len(fold) for fold in folds)
    owners = [set(groups[fold].tolist()) for fold in folds]
    assert sum(map(len, owners)) == len(set(groups.tolist()))


def test_stratified_folds_have_the_classes_in_like_numbers():
    labels, groups = made(0, groups=90, n=900)
    folds = partition(labels, 5, stratified=True, seed=0, repeat=0, groups=groups)
    shares = [np.bincount(labels[fold], minlength=3) / len(fold) for fold in folds]
    assert np.ptp(shares, axis=0).max() < 0.05


def test_repeats_and_seeds_have_their_own_folds():
    labels, groups = made(0)
    first, again, second, other = (
        [f.tolist() for f in partition(labels, 5, stratified=True, seed=s, repeat=r, groups=groups)]
        for s, r in ((0, 0), (0, 0), (0, 1), (1, 0))
    )
    assert first == again
    assert len({str(folds) for folds in (first, second, other)}) == 3


def test_inner_folds_keep_groups_together_too():
    iris = load_uci("iris", Path())
    data = replace(iris, groups=np.arange(150) // 5)
    protocol = Protocol(folds=3, repeats=1, stratified=True)
    candidate = Candidate(parse("soft"), Setting(1, protocol, {}))
    (stack,) = build_stacks(data, parse("soft"), protocol, 0, StackTuning((candidate,), 3))
    for split in inner_splits(stack):
        assert not set(data.groups[split.train]) & set(data.groups[split.test])


def test_a_digest_has_the_groups_where_there_are_some():
    iris = load_uci("iris", Path())
    assert replace(iris, groups=np.arange(150)).digest != iris.digest
