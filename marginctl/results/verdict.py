"""Verdicts on published numbers: the runs that match a cell, and whether they reproduce it."""

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from marginctl.crossval.search_space import grid_settings
from marginctl.experiments.tasks import load_any_recipe
from marginctl.metrics.registry import lookup
from marginctl.papers import PublishedTable
from marginctl.papers.published import CellKey, PublishedValue, Quantity
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.recipe.load import find_recipe
from marginctl.recipe.transfer import TransferRecipe
from marginctl.recipe.uci_cv import UciCvRecipe
from marginctl.results.load_run import Run
from marginctl.results.statistics import mean_and_std, student_quantile
from marginctl.utils.text import format_setting

RESULT_FACTS = ("objective", "dataset", "source_model.row")  # facts that no recipe has
Settings = dict[str, Any]
Differences = Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Match:
    """The runs for one cell of a published table."""

    runs: tuple[Run, ...]  # one that diverged is among them and has no number
    numbers: tuple[float, ...]  # in the cell's unit, one for each fold or seed
    # where the runs do not train as a recipe of the table does: the settings that differ, each as
    # (ours, the recipe's). Empty if they are comparable.
    differences: Differences


@dataclass(frozen=True)
class _Candidate:
    """A run with its training settings, and the facts that selections are compared with."""

    run: Run
    training: Settings
    facts: Settings


def match_runs(table: PublishedTable, runs: Iterable[Run]) -> dict[CellKey, Match]:
    """Return the matching runs of each cell that has some.

    A run is comparable if it trains exactly as a shipped recipe of the table does, whatever recipe
    it was started with. Of several recipes the first in the table's order fills a cell: numbers of
    two protocols are never combined. If no run is comparable, those that were made for the cell
    stand for it, with the settings that differ: their recipe names the table, and they are on the
    cell's data with its network, which may be reduced.
    """
    methods = {_method(table.selections[key]) for key in table.cells}
    candidates: dict[tuple[str, str | None], list[_Candidate]] = {}
    settings: dict[int, tuple[Settings, Settings]] = {}  # by the identity of the shared recipe
    for run in runs:
        method = run.result.objective, getattr(run.result, "dataset", None)
        if method not in methods:
            continue
        if id(run.recipe) not in settings:
            recipe = run.recipe
            if isinstance(recipe, UciCvRecipe):  # its protocol is that of the run's setting
                recipe = recipe.model_copy(update={"grid": {}})
            settings[id(run.recipe)] = training_settings(recipe), facts(recipe)
        training, known = settings[id(run.recipe)]
        source_row = getattr(getattr(run.result, "source_model", None), "row", None)
        own_facts = known | dict(zip(RESULT_FACTS, (*method, source_row), strict=True))
        candidates.setdefault(method, []).append(_Candidate(run, training, own_facts))
    if not candidates:
        return {}
    targets = [
        (training_settings(recipe), facts(recipe))
        for name in table.recipes
        for recipe in expand_grid(load_any_recipe(find_recipe(name)))
    ]
    matches: dict[CellKey, Match] = {}
    for key, cell in table.cells.items():
        selection, quantity = table.selections[key], table.quantities[key]
        available = [
            candidate
            for candidate in candidates.get(_method(selection), [])
            if selection.get("source_model.row") in (None, candidate.facts["source_model.row"])
        ]
        if cell is not None and quantity.field is not None and available:
            match = _match_cell(table, selection, quantity, available, targets)
            if match is not None:
                matches[key] = match
    return matches


def _match_cell(
    table: PublishedTable,
    selection: Mapping[str, Any],
    quantity: Quantity,
    candidates: list[_Candidate],
    targets: list[tuple[Settings, Settings]],
) -> Match | None:
    required = {k: v for k, v in selection.items() if k not in RESULT_FACTS}
    trainings = [
        training
        for training, known in targets
        if all(known.get(k) == v for k, v in required.items())
    ]
    for training in trainings:
        comparable = [
            c for c in candidates if c.training == training and is_selected(selection, c.facts)
        ]
        if comparable:
            return _match(comparable, quantity, {})
    made_for_cell = [
        c
        for c in candidates
        if (c.run.recipe.paper, c.run.recipe.table) == (table.paper, table.number)
        and _is_reduced(required, c.facts)
    ]
    if not made_for_cell or not trainings:
        return None
    differences, _, nearest = min(
        (
            (_differences(candidate.training, training), i, candidate)
            for training in trainings
            for i, candidate in enumerate(made_for_cell)
        ),
        key=lambda entry: (len(entry[0]), entry[1]),
    )
    group = [c for c in made_for_cell if c.training == nearest.training]
    return _match(group, quantity, differences)


