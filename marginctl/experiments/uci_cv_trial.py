"""Cross-validation trials: one data set x objective x protocol x seed."""

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from marginctl import NUMERICS
from marginctl.crossval import search_space, stack
from marginctl.crossval.baselines import baseline_settings
from marginctl.crossval.preprocessing import SMALLEST_SPREAD, merged_categories, min_rows
from marginctl.data.tabular.dataset import TabularDataset
from marginctl.errors import RequestError
from marginctl.metrics.registry import FOLD_METRICS
from marginctl.objectives.parsing import ParsedObjective
from marginctl.objectives.parts import plugin_origins
from marginctl.recipe.uci_cv import INNER_FOLDS, Protocol, SklearnBaseline, UciCvRecipe
from marginctl.runs.run_dir import NETWORKS, SAVE_SECONDS, digest
from marginctl.utils.text import count_noun, join_names


@dataclass(frozen=True, eq=False)
class CVTrial:
    """The folds x repeats networks of one cell of the table, for one seed."""

    dataset: TabularDataset
    objective: ParsedObjective | SklearnBaseline
    protocol: Protocol
    seed: int
    tuning: stack.StackTuning | None = None
    # the protocols that share its stacks, its own among them, as one tuple for all of these trials;
    # empty for a trial alone
    batched_with: tuple[Protocol, ...] = ()
    setting: search_space.Setting | None = None
    measured: bool = False  # whether more than the accuracy is measured
    device: str = "cpu"  # that trains it; it is not part of its identity

    @property
    def row(self) -> str:
        """The row of the table: the data set, and the values of a grid."""
        return search_space.row_name(
            self.dataset.name, self.setting.changed if self.setting else {}
        )

    @property
    def identity(self) -> dict[str, Any]:
        """All that the result depends on, without defaults: a new option changes no id."""
        identity: dict[str, Any] = {
            "task": "uci-cv",
            "dataset": self.dataset.name,
            "data": self.dataset.digest,
            "objective": str(self.objective),
            "protocol": self.protocol.model_dump(exclude_defaults=True),
            "seed": self.seed,
            "numerics": NUMERICS,
        }
        if isinstance(self.objective, SklearnBaseline):
            keys = {"folds", "repeats", "stratified"}
            identity["protocol"] = self.protocol.model_dump(exclude_defaults=True, include=keys)
            identity["inner_folds"] = self.objective.inner_folds
        elif plugins := plugin_origins(self.objective.spec):
            identity["plugins"] = plugins
        if self.tuning is not None:
            identity["tune"] = {
                "inner_folds": self.tuning.inner_folds,
                "candidates": [str(c) for c in self.tuning.candidates],
            }
        if self.batched_with:  # the last bits of a network may depend on its stack
            variants = (
                p.model_dump(include=set(search_space.VARIANT_KEYS)) for p in self.batched_with
            )
            identity["batched_with"] = list(variants)
        return identity

    @cached_property
    def id(self) -> str:
        """The name of the run directory: readable, and unique by its digest."""
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{self.dataset.name} {self.objective}")
        return f"{words[:60]}-{digest(self.identity)[:16]}"

    def __str__(self) -> str:
        return f"{self.row} / {self.objective} (seed {self.seed})"

    @cached_property
    def stacks(self) -> list[stack.Stack]:
        return stack.build_stacks(
            self.dataset,
            self.objective,
            self.protocol,
            self.seed,
            self.tuning,
            self.batched_with,
            measured=self.measured,
            device=self.device,
        )

    @property
    def stack_key(self) -> Hashable:
        """Equal for the trials that share their stacks."""
        if not self.batched_with:
            return self.id
        return id(self.batched_with), self.dataset.name, str(self.objective), self.seed

    @property
    def networks(self) -> int:
        """The number of networks whose test accuracies make the cell."""
        return stack.num_folds(self.dataset, self.protocol) * self.protocol.repeats

    @property
    def trained_networks(self) -> int:
        """The number of networks that are trained, those of inner folds included."""
        if self.tuning is None:
            return self.networks
        return self.networks * (1 + len(self.tuning.candidates) * self.tuning.inner_folds)

    def files(self, requested: frozenset[str]) -> frozenset[str]:
        """Return those of the requested files that the trial has; a baseline is no network."""
        return requested - {NETWORKS} if isinstance(self.objective, SklearnBaseline) else requested

    def select_result(self, result: Any) -> Any:
        """Return this trial's part of a stack's result."""
        if not self.batched_with:
            return result
        return result.select_variant(self.batched_with.index(self.protocol), len(self.batched_with))

    @property
    def cost(self) -> float:
        """The relative training time; trials that share their stacks share its cost."""
        return sum(one.cost for one in self.stacks) / max(1, len(self.batched_with))

    def prediction_rows(self, predictions: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of predictions.csv, the heading first.

        `row` counts from 1: in the user's file (the test file of a fixed split) without the
        heading; in a UCI data set among the rows in use.
        """
        data = self.dataset
        yield PREDICTION_COLUMNS
        for row, repeat, fold, predicted, confidence in predictions:
            number = row + 1 if data.row_numbers is None else int(data.row_numbers[row])
            truth, prediction = data.classes[data.y[row]], data.classes[predicted]
            cell = (data.name, str(self.objective), self.seed)
            yield (*cell, number, repeat, fold, truth, prediction, f"{confidence:.6f}")

    def record(
        self, results: Sequence[stack.StackResult], choices: Sequence[stack.Choice] = ()
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the metrics of each epoch and the result."""
        shape = (self.protocol.repeats, stack.num_folds(self.dataset, self.protocol))
        correct = np.concatenate([r.correct for r in results]).reshape(shape)
        tested = np.concatenate([r.tested for r in results]).reshape(shape)
        fixed = self.dataset.fixed_test
        test_rows = self.dataset.num_rows if fixed is None else len(fixed)
        if (
            self.protocol.stratified != "equal-test-counts"
            and not (tested.sum(1) == test_rows).all()
        ):
            raise AssertionError("each row must be tested exactly once per repeat")
        losses = np.concatenate([r.losses for r in results])
        metrics = []
        for epoch, loss in enumerate(losses.T, 1):
            finite = loss[np.isfinite(loss)]
            mean = float(finite.mean()) if len(finite) else None
            metrics.append({"epoch": epoch, "loss": mean, "networks": len(finite)})
        result = {
            "trial": self.id,
            "dataset": self.dataset.name,
            "objective": str(self.objective),
            "seed": self.seed,
            "classes": self.dataset.num_classes,
            "rows": self.dataset.num_rows,
            "split": "folds" if fixed is None else "fixed",
            "networks": self.networks,
            "accuracies": (100 * correct / tested).tolist(),
            "tested": tested.tolist(),
            "diverged": _numbers(r.diverged for r in results),
            "collapsed": _numbers(r.collapsed for r in results),
            "timing": {"seconds": sum(r.seconds for r in results)},
        }
        if self.measured:
            values = np.concatenate([r.metrics for r in results])
            values = np.where(np.isnan(values), np.array(None), values)  # null in JSON
            result["metrics"] = {
                name: column.reshape(shape).tolist()
                for name, column in zip(OTHER_METRICS, values.T, strict=True)
            }
            result["confusion"] = sum(r.confusion.sum(0) for r in results).tolist()
            result["class_names"] = list(self.dataset.classes)
            if fixed is not None:
                result["row_correct"] = sum(r.right.sum(0) for r in results).tolist()
        if isinstance(self.objective, SklearnBaseline) and choices:
            result |= _choices_json(baseline_settings(self.objective), choices)
        if self.tuning is not None:
            names = [str(c) for c in self.tuning.candidates]
            result |= _choices_json(names, choices)
        return metrics, result


def _choices_json(names: Sequence[str], choices: Sequence[stack.Choice]) -> dict[str, Any]:
    counts = Counter(choice.candidate for choice in choices)
    return {
        "chosen": {name: counts[i] for i, name in enumerate(names)},
        "candidates": len(names),
        "inner_accuracy": float(np.mean([c.inner_accuracy for c in choices])),
    }


OTHER_METRICS = tuple(name for name in FOLD_METRICS if name != "accuracy")
PREDICTION_COLUMNS = (
    *("dataset", "objective", "seed", "row", "repeat", "fold", "truth", "prediction"),
    "confidence",
)


def _numbers(flags: Iterable[Any]) -> list[int]:
    """Return the numbers (repeat * folds + fold) of the flagged networks."""
    return [int(i) for i in np.flatnonzero(np.concatenate(list(flags)))]


def expand_cv_trials(
    recipe: UciCvRecipe, datasets: Iterable[TabularDataset], device: str = "cpu"
) -> list[CVTrial]:
    """Return the trials of a recipe, trained on a device, in the order of its table."""
    datasets = list(datasets)
    folds = recipe.protocol.folds
    problems = [
        f"data set '{d.name}': folds = {folds}, expected at most its {d.num_rows} rows: "
        "ask for fewer folds"
        for d in datasets
        if d.fixed_test is None and folds > d.num_rows
    ]
    problems += [
        f"data set '{d.name}': repeats = 1 with a fixed test set, expected at least 2: each repeat "
        "has its own initial weights, and one says nothing about the spread"
        for d in datasets
        if d.fixed_test is not None and recipe.protocol.repeats < 2
    ]
    problems += [
        f"data set '{d.name}': every class has one row, which every equal-test-counts fold tests: "
        "expected some to train on: leave protocol.stratified out"
        for d in datasets
        if recipe.protocol.stratified == "equal-test-counts"
        and len(set(d.y.tolist())) == d.num_rows
    ]
    inner_folds = recipe.tune.inner_folds if recipe.tune is not None else 0
    baseline_folds = inner_folds or INNER_FOLDS
    problems += [
        f"data set '{d.name}': tune.inner_folds = {inner_folds}, expected at most the "
        f"{count_noun(rows, 'training row')} of a fold: use a larger table, or --no-tune"
        for d in datasets
        if (rows := _smallest_training_part(d, recipe.protocol)) < inner_folds
    ]
    problems += _group_problems(
        recipe, datasets, baseline_folds if recipe.baselines else inner_folds
    )
    if problems:
        raise RequestError(*problems)
    tunings: dict[ParsedObjective, stack.StackTuning | None] = dict.fromkeys(recipe.objectives)
    if recipe.tune is not None:
        for column in recipe.objectives:
            candidates = search_space.column_candidates(recipe.tune, recipe.protocol, column)
            tunings[column] = stack.StackTuning(candidates, recipe.tune.inner_folds)
    trials = [
        CVTrial(
            dataset,
            column,
            setting.protocol,
            seed,
            tunings[column],
            setting=setting,
            measured=recipe.measured,
            device=device,
        )
        for dataset in datasets
        for setting in search_space.grid_settings(recipe)
        for column in recipe.objectives
        for seed in recipe.seeds
    ]
    return trials + [
        CVTrial(
            dataset, SklearnBaseline(name, baseline_folds), recipe.protocol, seed, measured=True
        )
        for dataset in datasets
        for name in recipe.baselines
        for seed in recipe.seeds
    ]


def _smallest_training_part(dataset: TabularDataset, protocol: Protocol) -> int:
    """Return how many rows the network with the smallest training part is trained on."""
    if dataset.fixed_test is not None:
        return dataset.num_rows - len(dataset.fixed_test)
    parts = [dataset.num_rows]
    if protocol.stratified == "equal-test-counts":
        parts = list(Counter(dataset.y.tolist()).values())
    return dataset.num_rows - sum(math.ceil(rows / protocol.folds) for rows in parts)


def _group_problems(
    recipe: UciCvRecipe, datasets: Iterable[TabularDataset], inner: int
) -> list[str]:
    problems = []
    for dataset in datasets:
        if dataset.groups is None:
            continue
        if recipe.protocol.stratified == "equal-test-counts":
            problems.append(
                "--groups with protocol.stratified = equal-test-counts: expected true or false"
            )
        folds = 0 if dataset.fixed_test is not None else recipe.protocol.folds
        number = len(np.unique(dataset.groups))
        if number < folds + inner:
            within = f" and {inner} inner folds" if inner else ""
            problems.append(
                f"data set '{dataset.name}': {number} groups, expected at least "
                f"{folds + inner} for {folds} folds{within}: ask for fewer folds"
            )
    return problems


def data_warnings(datasets: Iterable[TabularDataset], protocol: Protocol) -> list[str]:
    """Return lines about rare classes and categories, and about columns that barely vary."""
    lines = []
    for dataset in datasets:
        lines += [
            f"{dataset.name}: column '{name}': {number} categories count as one, since each needs "
            f"{math.ceil(min_rows(dataset))} training rows: join rare ones, or drop the column"
            for name, number in merged_categories(dataset).items()
        ]
        spread = np.nanmax(dataset.x, axis=0) - np.nanmin(dataset.x, axis=0)
        vanishing = np.flatnonzero((spread > 0) & (spread < SMALLEST_SPREAD))
        if len(vanishing) and protocol.scaling != "none":
            names = join_names([f"'{dataset.columns[j].name}'" for j in vanishing])
            lines.append(
                f"{dataset.name}: values that differ by less than {SMALLEST_SPREAD:.1e} are "
                f"constant at this precision, in column {names}: rescale it to use it"
            )
        if dataset.fixed_test is not None:
            continue
        classes, unit = dataset.y, "rows"
        if dataset.groups is not None:  # a class is tested in as many folds as it has groups
            pairs = np.unique(np.stack([dataset.y, dataset.groups]), axis=1)
            classes, unit = pairs[0], "groups"
        counts = Counter(classes.tolist())
        small = [
            f"'{dataset.classes[c]}' ({n})" for c, n in sorted(counts.items()) if n < protocol.folds
        ]
        effect = "some folds test none of it"
        if protocol.stratified == "equal-test-counts":
            small = [f"'{dataset.classes[c]}' (1)" for c, n in counts.items() if n == 1]
            effect = "each fold tests its row, and none trains on it"
        if small:
            lines.append(
                f"{dataset.name}: fewer {unit} than folds in class {join_names(small)}: {effect}"
            )
    return lines


def total_cost(trials: Iterable[CVTrial]) -> float:
    """Return the total cost of trials; a shared stack is paid for once, with all its variants."""
    trials = list(trials)
    by_stack = {trial.stack_key: trial for trial in trials}
    costs = (trial.cost * max(1, len(trial.batched_with)) for trial in by_stack.values())
    return sum(costs) + SAVE_SECONDS * len(trials)


def cost_seconds(cost: float, workers: int) -> float:
    """Return the estimated seconds that a cost takes, with the start-up of the workers."""
    return math.ceil(cost / workers + 4) if cost else 0.0
