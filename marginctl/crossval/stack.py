"""Stacks: the networks that are trained in one batch of tensors, as plain data without torch."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.crossval.folds import partition
from marginctl.crossval.preprocessing import num_inputs
from marginctl.crossval.search_space import VARIANT_KEYS, Candidate
from marginctl.data.tabular.dataset import TabularDataset
from marginctl.metrics.arrays import FloatArray, IntArray
from marginctl.objectives.parsing import ParsedObjective
from marginctl.objectives.parts import ObjectiveSpec
from marginctl.recipe.uci_cv import Protocol, SklearnBaseline
from marginctl.utils.seed import generator

# A stack's weights, gradients and moments take about this much: smaller stacks spend their time
# in calls, and one stack per trial would keep a single core busy. At widths 64-64 on 2 CPU
# cores, 4 MiB took 0.63 s where 2 MiB took 0.77 s and 1 MiB 1.06 s (best of 5).
STACK_BYTES = 4 * 2**20
# On a GPU, whose cores are idle in a small stack: the share of its memory for these tensors.
GPU_MEMORY_SHARE = 1 / 16
# The most variants in one stack: each of their trials records all of them.
MAX_VARIANTS = 64


@dataclass(frozen=True, eq=False)
class NetworkSplit:
    """The training and test rows of one network: one fold of one repeat."""

    repeat: int
    fold: int
    train: IntArray
    test: IntArray
    variant: int = 0  # index of the protocol in `Stack.variants` that the network is trained by


@dataclass(frozen=True, eq=False)
class StackTuning:
    """The candidates that each network chooses from, by inner folds of its training rows."""

    candidates: tuple[Candidate, ...]
    inner_folds: int

    @property
    def groups(self) -> list[list[int]]:
        """The indices of candidates that are trained in one stack."""
        by_objective: dict[str, list[int]] = {}
        for i, candidate in enumerate(self.candidates):
            by_objective.setdefault(str(candidate.objective), []).append(i)
        return [
            [indices[i] for i in group]
            for indices in by_objective.values()
            for group in group_stackable([self.candidates[i].setting.protocol for i in indices])
        ]


@dataclass(frozen=True)
class Choice:
    """The setting that a network or a baseline has chosen."""

    candidate: int
    inner_accuracy: float  # in percent over all inner folds


@dataclass(frozen=True)
class StackResult:
    """The results of S networks, by variant and by network number (repeat * folds + fold)."""

    # (S,) correctly classified test rows, and all of them
    correct: IntArray
    tested: IntArray
    # (S, M) the metrics of `fold_metrics`, NaN where not defined; (S, 0) if not measured
    metrics: FloatArray
    # (S, C, C) test rows by true and predicted class; (S, 0, 0) if not measured
    confusion: IntArray
    # (S, n) whether each test row of a fixed split is classified correctly; (S, 0) if not measured
    right: NDArray[np.bool_]
    # (S,) the loss was not finite; the weights are those before that epoch
    diverged: NDArray[np.bool_]
    collapsed: NDArray[np.bool_]  # (S,) constant predictions, training rows included
    losses: FloatArray  # (S, epochs) mean training loss of each epoch
    seconds: float

    def select_variant(self, variant: int, num_variants: int) -> "StackResult":
        """Return the results of one of `num_variants` variants of as many networks each."""
        size = len(self.correct) // num_variants
        part = slice(variant * size, (variant + 1) * size)
        arrays = {key: value[part] for key, value in vars(self).items() if key != "seconds"}
        return StackResult(**arrays, seconds=self.seconds / num_variants)


def evaluate_network(
    dataset: TabularDataset, network: NetworkSplit, predicted: IntArray, logits: FloatArray | None
) -> dict[str, Any]:
    """Return one network's `correct`, `tested`, `metrics`, `confusion` and `right`.

    Args:
        predicted: (n,) the class of every row of the data set.
        logits: (n, C) of every row, whose softmax are the probabilities; None measures accuracy
            alone.
    """
    y, test = dataset.y[network.test], network.test
    right = predicted[test] == y
    result = {
        "correct": right.sum(),
        "tested": len(test),
        "right": right[:0],
        "metrics": np.zeros(0),
        "confusion": np.zeros((0, 0), np.int64),
    }
    if logits is not None:
        # imported here: a table of accuracies does not wait for them
        from marginctl.metrics.accuracy import confusion_matrix
        from marginctl.metrics.network_metrics import fold_metrics

        values = fold_metrics(logits[test], y).values()
        result["right"] = right if dataset.fixed_test is not None else right[:0]
        result["metrics"] = np.array([np.nan if v is None else v for v in values])
        result["confusion"] = confusion_matrix(y, predicted[test], dataset.num_classes)
    return result


@dataclass(frozen=True, eq=False)
class Stack:
    """Networks that are trained together: some folds of some repeats, one objective, one seed.

    How a trial is divided into stacks depends on the protocol and the data set alone, never on
    the other requested trials: a network is always trained in the same stack. On a GPU it depends
    on its memory too, where a trial's networks take more than a share of it.
    """

    dataset: TabularDataset
    objective: ParsedObjective | SklearnBaseline
    protocol: Protocol
    seed: int
    # the stack holds the networks first .. last - 1, numbered repeat * folds + fold
    first: int
    last: int
    tuning: StackTuning | None = None  # candidates of nested cross-validation, if any
    # splits to use instead of those of the folds
    custom_splits: tuple[NetworkSplit, ...] | None = None
    # the protocols where there are several, `protocol` among them; they differ in `VARIANT_KEYS`
    batched_with: tuple[Protocol, ...] = ()
    measured: bool = False  # whether more than the accuracy is measured

    @cached_property
    def networks(self) -> list[NetworkSplit]:
        """The splits of the stack's networks, by number of batches, most first.

        Networks that take the same steps are neighbours, as the optimizer needs.
        """
        splits = self._fold_splits() if self.custom_splits is None else self.custom_splits
        return sorted(splits, key=lambda n: (-self.num_batches(n), n.variant, -len(n.train)))

    def _fold_splits(self) -> Iterator[NetworkSplit]:
        rows, tests = np.arange(self.dataset.num_rows), dict[int, list[IntArray]]()
        for number in range(self.first, self.last):
            repeat, fold = divmod(number, self.folds)
            if self.dataset.fixed_test is not None:
                tests[repeat] = [np.sort(self.dataset.fixed_test)]
            elif repeat not in tests:
                tests[repeat] = self._partition(rows, self.folds, repeat)
            test = tests[repeat][fold]
            train = np.delete(rows, test)
            for variant in range(len(self.variants)):
                yield NetworkSplit(repeat, fold, train, test, variant)

    def num_batches(self, network: NetworkSplit) -> int:
        return -(-len(network.train) // self.protocol.batch_size)

    @property
    def variants(self) -> tuple[Protocol, ...]:
        """The protocols of the stack, which differ only in `VARIANT_KEYS`."""
        return self.batched_with or (self.protocol,)

    @property
    def folds(self) -> int:
        return num_folds(self.dataset, self.protocol)

    @property
    def by_number(self) -> list[NetworkSplit]:
        """The splits of the networks by number, repeat * folds + fold."""
        return sorted(self.networks, key=lambda n: (n.repeat, n.fold))

    def inner_folds(self, network: NetworkSplit, count: int) -> list[IntArray]:
        """Return the positions in a network's training rows of each of its inner test folds."""
        return self._partition(network.train, count, network.repeat, network.fold)

    def _partition(
        self, rows: IntArray, folds: int, repeat: int, outer_fold: int | None = None
    ) -> list[IntArray]:
        groups = self.dataset.groups
        return partition(
            self.dataset.y[rows],
            folds,
            stratified=self.protocol.stratified,
            seed=self.seed,
            repeat=repeat,
            outer_fold=outer_fold,
            groups=None if groups is None else groups[rows],
        )

    @cached_property
    def widths(self) -> list[int]:
        """The input's dimension and each hidden layer's; the last one is the feature dimension."""
        return [num_inputs(self.dataset), *self.protocol.hidden]

    @property
    def spec(self) -> ObjectiveSpec:
        """The parts of the objective, which a baseline does not have."""
        assert isinstance(self.objective, ParsedObjective)
        return self.objective.spec

    @property
    def cost(self) -> float:
        """The estimated seconds that one worker takes, measured on 2 CPU cores."""
        if isinstance(self.objective, SklearnBaseline):
            return _seconds_per_fold(self.objective, self.dataset) * (self.last - self.first)
        count: float = (self.last - self.first) * len(self.variants)
        fraction = 1 - 1 / self.protocol.folds
        if self.custom_splits is not None:
            count = len(self.custom_splits)
            fraction = max(len(s.train) for s in self.custom_splits) / self.dataset.num_rows
        if self.tuning is None:
            return _training_cost(self.dataset, self.protocol, count, fraction)
        tuning = self.tuning
        inner = fraction * (1 - 1 / tuning.inner_folds)
        # the choices are not known yet: assume that each candidate is chosen equally often
        chosen = count / len(tuning.candidates)
        return sum(
            _training_cost(self.dataset, protocol, len(group) * networks, part)
            for networks, part in ((count * tuning.inner_folds, inner), (chosen, fraction))
            for group in tuning.groups
            for protocol in [tuning.candidates[group[0]].setting.protocol]
        )


