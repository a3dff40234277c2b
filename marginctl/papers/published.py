"""Published tables and claims as frozen data, read from the YAML file of a paper."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from marginctl.models.registry import canonical_model
from marginctl.objectives.parsing import parse
from marginctl.papers.schema import (
    CELL,
    NOT_AVAILABLE,
    NOT_PRINTED,
    Direction,
    Line,
    MeasureOf,
    Metric,
    PaperFile,
    Scalar,
    TableFile,
    Unit,
    Where,
)
from marginctl.utils import yaml

Place = tuple[str, str]  # the labels of a row and a column
_OPTION = "objective."  # a key such as objective.strength sets an option of the objective


@dataclass(frozen=True)
class Value:
    """A published number in the unit of its cell.

    Attributes:
        mean: the number; where the paper averages, the average.
        std: the printed standard deviation, None where there is none.
        n: how many repeats are behind them, None where the paper does not say.
    """

    mean: float
    std: float | None
    n: int | None


@dataclass(frozen=True)
class Published(Value):
    """A published number with its spread and its n, so that another mean can be tested with it."""

    std: float
    n: int


@dataclass(frozen=True)
class Measure:
    """What a cell measures.

    Attributes:
        metric: what is measured. `error` is 100 less the accuracy that `field` names.
        unit: of the number. Records hold angles in degrees.
        direction: which way is better.
        delta: the half-width, in that unit, within which another number counts as reproduced. It
            is our choice; None where we make none.
        field: the dotted path, in a result record, of what fills the cell.
    """

    metric: Metric
    unit: Unit
    direction: Direction
    delta: float | None
    field: str | None

    @property
    def places(self) -> int:
        """How many decimal places its numbers are shown with."""
        return 4 if self.metric == "average precision" else 2

    def of(self, recorded: float) -> float:
        """The cell's number from what a record holds at `field`."""
        if self.metric == "error":
            return 100 - recorded
        return math.radians(recorded) if self.unit == "rad" else recorded


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper.

    Attributes:
        paper, number: where it stands; the number as printed, with its part where it has parts.
        caption: what it holds, in our words.
        base: what its cells measure, where their row or column says nothing else.
        n: repeats behind each number, None where the paper does not say.
        recipes: the shipped recipes whose runs fill it, the one to prefer first.
        rows, columns: their labels, in order.
        cells: the numbers by their labels; None where the cell is not available. A cell that the
            paper itself leaves empty is not there.
        settings: the same of a table that holds settings: text as printed.
        absent: why no number of the table is available to us, else None.
    """

    paper: str
    number: str
    caption: str
    base: Measure
    n: int | None
    recipes: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[Place, Value | None]
    settings: Mapping[Place, str]
    absent: str | None
    _where: Mapping[Place, Where]
    _measures: Mapping[Place, Measure]

    def where(self, row: str, column: str) -> Where:
        """What selects the runs of a cell: dotted key of the recipe -> value, canonical.

        `objective` and `dataset` are those of the result record.

        Raises:
            KeyError: no such row or column.
        """
        return dict(self._where[row, column])

    def measure(self, row: str, column: str) -> Measure:
        """What a cell measures.

        Raises:
            KeyError: no such row or column.
        """
        return self._measures[row, column]

    @property
    def available(self) -> int:
        """Return how many cells have a number."""
        return len(self.settings) + sum(cell is not None for cell in self.cells.values())

    @property
    def not_available(self) -> int:
        """Return how many cells have no number available to us."""
        return sum(cell is None for cell in self.cells.values())


@dataclass(frozen=True)
class Claim:
    """What a paper says without a table of numbers.

    Attributes:
        id: our name for it.
        statement: in our words.
        recipes: the shipped recipes whose runs decide it; none yet, where empty.
        test: the test that decides it, None where a run has to.
    """

    id: str
    statement: str
    recipes: tuple[str, ...]
    test: str | None


@dataclass(frozen=True)
class Paper:
    """A paper: its tables by their numbers, and its claims."""

    name: str
    title: str
    source: str
    tables: Mapping[str, PublishedTable]
    claims: tuple[Claim, ...]


def read(path: Path) -> Paper:
    """The paper of a YAML file, named by its stem.

    Raises:
        RequestError: it is not YAML, or names an objective or a model that there is not.
        pydantic.ValidationError: it does not fit the schema; all that is wrong, together.
    """
    file = PaperFile.model_validate(yaml.read(path)[0])
    name = path.stem
    return Paper(
        name,
        file.title,
        file.source,
        {number: _table(name, number, table) for number, table in file.tables.items()},
        tuple(Claim(c.id, c.statement, tuple(c.recipe or ()), c.test) for c in file.claims),
    )


def _table(paper: str, number: str, file: TableFile) -> PublishedTable:
    base = Measure(file.metric, file.unit, file.direction, file.delta, file.field)
    cells: dict[Place, Value | None] = {}
    settings: dict[Place, str] = {}
    where: dict[Place, Where] = {}
    measures: dict[Place, Measure] = {}
    for row in file.rows:
        for column, text in zip(file.columns, row.cells, strict=True):
            place = (row.label, column.label)
            where[place] = _selection(file, row, column)
            measures[place] = _changed(_changed(base, column.measure), row.measure)
            if file.metric == "setting":
                settings[place] = text
            elif text != NOT_PRINTED:
                cells[place] = None if text == NOT_AVAILABLE else _value(text, file.n)
    return PublishedTable(
        paper=paper,
        number=number,
        caption=file.caption,
        base=base,
        n=file.n,
        recipes=tuple(file.recipe or ()),
        rows=tuple(row.label for row in file.rows),
        columns=tuple(column.label for column in file.columns),
        cells=cells,
        settings=settings,
        absent=file.absent,
        _where=where,
        _measures=measures,
    )


def _changed(measure: Measure, own: MeasureOf) -> Measure:
    return replace(measure, **own.model_dump(exclude_unset=True))


def _value(text: str, n: int | None) -> Value:
    """The number of a cell that fits `CELL`."""
    found = CELL.fullmatch(text)
    assert found is not None
    mean = float(found["mean"])
    if found["std"] is None:
        return Value(mean, None, n)
    std = float(found["std"])
    return Value(mean, std, None) if n is None else Published(mean, std, n)


def _selection(file: TableFile, row: Line, column: Line) -> Where:
    """The union of what table, row and column say, with canonical names."""
    union: Where = {**file.where, **row.where, **column.where}
    options = {k.removeprefix(_OPTION): v for k, v in union.items() if k.startswith(_OPTION)}
    selection = {k: v for k, v in union.items() if not k.startswith(_OPTION)}
    if "objective" in selection:
        selection["objective"] = _objective(str(selection["objective"]), options)
    if "model" in selection:
        selection["model"] = canonical_model(str(selection["model"]))
    return selection


def _objective(name: str, options: Mapping[str, Scalar]) -> str:
    given = ",".join(f"{key}={value}" for key, value in options.items())
    joined = (("," if ":" in name else ":") + given) if given else ""
    return str(parse(name + joined))
