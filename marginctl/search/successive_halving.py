"""Successive halving over repeats, and a selection whose score it has not seen.

Each round trains every surviving setting at its number of repeats, and keeps the nearest to the
published table. To choose on some data sets and be scored on others, a selection must not have
looked at the others in any round: so each selection (on all data sets, and on two thirds of them,
in turn) keeps its own survivors, and a round trains them all.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from marginctl.crossval.search_space import Grid, IntArray, Setting, variants_of
from marginctl.crossval.stack import companies, lanes_at_once
from marginctl.data.tabular.dataset import TabularDataset
from marginctl.experiments.uci_cv_trial import Trial
from marginctl.objectives.parsing import parse
from marginctl.papers import PublishedMean
from marginctl.recipe import Recipe
from marginctl.search.distance import Distance, distance

Cells = dict[tuple[str, str], PublishedMean]
THIRDS = 3  # parts of the data sets: chosen on two, scored on the other
ALL = "all"
TRIALS = 10_000  # of a part of a round: small enough for memory, large enough to fill workers
LISTED = 1000  # settings of the last round that are shown


@dataclass
class Tried:
    """A setting with the cells that it has so far, of every variant of every column."""

    setting: Setting
    cells: Cells = field(default_factory=dict)
    missing: int = 0


@dataclass(frozen=True)
class Match:
    """A setting beside the published table."""

    setting: Setting
    objectives: Mapping[str, str]  # column -> the variant that is nearest
    distance: Distance
    cells: Cells  # of the columns, in these variants

    def away(self, by: str) -> tuple[float, int]:
        """The distance that a search sorts by, and the setting's number for a tie."""
        of = {
            "points": self.distance.mean_absolute,
            "effects": self.distance.effects_mean_absolute,
            "stds": self.distance.std_mean_absolute,
        }
        return of[by], self.setting.number

    def as_json(self) -> dict[str, Any]:
        return {
            "setting": self.setting.number,
            "protocol": self.setting.changed,
            "repeats": self.setting.protocol.repeats,
            "objectives": dict(self.objectives),
            "distance": self.distance.as_json(),
        }


def match(
    tried: Tried,
    variants: Mapping[str, Sequence[str]],
    published: Mapping[tuple[str, str], PublishedMean],
    chosen_on: Sequence[str],
    scored_on: Sequence[str] | None = None,
) -> Match:
    """The distance of a setting, each column in its nearest variant.

    Args:
        chosen_on: the data sets on which the variants are chosen.
        scored_on: the data sets of the distance; None for the same.
    """
    nearest: dict[str, str] = {}
    for column, names in variants.items():
        of_paper = {d: published.get((d, column)) for d in chosen_on}

        def away(name: str, of_paper: dict[str, PublishedMean | None] = of_paper) -> float:
            found = [
                abs(tried.cells[d, name].mean - cell.mean)
                for d, cell in of_paper.items()
                if cell is not None and (d, name) in tried.cells
            ]
            return statistics.fmean(found) if found else 0.0

        nearest[column] = min(names, key=away)
    ours = {
        (d, column): tried.cells[d, name]
        for column, name in nearest.items()
        for d in scored_on or chosen_on
        if (d, name) in tried.cells
    }
    return Match(tried.setting, nearest, distance(ours, published, scored_on or chosen_on), ours)


def selections(names: Sequence[str]) -> dict[str, tuple[list[str], list[str]]]:
    """Each selection's data sets: those it chooses on, and those it is scored on.

    `all` chooses on all and is scored on all; with three data sets or more, every third of them
    (in the order of their names) is held out in turn.
    """
    found = {ALL: (list(names), list(names))}
    ordered = sorted(names)
    for i in range(THIRDS if len(ordered) >= THIRDS else 0):
        held = ordered[i::THIRDS]
        found[f"part {i + 1}"] = ([n for n in ordered if n not in held], held)
    return found


@dataclass
class SearchResult:
    """What the last round leaves.

    Attributes:
        matches: the settings of the last round, nearest first.
        held_out: of each part of the data sets, what the selection on the others chose, with its
            distance there.
        trained: networks, the reused ones included.
    """

    rounds: list[dict[str, int]]
    matches: list[Match]
    held_out: list[tuple[list[str], Match]]
    trained: int


