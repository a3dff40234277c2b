"""Nested cross-validation: each network's setting is chosen inside its own training rows."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from marginctl.crossval import stacked_trainer
from marginctl.crossval.stack import Choice, NetworkSplit, Stack, StackResult
from marginctl.crossval.stacked_networks import StackedNetworks


@dataclass(frozen=True)
class TunedStack:
    """The networks of a stack with their chosen candidates."""

    result: StackResult  # of the networks, by network number
    # the trained networks, a stack for each group of stackable candidates
    networks: list[StackedNetworks]
    choices: list[Choice]  # of each network, by network number; none without candidates


def train_and_choose(stack: Stack, device: str, report_cost: Callable[[float], None]) -> TunedStack:
    """Train a stack; where its method has candidates, each network chooses one.

    The training rows of every network are divided into inner folds; every candidate is trained on
    all but one of them and tested on that one, in turn. The candidate with most correct rows (the
    first of a tie) is trained on all training rows. Only that network sees the test fold.

    Args:
        report_cost: called with the cost of every finished epoch.
    """
    started = time.perf_counter()
    tuning = stack.tuning
    if tuning is None:
        result, trained = stacked_trainer.train_stack(stack, device, report_cost)
        return TunedStack(result, [trained], [])
    outer = stack.by_number
    scores = np.empty((len(tuning.candidates), len(outer)), np.int64)
    groups, inner_networks = tuning.groups, inner_splits(stack)
    tested = np.array([len(n.test) for n in inner_networks]).reshape(len(outer), -1).sum(1)
    for group in groups:
        splits = [replace(n, variant=v) for n in inner_networks for v in range(len(group))]
        inner = replace(candidate_stack(stack, group, splits), measured=False)
        result, _ = stacked_trainer.train_stack(inner, device, report_cost)
        shape = (len(group), len(outer), tuning.inner_folds)
        scores[group] = result.correct.reshape(shape).sum(2)
    chosen = np.argmax(scores, axis=0)

    merged: dict[str, Any] = {}
    networks = []
    for group in groups:
        # in the order of a stack's results: by variant, then by network number
        positions = np.concatenate([np.flatnonzero(chosen == i) for i in group])
        if not len(positions):
            continue
        variants = {index: variant for variant, index in enumerate(group)}
        splits = [replace(outer[p], variant=variants[int(chosen[p])]) for p in positions]
        final = candidate_stack(stack, group, splits)
        result, trained = stacked_trainer.train_stack(final, device, report_cost)
        networks.append(trained)
        for key, values in vars(result).items():
            if key not in ("seconds", "losses"):
                shape = (len(outer), *values.shape[1:])
                merged.setdefault(key, np.empty(shape, values.dtype))[positions] = values
        # candidates may have different numbers of epochs: only the last loss of each is stored
        merged.setdefault("losses", np.empty((len(outer), 1)))[positions] = result.losses[:, -1:]
    result = StackResult(**merged, seconds=time.perf_counter() - started)
    choices = [
        Choice(int(index), 100 * int(scores[index, i]) / int(tested[i]))
        for i, index in enumerate(chosen)
    ]
    return TunedStack(result, networks, choices)


def candidate_stack(stack: Stack, group: list[int], splits: list[NetworkSplit]) -> Stack:
    """Return the stack that trains a group of candidates on the given splits."""
    assert stack.tuning is not None
    candidates = [stack.tuning.candidates[i] for i in group]
    return replace(
        stack,
        objective=candidates[0].objective,
        protocol=candidates[0].setting.protocol,
        custom_splits=tuple(splits),
        tuning=None,
        batched_with=tuple(c.setting.protocol for c in candidates),
    )


def inner_splits(stack: Stack) -> list[NetworkSplit]:
    """Return the inner splits of every network, which all candidates share.

    Inner folds are numbered on from the outer ones, so that an inner network's initial weights
    and batches are its own.
    """
    tuning = stack.tuning
    assert tuning is not None
    splits = []
    for network in stack.by_number:
        first = stack.folds + network.fold * tuning.inner_folds
        folds = stack.inner_folds(network, tuning.inner_folds)
        for i, positions in enumerate(folds):
            train, test = np.delete(network.train, positions), network.train[positions]
            splits.append(NetworkSplit(network.repeat, first + i, train, test))
    return splits
