"""Which cells of a published table our runs fill, and with what numbers."""

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from marginctl.crossval.search_space import grid_settings
from marginctl.errors import RequestError
from marginctl.experiments.tasks import TASKS, load_any_recipe
from marginctl.papers import PublishedTable
from marginctl.papers.published import CellKey, Quantity
from marginctl.recipe import ImageRecipe, TransferRecipe, UciCvRecipe, find_recipe
from marginctl.results.collect import Collected, Run

Facts = dict[str, Any]


@dataclass(frozen=True)
class Filling:
    """What our runs have for one cell of a published table.

    Attributes:
        runs: those behind it, in their order; a diverged one is among them and has no number.
        numbers: in the cell's unit, one for each fold or seed.
        differing: where the runs do not train as a recipe of the table does: the settings that
            differ, each as (ours, the recipe's). Empty where they are comparable.
    """

    runs: tuple[Run, ...]
    numbers: tuple[float, ...]
    differing: Mapping[str, tuple[Any, Any]]


def fillings(table: PublishedTable, runs: Iterable[Run]) -> dict[CellKey, Filling]:
    """Our numbers for each cell of a table that has some.

    A run is comparable where it trains exactly as a shipped recipe of the table does, by whatever
    recipe it was started. Of several recipes the first in the table's order fills a cell: numbers
    of two protocols are never put together. Where no run is comparable, those that were made for
    the cell stand for it with the settings that differ: their recipe names the table, and they are
    on the cell's data and with its network, perhaps a reduced one.

    Args:
        table: from `published_table`.
        runs: finished runs, from `collect`; what one of them repeats, `collect` has left out.
    """
    wheres = [table.selections[place] for place in table.cells]
    asked = {(str(where.get("objective")), _dataset_of(where)) for where in wheres}
    by_objective: dict[tuple[str, str | None], list[Known]] = {}
    read: dict[int, tuple[Facts, Facts, tuple[str | None, str | None]] | None] = {}
    runs = list(runs)  # alive throughout, and so are their recipes
    for run in runs:
        method = run.record["objective"], run.record.get("dataset")
        if method not in asked:  # of many runs a table asks for few
            continue
        same = id(run.about["recipe"])  # one object for all the runs of a recipe, from `collect`
        if same not in read:
            read[same] = _known(run)
        found = read[same]
        if found is not None:
            way, facts, of_table = found
            own = {"objective": method[0], "dataset": method[1]}
            by_objective.setdefault(method, []).append(Known(run, way, facts | own, of_table))
    if not by_objective:
        return {}
    ways = [
        (way_of(made), facts_of(made, "", ""))
        for name in table.recipes
        for made in variants(load_any_recipe(find_recipe(name)))
    ]
    cells: dict[CellKey, Filling] = {}
    for place, cell in table.cells.items():
        where, quantity = table.selections[place], table.quantities[place]
        objective = str(where.get("objective"))
        candidates = by_objective.get((objective, _dataset_of(where)), [])
        if cell is None or quantity.field is None or not candidates:
            continue
        asks = {k: v for k, v in where.items() if k not in ("objective", "dataset")}
        targets = [way for way, facts in ways if all(facts.get(k) == v for k, v in asks.items())]
        for way in targets:
            group = [k for k in candidates if k.way == way and matches(where, k.facts)]
            if group:
                cells[place] = _filling(group, quantity, {})
                break
        else:
            named = (table.paper, table.number)
            made_for = [k for k in candidates if k.table == named and _is_reduced(asks, k.facts)]
            if made_for and targets:
                cells[place] = _nearest(made_for, targets, quantity)
    return cells


def filled(table: PublishedTable, runs: Iterable[Run]) -> dict[CellKey, list[float]]:
    """The numbers of comparable runs for each cell of a table that has some, as `fillings`."""
    return {
        place: list(found.numbers)
        for place, found in fillings(table, runs).items()
        if found.numbers and not found.differing
    }


def _is_reduced(asks: Mapping[str, Any], facts: Facts) -> bool:
    """Whether a run has all that a cell asks for, but for the options of its network."""

    def kind(model: Any) -> str:
        return str(model).partition(":")[0]

    return all(
        facts.get(key) == value or (key == "model" and kind(facts.get(key)) == kind(value))
        for key, value in asks.items()
    )


@dataclass(frozen=True)
class Known:
    """A run whose recipe this version reads."""

    run: Run
    way: Facts
    facts: Facts
    table: tuple[str | None, str | None]


def _filling(
    group: list[Known], quantity: Quantity, differing: Mapping[str, tuple[Any, Any]]
) -> Filling:
    numbers = [
        quantity.convert(number)
        for known in group
        for number in numbers_at(known.run.record, quantity.field)
    ]
    return Filling(tuple(known.run for known in group), tuple(numbers), differing)


