"""Nested cross-validation: each network's setting is chosen inside its own training rows."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from marginctl.crossval.folds import partition
from marginctl.crossval.stack import NetworkRows, Stack, StackTuning, companies
from marginctl.crossval.stacked_networks import StackedNetworks
from marginctl.crossval.stacked_trainer import StackResult, train_stack


def train_tuned(
    stack: Stack, device: str, spent: Callable[[float], None]
) -> tuple[StackResult, list[StackedNetworks], list[int]]:
    """Trains a stack whose method has candidates.

    The training rows of every network are cut into inner folds; every candidate is trained on all
    but one of them and tested on that one, in turn. The candidate with most rows right (the first
    of a tie) is trained on all training rows. The test fold is seen by that network alone.

    Args:
        stack: with a tuning.
        device: a torch device.
        spent: hears of the cost of every epoch that is done.

    Returns:
        The result of the networks with their chosen candidates, in the order of their numbers; the
        networks, a stack for the candidates that train side by side; and the number of each one's
        candidate.
    """
    started = time.perf_counter()
    tuning = stack.tuning
    assert tuning is not None
    outer = sorted(stack.networks, key=lambda n: (n.repeat, n.fold))
    scores = np.empty((len(tuning.candidates), len(outer)), np.int64)
    together = _together(tuning)
    for numbers in together:
        rows = [replace(n, lane=lane) for n in inner_rows(stack) for lane in range(len(numbers))]
        inner = of_candidates(stack, numbers, rows)
        result, _ = train_stack(inner, device, on_epoch=_reporting(inner, spent))
        shape = (len(numbers), len(outer), tuning.inner_folds)
        scores[numbers] = result.correct.reshape(shape).sum(2)
    chosen = np.argmax(scores, axis=0)

    merged: dict[str, Any] = {}
    networks = []
    for numbers in together:
        # in the order in which the stack gives its results: by lane, then by number
        places = np.concatenate([np.flatnonzero(chosen == i) for i in numbers])
        if not len(places):
            continue
        lanes = {number: lane for lane, number in enumerate(numbers)}
        rows = [replace(outer[p], lane=lanes[int(chosen[p])]) for p in places]
        final = of_candidates(stack, numbers, rows)
        result, trained = train_stack(final, device, on_epoch=_reporting(final, spent))
        networks.append(trained)
        for key, values in vars(result).items():
            if key not in ("seconds", "losses"):
                merged.setdefault(key, np.empty(len(outer), values.dtype))[places] = values
        # candidates may train for different numbers of epochs: the last loss of each is kept
        merged.setdefault("losses", np.empty((len(outer), 1)))[places] = result.losses[:, -1:]
    result = StackResult(**merged, seconds=time.perf_counter() - started)
    return result, networks, [int(i) for i in chosen]


def _together(tuning: StackTuning) -> list[list[int]]:
    """The numbers of the candidates that train side by side."""
    by_objective: dict[str, list[int]] = {}
    for i, candidate in enumerate(tuning.candidates):
        by_objective.setdefault(str(candidate.objective), []).append(i)
    return [
        [numbers[i] for i in company]
        for numbers in by_objective.values()
        for company in companies([tuning.candidates[i].setting.protocol for i in numbers])
    ]


def of_candidates(stack: Stack, numbers: list[int], rows: list[NetworkRows]) -> Stack:
    """The stack of candidates that train side by side, on given rows with their lanes."""
    assert stack.tuning is not None
    candidates = [stack.tuning.candidates[i] for i in numbers]
    return replace(
        stack,
        objective=candidates[0].objective,
        protocol=candidates[0].setting.protocol,
        given=tuple(rows),
        tuning=None,
        beside=tuple(c.setting.protocol for c in candidates),
    )


def inner_rows(stack: Stack) -> list[NetworkRows]:
    """The inner networks of every network: the same for all candidates.

    An inner network is named by its fold, numbered on from the outer ones, so that its initial
    weights and batches are its own.
    """
    tuning = stack.tuning
    assert tuning is not None
    rows = []
    for network in sorted(stack.networks, key=lambda n: (n.repeat, n.fold)):
        first = stack.folds + network.fold * tuning.inner_folds
        tests = partition(
            stack.dataset.y[network.train],
            tuning.inner_folds,
            stratified=stack.protocol.stratified,
            seed=stack.seed,
            repeat=network.repeat,
            inside=network.fold,
        )
        for i, tested in enumerate(tests):
            train, test = np.delete(network.train, tested), network.train[tested]
            rows.append(NetworkRows(network.repeat, first + i, train, test))
    return rows


def _reporting(stack: Stack, spent: Callable[[float], None]) -> Callable[[], None]:
    an_epoch = stack.cost / stack.protocol.epochs
    return lambda: spent(an_epoch)
