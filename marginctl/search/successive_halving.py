"""Successive halving over repeats, with selections that are scored on held-out data sets.

Each round trains every remaining setting with the round's number of repeats, and keeps those
nearest to the published table. A selection that is scored on held-out data sets must not have
seen them in any round. So each selection (on all data sets, and on two thirds of them, in turn)
keeps its own settings, and a round trains the settings of all selections.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from marginctl.crossval.search_space import Grid, IntArray, Setting, column_alternatives
from marginctl.crossval.stack import group_stackable, max_variants
from marginctl.data.tabular.dataset import TabularDataset
from marginctl.experiments.records import CVResult
from marginctl.experiments.uci_cv_trial import CVTrial
from marginctl.objectives.parsing import ParsedObjective
from marginctl.papers import PublishedMean
from marginctl.recipe.uci_cv import UciCvRecipe
from marginctl.search.distance import Distance, distance

Cells = dict[tuple[str, str], PublishedMean]
PARTS = 3  # of the data sets: a setting is selected on two and scored on the third
ALL = "all"
TRIALS_PER_PART = 10_000  # of a round: small enough for memory, large enough to fill the workers
MAX_LISTED = 1000  # settings of the last round in the result


@dataclass
class Evaluation:
    """A setting and its cells, for every alternative objective of every column."""

    setting: Setting
    cells: Cells = field(default_factory=dict)


@dataclass(frozen=True)
class Match:
    """A setting compared with the published table."""

    setting: Setting
    objectives: Mapping[str, str]  # column -> the alternative objective that is nearest
    distance: Distance
    cells: Cells  # the columns' cells, with these objectives

    def sort_key(self, criterion: str) -> tuple[float, int]:
        """Return the distance to sort by, and the setting's number to break ties."""
        distances = {
            "points": self.distance.mean_absolute,
            "effects": self.distance.effects_mean_absolute,
            "stds": self.distance.std_mean_absolute,
        }
        return distances[criterion], self.setting.number

    def as_json(self) -> dict[str, Any]:
        return {
            "setting": self.setting.number,
            "protocol": self.setting.changed,
            "repeats": self.setting.protocol.repeats,
            "objectives": dict(self.objectives),
            "distance": asdict(self.distance),
        }


def match(
    evaluation: Evaluation,
    alternatives: Mapping[str, Sequence[ParsedObjective]],
    published: Mapping[tuple[str, str], PublishedMean],
    selected_on: Sequence[str],
    scored_on: Sequence[str] | None = None,
) -> Match:
    """Compare a setting with the published table, each column by its nearest alternative.

    Args:
        selected_on: the data sets on which the nearest alternatives are selected.
        scored_on: the data sets of the distance; None for the same.
    """
    nearest: dict[str, str] = {}
    for column, objectives in alternatives.items():
        targets = {d: published.get((d, column)) for d in selected_on}

        def error(name: str, targets: dict[str, PublishedMean | None] = targets) -> float:
            errors = [
                abs(evaluation.cells[d, name].mean - cell.mean)
                for d, cell in targets.items()
                if cell is not None and (d, name) in evaluation.cells
            ]
            return statistics.fmean(errors) if errors else 0.0

        nearest[column] = min(map(str, objectives), key=error)
    scored_on = scored_on or selected_on
    cells = {
        (d, column): evaluation.cells[d, name]
        for column, name in nearest.items()
        for d in scored_on
        if (d, name) in evaluation.cells
    }
    return Match(evaluation.setting, nearest, distance(cells, published, scored_on), cells)


def selections(names: Sequence[str]) -> dict[str, tuple[list[str], list[str]]]:
    """Return, for each selection, the data sets it selects on and those it is scored on.

    `all` selects and scores on all data sets; with three or more, every third of them (in the
    order of their names) is held out in turn.
    """
    result = {ALL: (list(names), list(names))}
    ordered = sorted(names)
    for i in range(PARTS if len(ordered) >= PARTS else 0):
        held_out = ordered[i::PARTS]
        result[f"part {i + 1}"] = ([n for n in ordered if n not in held_out], held_out)
    return result


@dataclass
class SearchResult:
    rounds: list[dict[str, int]]
    matches: list[Match]  # the settings of the last round, nearest first
    # for each part of the data sets, the setting selected on the other parts, with its distance on
    # this part
    held_out: list[tuple[list[str], Match]]
    networks: int


