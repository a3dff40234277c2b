"""What one stack of networks is: plain data, made without torch and sent to a worker."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from marginctl.crossval.folds import IntArray, partition
from marginctl.crossval.search_space import LANE_KEYS, Candidate
from marginctl.data.tabular.dataset import TabularDataset
from marginctl.objectives.parsing import ObjectiveName, parse
from marginctl.recipe import Protocol
from marginctl.utils.seed import generator

# A stack's weights, gradients and moments are kept about this small: smaller stacks spend their
# time in calls, and one stack a trial would keep a single core busy. At widths 64-64 on 2 CPU
# cores, 4 MiB took 0.63 s where 2 MiB took 0.77 s and 1 MiB 1.06 s (best of 5).
STACK_BYTES = 4 * 2**20
# Protocols that train side by side: each of their trials records all of them.
MOST_LANES = 64


@dataclass(frozen=True, eq=False)
class NetworkRows:
    """The rows that one network (one fold of one repeat) trains and is tested on."""

    repeat: int
    fold: int
    train: IntArray
    test: IntArray
    lane: int = 0  # of the stack's lanes, the one that it trains by


@dataclass(frozen=True, eq=False)
class StackTuning:
    """What each network of a stack chooses from, by inner folds of its training rows."""

    candidates: tuple[Candidate, ...]
    inner_folds: int


@dataclass(frozen=True, eq=False)
class Stack:
    """Networks that train side by side: some folds of some repeats, one objective, one seed.

    How a trial is cut into stacks depends on the protocol and the data set alone, never on what
    else was asked for: the same network is always computed in the same company.
    """

    dataset: TabularDataset
    objective: ObjectiveName
    protocol: Protocol
    seed: int
    first: int  # numbered repeat * folds + fold; this stack holds first .. last - 1
    last: int
    tuning: "StackTuning | None" = None
    given: tuple[NetworkRows, ...] | None = None  # other rows than those of the folds
    beside: tuple[Protocol, ...] = ()  # protocols that train side by side; none: `protocol` alone

    @cached_property
    def networks(self) -> list[NetworkRows]:
        """The stack's networks, those with most training rows first."""
        if self.given is not None:
            return self._in_order(self.given)
        rows = []
        tests: dict[int, list[IntArray]] = {}
        for number in range(self.first, self.last):
            repeat, fold = divmod(number, self.folds)
            if repeat not in tests:
                tests[repeat] = self._tested(repeat)
            test = tests[repeat][fold]
            train = np.delete(np.arange(self.dataset.num_rows), test)
            rows += [
                NetworkRows(repeat, fold, train, test, lane) for lane in range(len(self.lanes))
            ]
        return self._in_order(rows)

    def _in_order(self, rows: Iterable[NetworkRows]) -> list[NetworkRows]:
        """Networks with most batches first; those that share an optimiser's group in a row."""
        return sorted(rows, key=lambda n: (-self.batches_of(n), n.lane, -len(n.train)))

    def batches_of(self, network: NetworkRows) -> int:
        """Batches in an epoch of one network."""
        return -(-len(network.train) // self.protocol.batch_size)

    @property
    def lanes(self) -> tuple[Protocol, ...]:
        """The protocols of the stack, which differ in what `LANE_KEYS` names alone."""
        return self.beside or (self.protocol,)

    @property
    def folds(self) -> int:
        return folds_of(self.dataset, self.protocol)

    def _tested(self, repeat: int) -> list[IntArray]:
        """The test rows of each fold."""
        if self.dataset.fixed_test is not None:
            return [np.sort(self.dataset.fixed_test)]
        return partition(
            self.dataset.y,
            self.folds,
            stratified=self.protocol.stratified,
            seed=self.seed,
            repeat=repeat,
        )

    @property
    def num_classes(self) -> int:
        return self.dataset.num_classes

    @property
    def widths(self) -> list[int]:
        """Lengths of the input, of each hidden layer, and so of the feature at the end."""
        return [self.dataset.num_features, *self.protocol.hidden]

    @property
    def cost(self) -> float:
        """Relative time that the stack takes, for estimates of the time left."""
        number: float = (self.last - self.first) * len(self.lanes)
        share = 1 - 1 / self.protocol.folds
        if self.given is not None:
            number = len(self.given)
            share = max(len(rows.train) for rows in self.given) / self.dataset.num_rows
        if self.tuning is None:
            return self._cost_of(self.protocol, number, share)
        inner = share * (1 - 1 / self.tuning.inner_folds)
        protocols = [candidate.setting.protocol for candidate in self.tuning.candidates]
        tried = [self._cost_of(p, number * self.tuning.inner_folds, inner) for p in protocols]
        # which are chosen is not known: as if each were, by as many networks
        final = [self._cost_of(p, number / len(protocols), share) for p in protocols]
        return sum(tried) + sum(final)

    def _cost_of(self, protocol: Protocol, number: float, share: float) -> float:
        steps = math.ceil(self.dataset.num_rows * share / protocol.batch_size)
        widths = [self.dataset.num_features, *protocol.hidden]
        parameters = _parameters(widths, self.dataset.num_classes)
        a_network = 8 + parameters * protocol.batch_size / 8000
        return protocol.epochs * steps * (300 + number * a_network)


def companies(protocols: Sequence[Protocol]) -> list[list[int]]:
    """Which of the protocols can train side by side: their numbers, in the order of the first."""
    found: dict[str, list[int]] = {}
    for i, protocol in enumerate(protocols):
        found.setdefault(protocol.model_dump_json(exclude=set(LANE_KEYS)), []).append(i)
    return list(found.values())


def folds_of(dataset: TabularDataset, protocol: Protocol) -> int:
    """Folds of a repeat; a fixed test set counts as one."""
    return protocol.folds if dataset.fixed_test is None else 1


def _parameters(widths: list[int], num_classes: int) -> int:
    layers = sum(a * b + b for a, b in itertools.pairwise(widths))
    return layers + num_classes * widths[-1]


def stacks(
    dataset: TabularDataset,
    objective: ObjectiveName,
    protocol: Protocol,
    seed: int,
    tuning: StackTuning | None = None,
    beside: tuple[Protocol, ...] = (),
) -> list[Stack]:
    """Cuts a trial's folds x repeats networks into stacks of nearly equal size.

    With protocols that train side by side there is one, for `lanes_at_once` has seen to its size.
    """
    if beside:
        networks = folds_of(dataset, protocol) * protocol.repeats
        return [Stack(dataset, objective, protocol, seed, 0, networks, beside=beside)]
    networks = folds_of(dataset, protocol) * protocol.repeats
    number = min(networks, math.ceil(_stack_bytes(dataset, protocol) / STACK_BYTES))
    edges = [networks * i // number for i in range(number + 1)]
    return [
        Stack(dataset, objective, protocol, seed, first, last, tuning)
        for first, last in itertools.pairwise(edges)
    ]


def lanes_at_once(dataset: TabularDataset, protocol: Protocol) -> int:
    """How many protocols may train side by side in one stack: 1 where one has a stack's size."""
    return max(1, min(MOST_LANES, STACK_BYTES // _stack_bytes(dataset, protocol)))


COST_KEYS = frozenset({"hidden", "epochs", "batch_size"})  # of a protocol, all that `cost` reads


def cost_side_by_side(dataset: TabularDataset, protocol: Protocol, lanes: int) -> float:
    """The cost of one objective and seed with so many protocols that differ in `LANE_KEYS`."""
    size = lanes_at_once(dataset, protocol)

    def one(number: int) -> float:
        beside = (protocol,) * number if number > 1 else ()
        return sum(s.cost for s in stacks(dataset, parse("soft"), protocol, 0, None, beside))

    whole, rest = divmod(lanes, size)
    return whole * one(size) + (one(rest) if rest else 0.0)


def _stack_bytes(dataset: TabularDataset, protocol: Protocol) -> int:
    """Of all networks of a trial in float32: weights, gradients and two moments."""
    widths = [dataset.num_features, *protocol.hidden]
    one_network = 4 * 4 * _parameters(widths, dataset.num_classes)
    return folds_of(dataset, protocol) * protocol.repeats * one_network


def initial_weights(stack: Stack, network: NetworkRows) -> dict[str, NDArray[np.float64]]:
    """The initial weights of one network, shared by all objectives.

    By default uniform in +-1/sqrt(inputs), as `torch.nn.Linear` draws them. Keys: `weight0` (in,
    out) and `bias0` (out,) for each hidden layer, and `class_weight` (C, d), `class_bias` (C,);
    with batch normalisation `norm_weight0` and `norm_bias0` (out,) too.
    """
    kind, widths, num_classes = stack.protocol.initialization, stack.widths, stack.num_classes

    def uniform(
        name: str, shape: tuple[int, ...], inputs: int, outputs: int
    ) -> NDArray[np.float64]:
        bound = 1 / math.sqrt(inputs)
        if kind != "default" and len(shape) == 1:
            bound = 0.0
        elif kind != "default":
            bound = math.sqrt(6 / (inputs + outputs if kind == "xavier" else inputs))
        stream = generator(stack.seed, "weights", network.repeat, network.fold, name)
        return stream.uniform(-bound, bound, shape)

    weights = {}
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        weights[f"weight{i}"] = uniform(f"weight{i}", (inputs, outputs), inputs, outputs)
        weights[f"bias{i}"] = uniform(f"bias{i}", (outputs,), inputs, outputs)
        if stack.protocol.batch_norm != "none":
            weights[f"norm_weight{i}"] = np.ones(outputs)
            weights[f"norm_bias{i}"] = np.zeros(outputs)
    ends = (widths[-1], num_classes)
    weights["class_weight"] = uniform("class_weight", (num_classes, widths[-1]), *ends)
    weights["class_bias"] = uniform("class_bias", (num_classes,), *ends)
    return weights


class BatchOrder:
    """The order in which one network sees its training rows, epoch after epoch.

    Each network has its own stream, so its order does not depend on its company. Orders are drawn
    for ten epochs at a time, which costs a tenth of the calls.
    """

    EPOCHS = 10

    def __init__(self, seed: int, network: NetworkRows) -> None:
        self._stream = generator(seed, "batches", network.repeat, network.fold)
        self._rows = np.broadcast_to(network.train, (self.EPOCHS, len(network.train)))
        self._drawn = self._rows[:0]

    def next_epoch(self) -> IntArray:
        """(n_train,) row numbers."""
        if not len(self._drawn):
            self._drawn = self._stream.permuted(self._rows, axis=1)
        order, self._drawn = self._drawn[0], self._drawn[1:]
        return np.asarray(order)


def scaling_statistics(
    x: NDArray[np.float64], train: IntArray, scaling: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What is subtracted from each column and what it is then multiplied by, (d,) each.

    Both come from the training rows alone. A column that is constant there is only centred.
    `standard`: mean and standard deviation (ddof 0); `minmax`: to 0 .. 1; `none`: 0 and 1.
    """
    if scaling == "none":
        return np.zeros(x.shape[1]), np.ones(x.shape[1])
    rows = x[train]
    if scaling == "standard":
        shift, spread = rows.mean(0), rows.std(0)
    else:
        shift = rows.min(0)
        spread = rows.max(0) - shift
    constant = rows.min(0) == rows.max(0)
    return np.where(constant, rows[0], shift), 1 / np.where(constant, 1.0, spread)


def class_weights(y: IntArray, train: IntArray, num_classes: int) -> NDArray[np.float64]:
    """(C,): what a training row of each class counts, so that all classes count the same."""
    counts = np.bincount(y[train], minlength=num_classes)
    return len(train) / (num_classes * np.maximum(counts, 1))