def _nearest(made_for: list[Known], targets: list[Facts], quantity: Quantity) -> Filling:
    """Of ways that differ from the table's, the one with the fewest differences."""
    ranked = sorted(
        ((_differing(k.way, way), i, k) for way in targets for i, k in enumerate(made_for)),
        key=lambda entry: (len(entry[0]), entry[1]),
    )
    differing, _, first = ranked[0]
    return _filling([k for k in made_for if k.way == first.way], quantity, differing)


def _differing(ours: Facts, theirs: Facts) -> dict[str, tuple[Any, Any]]:
    a, b = _dotted(ours), _dotted(theirs)
    keys = dict.fromkeys([*b, *a])
    return {key: (a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)}


def _dotted(way: Facts) -> Facts:
    flat: Facts = {}
    for key, value in way.items():
        inner = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else None
        flat |= {key: value} if inner is None else inner
    return flat


def runs_of(collected: Collected) -> list[Run]:
    """All finished runs of stores, as `filled` takes them."""
    tested = [run for made in collected.tables for run in made.runs.values()]
    return tested + [run for made in collected.trained for run in made.runs.values()]


def variants(recipe: UciCvRecipe | ImageRecipe) -> list[UciCvRecipe | ImageRecipe]:
    """A recipe for each setting of its grid, without the grid."""
    if isinstance(recipe, ImageRecipe):
        return [made for _, made in recipe.settings()]
    return [
        recipe.model_copy(update={"protocol": setting.protocol, "grid": {}})
        for setting in grid_settings(recipe)
    ]


def way_of(recipe: UciCvRecipe | ImageRecipe) -> Facts:
    """How a recipe without a grid trains: all that two comparable runs have in common."""
    if isinstance(recipe, ImageRecipe):
        way = recipe.model_dump(
            include={"data", "model", "optim", "train", "second_stage", "blocks", "method", "probe"}
        )
        way["train"].pop("compile")  # changes how fast it is, not what is computed
        if isinstance(recipe, TransferRecipe):
            # what one method does not look at
            others = ("optim", "train", "blocks") if recipe.method == "probe" else ("probe",)
            return {key: value for key, value in way.items() if key not in others}
        return way
    return recipe.model_dump(include={"protocol", "tuning"})


def facts_of(
    recipe: UciCvRecipe | ImageRecipe, objective: str, dataset: str | None = None
) -> Facts:
    """What a `where` is compared with: dotted key -> value.

    Args:
        recipe: without a grid.
        objective: canonical.
        dataset: of a cross-validation.
    """
    facts: Facts = {"objective": objective, "dataset": dataset}
    for key, value in recipe.model_dump(exclude={"about", "objectives", "seeds"}).items():
        if isinstance(value, dict):
            facts |= {f"{key}.{inner}": setting for inner, setting in value.items()}
        else:
            facts[key] = value
    return facts


def matches(where: Mapping[str, Any], facts: Facts) -> bool:
    """Whether a run is one that a `where` selects. An empty one selects nothing."""
    return bool(where) and all(k in facts and facts[k] == v for k, v in where.items())


def numbers_at(record: Mapping[str, Any], field: str | None) -> list[float]:
    """The numbers at a dotted path of a record, lists in lists made flat; none where it ends."""
    value: Any = record
    for key in (field or "").split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return list(_flat(value))


def _flat(value: Any) -> Iterable[float]:
    if isinstance(value, list):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _dataset_of(where: Mapping[str, Any]) -> str | None:
    dataset = where.get("dataset")
    return None if dataset is None else str(dataset)


def _known(run: Run) -> tuple[Facts, Facts, tuple[str | None, str | None]] | None:
    """Way, facts and table of a run's recipe; None where it is none of today's."""
    recipe = run.about["recipe"]
    made_by = json.dumps({k: v for k, v in recipe.items() if k != "name"}, sort_keys=True)
    return _resolved(made_by, run.task)


@functools.lru_cache(maxsize=1024)
def _resolved(written: str, task: str) -> tuple[Facts, Facts, tuple[str | None, str | None]] | None:
    """Way, facts and table of a recipe of run.json, new keys at their defaults.

    None where it is none of today's. Of many runs of one recipe each is the same text: read once.
    """
    own = json.loads(written)
    schema = TASKS[task].load_schema()
    if schema is UciCvRecipe:
        own["grid"] = {}  # run.json holds the protocol of the setting, and the grid of all
    try:
        recipe = schema.model_validate(own)
    except (ValidationError, RequestError):
        return None
    return way_of(recipe), facts_of(recipe, ""), (recipe.paper, recipe.table)