def filled_cells(table: PublishedTable, runs: Iterable[Run]) -> dict[CellKey, list[float]]:
    """Return the numbers of the comparable runs of each cell that has some."""
    return {
        key: list(match.numbers)
        for key, match in match_runs(table, runs).items()
        if match.numbers and not match.differences
    }


def _method(selection: Mapping[str, Any]) -> tuple[str, str | None]:
    dataset = selection.get("dataset")
    return str(selection.get("objective")), None if dataset is None else str(dataset)


def _is_reduced(required: Mapping[str, Any], known: Settings) -> bool:
    """Whether a run fits a selection except for the options of its network."""
    return all(
        known.get(key) == value
        or (key == "model" and str(known.get(key)).split(":")[0] == str(value).split(":")[0])
        for key, value in required.items()
    )


def _match(group: list[_Candidate], quantity: Quantity, differences: Differences) -> Match:
    numbers = [
        quantity.convert(number)
        for candidate in group
        for number in numbers_at(candidate.run.result, quantity.field)
    ]
    return Match(tuple(c.run for c in group), tuple(numbers), differences)


def _differences(ours: Settings, theirs: Settings) -> dict[str, tuple[Any, Any]]:
    a, b = _dotted(ours), _dotted(theirs)
    keys = dict.fromkeys([*b, *a])
    return {key: (a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)}


def _dotted(settings: Settings) -> Settings:
    flat: Settings = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": v for inner, v in value.items()}
        else:
            flat[key] = value
    return flat


def expand_grid(recipe: UciCvRecipe | ImageRecipe) -> list[UciCvRecipe | ImageRecipe]:
    """Return a recipe without a grid for each setting of a recipe's grid."""
    if isinstance(recipe, ImageRecipe):
        return [expanded for _, expanded in recipe.settings()]
    return [
        recipe.model_copy(update={"protocol": setting.protocol, "grid": {}})
        for setting in grid_settings(recipe)
    ]


def training_settings(recipe: UciCvRecipe | ImageRecipe) -> Settings:
    """Return the settings of a recipe without a grid that comparable runs have in common."""
    if isinstance(recipe, UciCvRecipe):
        return recipe.model_dump(include={"protocol", "tune"})
    sections = {"data", "model", "optim", "train", "second_stage", "blocks", "method", "probe"}
    settings = recipe.model_dump(include=sections)
    settings["train"].pop("compile")  # changes the speed, not the result
    if isinstance(recipe, TransferRecipe):
        unused = ("optim", "train", "blocks") if recipe.method == "probe" else ("probe",)
        return {key: value for key, value in settings.items() if key not in unused}
    return settings


def facts(recipe: UciCvRecipe | ImageRecipe) -> Settings:
    """Return what a selection is compared with: dotted key -> value; `recipe` has no grid."""
    return _dotted(recipe.model_dump(exclude={"about", "objectives", "seeds"}))


def is_selected(selection: Mapping[str, Any], known: Settings) -> bool:
    """Whether a selection selects a run with these facts. An empty one selects nothing."""
    return bool(selection) and all(k in known and known[k] == v for k, v in selection.items())


def numbers_at(result: Any, field: str | None) -> list[float]:
    """Return the numbers at a dotted path of a result, flattened; none if there is no such path."""
    return list(_flatten(lookup(result, *(field or "").split("."))))