def trials_of(
    settings: Sequence[Setting], datasets: Sequence[TabularDataset], recipe: Recipe
) -> dict[Trial, Setting]:
    """The trials of a round; settings that differ in rates and decay train side by side.

    The settings of the round alone say which those are, not what is left of it after a kill.
    """
    names = [name for column in variants_of(recipe).values() for name in column]
    trials = {}
    for together in companies([s.protocol for s in settings]):
        for dataset in datasets:
            size = lanes_at_once(dataset, settings[together[0]].protocol)
            for first in range(0, len(together), size):
                side_by_side = [settings[i] for i in together[first : first + size]]
                beside = tuple(s.protocol for s in side_by_side) if len(side_by_side) > 1 else ()
                for name in dict.fromkeys(names):
                    for seed in recipe.seeds:
                        for setting in side_by_side:
                            made = Trial(dataset, parse(name), setting.protocol, seed, None, beside)
                            trials[made] = setting
    return trials


class Part(NamedTuple):
    """A part of a round: its number and how many there are, both of the round and of the part."""

    round: int
    part: int
    parts: int


Train = Callable[[dict[Trial, Setting], Part], Mapping[Trial, Mapping[str, Any]]]


def run(
    recipe: Recipe,
    datasets: Sequence[TabularDataset],
    published: Mapping[tuple[str, str], PublishedMean],
    train: Train,
) -> SearchResult:
    """Runs all rounds, each in parts: of millions of trials the nearest alone are kept in memory.

    Args:
        train: gives the records of a part's trials.

    Raises:
        RequestError: more settings than can be tried.
    """
    assert recipe.search is not None
    by = recipe.search.nearest_by
    grid = Grid(recipe.search, recipe.protocol)
    variants, names = variants_of(recipe), [d.name for d in datasets]
    alive, rounds, trained = grid.drawn(), [], 0
    chosen: dict[str, set[int]] | None = None  # of each selection; None: all
    for number, stage in enumerate(recipe.search.rounds, 1):
        ranked: dict[str, list[tuple[Match, Tried]]] = {key: [] for key in selections(names)}
        cut = parts_of(grid, alive, a_setting(recipe, datasets))
        for i, part in enumerate(cut, 1):
            settings = [grid.setting(n).repeated(stage.repeats) for n in part.tolist()]
            trials = trials_of(settings, datasets, recipe)
            tried = gather(trials, train(trials, Part(number, i, len(cut))))
            trained += sum(trial.networks for trial in trials)
            for key, (on, _) in selections(names).items():
                own = [t for n, t in tried.items() if chosen is None or n in chosen[key]]
                found = ranked[key] + [(match(t, variants, published, on), t) for t in own]
                found.sort(key=lambda pair: pair[0].away(by))
                ranked[key] = found[: max(stage.keep, LISTED)]
        rounds.append({"repeats": stage.repeats, "settings": len(alive)})
        chosen = {
            key: {m.setting.number for m, _ in found[: stage.keep]} for key, found in ranked.items()
        }
        alive = np.array(sorted(set().union(*chosen.values()))) - 1
    held_out = []
    for key, (on, held) in selections(names).items():
        if key != ALL:
            held_out.append((held, match(ranked[key][0][1], variants, published, on, held)))
    return SearchResult(rounds, [m for m, _ in ranked[ALL]], held_out, trained)


def a_setting(recipe: Recipe, datasets: Sequence[TabularDataset]) -> int:
    """The trials of one setting."""
    names = {name for column in variants_of(recipe).values() for name in column}
    return len(datasets) * len(names) * len(recipe.seeds)


def parts_of(grid: Grid, numbers: IntArray, trials: int) -> list[IntArray]:
    """Cuts a round into parts of about `TRIALS` trials; who trains side by side stays together.

    Args:
        trials: of one setting.
    """
    parts: list[list[IntArray]] = []
    room = 0
    for company in grid.companies(numbers):
        if room <= 0:
            parts.append([])
            room = TRIALS
        parts[-1].append(company)
        room -= len(company) * trials
    return [np.concatenate(part) for part in parts]


def gather(
    trials: Mapping[Trial, Setting], records: Mapping[Trial, Mapping[str, Any]]
) -> dict[int, Tried]:
    """The cells of each setting, seeds together."""
    accuracies: dict[int, dict[tuple[str, str], list[float]]] = {}
    settings: dict[int, Setting] = {}
    for trial, setting in trials.items():
        settings[setting.number] = setting
        of_setting = accuracies.setdefault(setting.number, {})
        of_cell = of_setting.setdefault((trial.dataset.name, str(trial.objective)), [])
        of_cell += [a for repeat in records[trial]["accuracies"] for a in repeat]
    return {
        number: Tried(
            settings[number],
            {
                place: PublishedMean(statistics.fmean(a), statistics.stdev(a), len(a))
                for place, a in cells.items()
            },
        )
        for number, cells in accuracies.items()
    }