def round_trials(
    settings: Sequence[Setting], datasets: Sequence[TabularDataset], recipe: UciCvRecipe
) -> dict[CVTrial, Setting]:
    """Return the trials of a round; settings that differ in `VARIANT_KEYS` share their stacks.

    Stacks depend on the round's settings alone, not on the trials that remain after a kill.
    """
    objectives = [o for column in column_alternatives(recipe).values() for o in column]
    trials = {}
    for group in group_stackable([s.protocol for s in settings]):
        for dataset in datasets:
            size = max_variants(dataset, settings[group[0]].protocol)
            for first in range(0, len(group), size):
                stacked = [settings[i] for i in group[first : first + size]]
                batched_with = tuple(s.protocol for s in stacked) if len(stacked) > 1 else ()
                for objective in dict.fromkeys(objectives):
                    for seed in recipe.seeds:
                        for setting in stacked:
                            trial = CVTrial(
                                dataset, objective, setting.protocol, seed, None, batched_with
                            )
                            trials[trial] = setting
    return trials


class Part(NamedTuple):
    """The numbers of a round and of its part, and how many parts the round has."""

    round: int
    part: int
    parts: int


Train = Callable[[dict[CVTrial, Setting], Part], Mapping[CVTrial, CVResult]]


def halve(
    recipe: UciCvRecipe,
    datasets: Sequence[TabularDataset],
    published: Mapping[tuple[str, str], PublishedMean],
    train: Train,
) -> SearchResult:
    """Run all rounds, each in parts, and keep in memory only the nearest of millions of trials."""
    assert recipe.search is not None
    criterion = recipe.search.nearest_by
    grid = Grid(recipe.search, recipe.protocol)
    alternatives, splits = column_alternatives(recipe), selections([d.name for d in datasets])
    remaining, rounds, networks = grid.sample(), [], 0
    selected: dict[str, set[int]] | None = None  # setting numbers of each selection; None: all
    for number, stage in enumerate(recipe.search.rounds, 1):
        ranked: dict[str, list[tuple[Match, Evaluation]]] = {key: [] for key in splits}
        parts = split_round(grid, remaining, trials_per_setting(recipe, datasets))
        for i, part in enumerate(parts, 1):
            settings = [grid.setting(n).with_repeats(stage.repeats) for n in part.tolist()]
            trials = round_trials(settings, datasets, recipe)
            evaluations = evaluate(trials, train(trials, Part(number, i, len(parts))))
            networks += sum(trial.networks for trial in trials)
            for key, (selected_on, _) in splits.items():
                new = [e for n, e in evaluations.items() if selected is None or n in selected[key]]
                pairs = ranked[key] + [
                    (match(e, alternatives, published, selected_on), e) for e in new
                ]
                pairs.sort(key=lambda pair: pair[0].sort_key(criterion))
                ranked[key] = pairs[: max(stage.keep, MAX_LISTED)]
        rounds.append({"repeats": stage.repeats, "settings": len(remaining)})
        selected = {
            key: {m.setting.number for m, _ in pairs[: stage.keep]} for key, pairs in ranked.items()
        }
        remaining = np.array(sorted(set().union(*selected.values()))) - 1
    held_out = [
        (scored_on, match(ranked[key][0][1], alternatives, published, selected_on, scored_on))
        for key, (selected_on, scored_on) in splits.items()
        if key != ALL
    ]
    return SearchResult(rounds, [m for m, _ in ranked[ALL]], held_out, networks)


def trials_per_setting(recipe: UciCvRecipe, datasets: Sequence[TabularDataset]) -> int:
    objectives = {o for column in column_alternatives(recipe).values() for o in column}
    return len(datasets) * len(objectives) * len(recipe.seeds)


def split_round(grid: Grid, indices: IntArray, trials_each: int) -> list[IntArray]:
    """Split a round's settings into parts of about `TRIALS_PER_PART` trials, by whole stacks."""
    parts: list[list[IntArray]] = []
    room = 0
    for group in grid.stackable_groups(indices):
        if room <= 0:
            parts.append([])
            room = TRIALS_PER_PART
        parts[-1].append(group)
        room -= len(group) * trials_each
    return [np.concatenate(part) for part in parts]


def evaluate(
    trials: Mapping[CVTrial, Setting], records: Mapping[CVTrial, CVResult]
) -> dict[int, Evaluation]:
    """Return the cells of each setting, over all seeds."""
    accuracies: dict[int, dict[tuple[str, str], list[float]]] = {}
    settings: dict[int, Setting] = {}
    for trial, setting in trials.items():
        settings[setting.number] = setting
        cells = accuracies.setdefault(setting.number, {})
        values = cells.setdefault((trial.dataset.name, str(trial.objective)), [])
        values += [a for repeat in records[trial].accuracies for a in repeat]
    return {
        number: Evaluation(
            settings[number],
            {
                key: PublishedMean(statistics.fmean(a), statistics.stdev(a), len(a))
                for key, a in cells.items()
            },
        )
        for number, cells in accuracies.items()
    }