def _flatten(value: Any) -> Iterable[float]:
    if isinstance(value, list):
        for item in value:
            yield from _flatten(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


class Verdict(enum.StrEnum):
    """What our number says about a published one; delta is the equivalence margin of its table.

    reproduced: the 95 % interval of the difference lies within +-delta.
    inconclusive: it does not, and contains 0; or there is no interval.
    differs: it does not, and does not contain 0.
    not_comparable: our runs train differently, or on less data.
    missing: there is no finished run.
    not_available: the paper's text available to us does not give the number.
    """

    reproduced = "reproduced"
    inconclusive = "inconclusive"
    differs = "differs"
    not_comparable = "not comparable"
    missing = "missing"
    not_available = "not available"


@dataclass(frozen=True)
class CellVerdict:
    row: str
    column: str
    published: PublishedValue | None
    quantity: Quantity
    runs: tuple[Run, ...]
    # of our numbers, in the cell's unit; std with ddof 1, None for n = 1
    mean: float | None
    std: float | None
    n: int
    difference: float | None  # ours minus the published number
    # its 95 % interval, None if there is none
    low: float | None
    high: float | None
    verdict: Verdict
    reason: str | None  # a remark on the interval or the verdict
    differences: Differences  # settings in which our runs differ, as (ours, the table's)
    best: bool = False  # whether no comparable cell is better by the decimals shown; ties share it


@dataclass(frozen=True)
class TableVerdicts:
    table: PublishedTable
    cells: Mapping[CellKey, CellVerdict]

    @property
    def shown(self) -> bool:
        """Whether there are runs for some cell."""
        return any(cell.runs for cell in self.cells.values())

    def counts(self) -> dict[Verdict, int]:
        """Return how many cells have each verdict, in the order of the verdicts, without zeros."""
        verdicts = [cell.verdict for cell in self.cells.values()]
        return {verdict: verdicts.count(verdict) for verdict in Verdict if verdict in verdicts}


def judge_table(table: PublishedTable, runs: Iterable[Run]) -> TableVerdicts:
    matches = match_runs(table, runs)
    cells = {
        key: _cell_verdict(key, value, table.quantities[key], matches.get(key))
        for key, value in table.cells.items()
    }
    return TableVerdicts(table, _mark_best(table, cells))


def interval(
    mean: float, std: float | None, n: int, published: PublishedValue
) -> tuple[float | None, float | None, str | None]:
    """Return the 95 % interval of ours minus the published number, and a remark on it.

    Welch's interval, with the published standard deviation if there is one. Approximate for
    cross-validation, whose fold accuracies are correlated.

    Returns:
        Low, high and a remark; (None, None, reason) if the spread is unknown.
    """
    difference = mean - published.mean
    if std == 0 and not published.std:
        return None, None, f"no spread over n = {n}: no interval"
    theirs, their_n, remark = published.std, published.n or 1, None
    if theirs is None:
        remark = "the paper gives no spread: its number is taken as exact"
    elif published.n is None:
        remark = "the paper gives no n: its standard deviation is taken as of one number"
    if std is None and theirs is not None and their_n > 1:
        remark, df = "n = 1: the paper's standard deviation is taken for ours", their_n - 1.0
        error = theirs * math.sqrt(1 / n + 1 / their_n)
    elif std is None:
        return None, None, "n = 1: no interval"
    else:
        mine, other = std**2 / n, (theirs or 0.0) ** 2 / their_n
        error = math.sqrt(mine + other)
        parts = mine**2 / (n - 1) + (other**2 / (their_n - 1) if their_n > 1 else 0.0)
        df = (mine + other) ** 2 / parts if parts else n - 1
    half = student_quantile(df, 0.975) * error
    return difference - half, difference + half, remark


def _cell_verdict(
    key: CellKey, value: PublishedValue | None, quantity: Quantity, match: Match | None
) -> CellVerdict:
    numbers = match.numbers if match else ()
    n, (mean, std) = len(numbers), mean_and_std(numbers)
    runs, differing = (match.runs, match.differences) if match else ((), {})
    low = high = difference = reason = None
    if value is None:
        verdict = Verdict.not_available
    elif mean is None:
        diverged = any(run.result.diverged for run in runs)
        verdict, reason = Verdict.missing, "diverged" if diverged else None
    else:
        difference = mean - value.mean
        low, high, reason = interval(mean, std, n, value)
        verdict = _verdict(low, high, quantity.delta)
        if differing:
            verdict = Verdict.not_comparable
            reason = "; ".join(
                f"{key} = {format_setting(ours)}, not {format_setting(theirs)}"
                for key, (ours, theirs) in differing.items()
            )
        elif quantity.delta is None:
            reason = "; ".join(filter(None, [reason, "no delta: nothing counts as reproduced"]))
    return CellVerdict(
        *key, value, quantity, runs, mean, std, n, difference, low, high, verdict, reason, differing
    )


def _verdict(low: float | None, high: float | None, delta: float | None) -> Verdict:
    if low is None or high is None:
        return Verdict.inconclusive
    if delta is not None and -delta <= low and high <= delta:
        return Verdict.reproduced
    return Verdict.inconclusive if low <= 0 <= high else Verdict.differs


def _mark_best(
    table: PublishedTable, cells: Mapping[CellKey, CellVerdict]
) -> dict[CellKey, CellVerdict]:
    """Mark the best of the cells that have the same quantity and differ only in the objective."""
    groups: dict[Any, list[CellKey]] = {}
    for key, cell in cells.items():
        ranked = cell.quantity.direction != "none" and not cell.differences
        if cell.mean is not None and ranked:
            others = {k: v for k, v in table.selections[key].items() if k != "objective"}
            group = (tuple(sorted(others.items(), key=str)), cell.quantity)
            groups.setdefault(group, []).append(key)
    best: set[CellKey] = set()
    for (_, quantity), keys in groups.items():
        rounded = {key: round(cells[key].mean or 0.0, quantity.decimals) for key in keys}
        optimum = (max if quantity.direction == "higher" else min)(rounded.values())
        best |= {key for key, number in rounded.items() if number == optimum and len(keys) > 1}
    return {key: replace(cell, best=key in best) for key, cell in cells.items()}
