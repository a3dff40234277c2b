"""Matching runs with the cells of a published table."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marginctl.crossval.search_space import grid_settings
from marginctl.experiments.tasks import load_any_recipe
from marginctl.metrics.registry import lookup
from marginctl.papers import PublishedTable
from marginctl.papers.published import CellKey, Quantity
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.recipe.load import find_recipe
from marginctl.recipe.transfer import TransferRecipe
from marginctl.recipe.uci_cv import UciCvRecipe
from marginctl.results.load_run import Run

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
        for number in leaves(lookup(candidate.run.result, *(quantity.field or "").split(".")))
        if isinstance(number, int | float) and not isinstance(number, bool)
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


def leaves(value: Any) -> Iterator[Any]:
    """Yield the items of nested lists; a value that is no list is its own item."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value