def _seconds_per_fold(baseline: SklearnBaseline, dataset: TabularDataset) -> float:
    """Return the rough seconds that a baseline takes on one fold."""
    rows, columns, classes = dataset.num_rows, dataset.num_features, dataset.num_classes
    if baseline.name == "gradient-boosting":
        trees = 1 if classes == 2 else classes  # of an iteration
        return trees * (0.25 + 0.037 * (columns + 5) * rows / (rows + 900))
    if baseline.name == "logistic-regression":
        return 0.06 + 4e-7 * rows * columns * classes
    return 0.01


def _training_cost(
    dataset: TabularDataset, protocol: Protocol, count: float, train_fraction: float
) -> float:
    """Return the rough seconds of `count` networks trained together on a fraction of the rows.

    On 702 stacks of one to four layers, 3 to 33 inputs, and batches of 16 to 256, the estimate was
    0.67 to 1.25 times the measured time for the middle 80 %.
    """
    rows, hidden = dataset.num_rows * train_fraction, protocol.hidden
    batch_size = min(protocol.batch_size, rows)
    units = sum(hidden) + dataset.num_classes
    inputs = num_inputs(dataset) * (hidden or [dataset.num_classes])[0]
    batch_seconds = 2.7e-4 + 1.2e-4 * len(hidden)
    batch_seconds += count * (6.2e-9 * units + 1e-10 * inputs) * batch_size
    return protocol.epochs * math.ceil(rows / batch_size) * batch_seconds


