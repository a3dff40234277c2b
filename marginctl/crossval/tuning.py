"""Nested cross-validation: each network's setting is chosen inside its own training rows."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from marginctl.crossval.engine import StackedNetworks, StackResult, train_stack
from marginctl.crossval.folds import partition
from marginctl.crossval.stack import NetworkRows, Stack


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
        networks, a stack for each candidate that was chosen; and the number of each one's
        candidate.
    """
    started = time.perf_counter()
    tuning = stack.tuning
    assert tuning is not None
    outer = sorted(stack.networks, key=lambda n: (n.repeat, n.fold))
    scores = []
    for i in range(len(tuning.candidates)):
        inner = of_candidate(stack, i, inner_rows(stack))
        result, _ = train_stack(inner, device, on_epoch=_reporting(inner, spent))
        scores.append(result.correct.reshape(len(outer), tuning.inner_folds).sum(1))
    chosen = np.argmax(scores, axis=0)

    merged: dict[str, Any] = {}
    networks = []
    for i in np.unique(chosen):
        places = np.flatnonzero(chosen == i)
        final = of_candidate(stack, int(i), [outer[p] for p in places])
        result, trained = train_stack(final, device, on_epoch=_reporting(final, spent))
        networks.append(trained)
        for key, values in vars(result).items():
            if key not in ("seconds", "losses"):
                merged.setdefault(key, np.empty(len(outer), values.dtype))[places] = values
        # candidates may train for different numbers of epochs: the last loss of each is kept
        merged.setdefault("losses", np.empty((len(outer), 1)))[places] = result.losses[:, -1:]
    result = StackResult(**merged, seconds=time.perf_counter() - started)
    return result, networks, [int(i) for i in chosen]


def of_candidate(stack: Stack, number: int, rows: list[NetworkRows]) -> Stack:
    """The stack of one candidate, on given rows."""
    assert stack.tuning is not None
    candidate = stack.tuning.candidates[number]
    return replace(
        stack,
        objective=candidate.objective,
        protocol=candidate.setting.protocol,
        given=tuple(rows),
        tuning=None,
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
        fold_of = partition(
            stack.dataset.y[network.train],
            tuning.inner_folds,
            stratified=stack.protocol.stratified,
            seed=stack.seed,
            repeat=network.repeat,
            inside=network.fold,
        )
        for i in range(tuning.inner_folds):
            train, test = network.train[fold_of != i], network.train[fold_of == i]
            rows.append(NetworkRows(network.repeat, first + i, train, test))
    return rows


def _reporting(stack: Stack, spent: Callable[[float], None]) -> Callable[[], None]:
    an_epoch = stack.cost / stack.protocol.epochs
    return lambda: spent(an_epoch)