def num_folds(dataset: TabularDataset, protocol: Protocol) -> int:
    """Return the folds of a repeat; a fixed test set counts as one."""
    return protocol.folds if dataset.fixed_test is None else 1


def group_stackable(protocols: Sequence[Protocol]) -> list[list[int]]:
    """Group the indices of protocols that can share a stack, in the order of the first of each."""
    groups: dict[str, list[int]] = {}
    for i, protocol in enumerate(protocols):
        groups.setdefault(protocol.model_dump_json(exclude=set(VARIANT_KEYS)), []).append(i)
    return list(groups.values())


def build_stacks(
    dataset: TabularDataset,
    objective: ParsedObjective | SklearnBaseline,
    protocol: Protocol,
    seed: int,
    tuning: StackTuning | None = None,
    batched_with: tuple[Protocol, ...] = (),
    *,
    measured: bool = False,
    device: str = "cpu",
) -> list[Stack]:
    """Divide a trial's folds x repeats networks into stacks of nearly equal size.

    Several variants make one stack: the caller limits their number to `max_variants`.

    Args:
        device: that trains them, which sets the size of a stack.
    """
    if batched_with:
        ranges = [(0, num_folds(dataset, protocol) * protocol.repeats)]
    elif isinstance(objective, SklearnBaseline):
        folds = num_folds(dataset, protocol)
        ranges = [(folds * i, folds * (i + 1)) for i in range(protocol.repeats)]
    else:
        networks = num_folds(dataset, protocol) * protocol.repeats
        total_bytes = _trial_bytes(dataset, protocol)
        number = min(networks, math.ceil(total_bytes / _device_stack_bytes(device)))
        ranges = list(itertools.pairwise(networks * i // number for i in range(number + 1)))
    return [
        Stack(dataset, objective, protocol, seed, *part, tuning, None, batched_with, measured)
        for part in ranges
    ]


def _device_stack_bytes(device: str) -> float:
    """Return the size of a stack's weights, gradients and moments on a device."""
    if device == "cpu":
        return STACK_BYTES
    import torch

    if device == "mps":
        return GPU_MEMORY_SHARE * torch.mps.recommended_max_memory()
    return GPU_MEMORY_SHARE * torch.cuda.get_device_properties(device).total_memory


def _trial_bytes(dataset: TabularDataset, protocol: Protocol) -> int:
    """Return the bytes of a trial's weights, gradients and two moments in float32."""
    widths = [num_inputs(dataset), *protocol.hidden]
    parameters = sum(a * b + b for a, b in itertools.pairwise(widths))
    parameters += dataset.num_classes * widths[-1]
    return num_folds(dataset, protocol) * protocol.repeats * 4 * 4 * parameters


def max_variants(dataset: TabularDataset, protocol: Protocol) -> int:
    """Return how many variants fit into one stack: 1 where a single one fills it."""
    return max(1, min(MAX_VARIANTS, STACK_BYTES // _trial_bytes(dataset, protocol)))


COST_KEYS = frozenset({"hidden", "epochs", "batch_size"})  # the protocol's keys that `cost` reads


def variants_cost(
    dataset: TabularDataset, objective: ParsedObjective, protocol: Protocol, count: int
) -> float:
    """Return the cost of `count` variants of a protocol, for one seed and any objective."""

    def stack_cost(variants: int) -> float:
        batched_with = (protocol,) * variants if variants > 1 else ()
        stacks = build_stacks(dataset, objective, protocol, 0, batched_with=batched_with)
        return sum(stack.cost for stack in stacks)

    size = max_variants(dataset, protocol)
    full, rest = divmod(count, size)
    return full * stack_cost(size) + (stack_cost(rest) if rest else 0.0)


def initial_weights(stack: Stack, network: NetworkSplit) -> dict[str, FloatArray]:
    """Return the initial weights of one network, which all objectives share.

    By default uniform in +-1/sqrt(inputs), as `torch.nn.Linear` draws them. Keys: `weight0` (in,
    out) and `bias0` (out,) for each hidden layer, and `class_weight` (C, d), `class_bias` (C,);
    with batch normalisation `norm_weight0` and `norm_bias0` (out,) too.
    """
    kind, widths = stack.protocol.initialization, stack.widths
    num_classes = stack.dataset.num_classes

    def uniform(name: str, shape: tuple[int, ...], inputs: int, outputs: int) -> FloatArray:
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
    fans = (widths[-1], num_classes)
    weights["class_weight"] = uniform("class_weight", (num_classes, widths[-1]), *fans)
    weights["class_bias"] = uniform("class_bias", (num_classes,), *fans)
    return weights


class BatchOrder:
    """The order in which one network sees its training rows, epoch after epoch.

    Each network has its own random stream, so its order does not depend on its stack. Orders are
    drawn for ten epochs at a time, which costs a tenth of the calls.
    """

    EPOCHS = 10

    def __init__(self, seed: int, network: NetworkSplit) -> None:
        self._stream = generator(seed, "batches", network.repeat, network.fold)
        self._rows = np.broadcast_to(network.train, (self.EPOCHS, len(network.train)))
        self._drawn = self._rows[:0]

    def next_epoch(self) -> IntArray:
        """Return the row numbers of the next epoch, (n_train,)."""
        if not len(self._drawn):
            self._drawn = self._stream.permuted(self._rows, axis=1)
        order, self._drawn = self._drawn[0], self._drawn[1:]
        return np.asarray(order)
