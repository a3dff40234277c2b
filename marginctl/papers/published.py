"""The published tables and claims of a paper, and the schema of the published.yaml that holds them.

The head of recipes/arcgrad/published.yaml explains the keys of such a file.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from marginctl.errors import RequestError
from marginctl.models.registry import ModelSpec
from marginctl.objectives.parsing import parse
from marginctl.recipe.fields import first_error_line
from marginctl.utils import yaml

NOT_AVAILABLE = "not available"  # the paper has a number here, but its text available to us has not
NOT_PRINTED = "-"  # the paper itself has no number here

Metric = Literal[
    "accuracy", "error", "angle", "time", "average precision", "scale", "count", "setting"
]
Unit = Literal["percent", "rad", "ms", "none"]
Direction = Literal["higher", "lower", "none"]
Scalar = str | int | float | bool
Selection = dict[str, Scalar]  # dotted key of a recipe -> value
CellKey = tuple[str, str]  # the labels of a row and a column

_NUMBER = r"\d+(?:\.\d+)?"
_CELL = re.compile(rf"(?P<mean>{_NUMBER})(?:\s*±\s*(?P<std>{_NUMBER}))?")
_OPTION = "objective."  # a key such as objective.strength sets an option of the objective


@dataclass(frozen=True)
class PublishedValue:
    """A published number in the unit of its cell.

    `std` is the printed standard deviation, None if there is none; `n` the number of repeats, None
    if the paper does not give it.
    """

    mean: float
    std: float | None
    n: int | None


@dataclass(frozen=True)
class PublishedMean(PublishedValue):
    """A published mean with its standard deviation and n."""

    std: float
    n: int


@dataclass(frozen=True)
class Quantity:
    """What a cell holds, and which number of a run fills it."""

    metric: Metric  # `error` is 100 minus the accuracy at `field`
    unit: Unit  # of the number. Runs record angles in degrees.
    direction: Direction
    # the equivalence margin in that unit: half the width of the range in which another number
    # counts as reproduced. It is our choice; None where we make none.
    delta: float | None
    field: str | None  # the dotted path in result.json of the number that fills the cell

    @property
    def decimals(self) -> int:
        """Return the number of decimal places to show."""
        return 4 if self.metric == "average precision" else 2

    def convert(self, recorded: float) -> float:
        """Return the cell's number for the number that a run recorded at `field`."""
        if self.metric == "error":
            return 100 - recorded
        return math.radians(recorded) if self.unit == "rad" else recorded


@dataclass(frozen=True)
class PublishedTable:
    paper: str
    number: str  # as printed, with its part if it has parts
    caption: str
    quantity: Quantity  # what its cells hold unless their row or column overrides it
    n: int | None  # repeats behind each number, None if the paper does not give it
    # the shipped recipes whose runs fill the table, the preferred one first
    recipes: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    # the numbers by their labels; None where the number is not available to us. Cells that the
    # paper leaves empty are left out.
    cells: Mapping[CellKey, PublishedValue | None]
    settings: Mapping[CellKey, str]  # the cells of a table of settings: text as printed
    absent: str | None  # why no number of the table is available to us, else None
    # the selection and the quantity of every cell
    selections: Mapping[CellKey, Selection]
    quantities: Mapping[CellKey, Quantity]

    @property
    def available(self) -> int:
        """Return how many cells have a number."""
        return len(self.settings) + sum(cell is not None for cell in self.cells.values())

    @property
    def not_available(self) -> int:
        """Return how many cells have no number available to us."""
        return sum(cell is None for cell in self.cells.values())


def _number_as_text(cell: Any) -> Any:
    """Return a YAML number as text; other values are left to the schema."""
    return repr(cell) if type(cell) in (int, float) else cell


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Override(_Strict):
    """The parts of a quantity that a row or a column overrides."""

    metric: Metric | None = None
    unit: Unit | None = None
    direction: Direction | None = None
    delta: Annotated[float | None, Field(gt=0)] = None
    field: str | None = None


class _Column(_Strict):
    label: Annotated[str, Field(min_length=1)]
    where: Selection = {}
    quantity: _Override = _Override()


class _Row(_Column):
    """A row with its cells, in the order of the columns."""

    cells: list[Annotated[str, BeforeValidator(_number_as_text)]]


class _Table(_Strict):
    caption: Annotated[str, Field(min_length=1)]
    metric: Metric
    unit: Unit
    direction: Direction
    delta: Annotated[float | None, Field(gt=0)] = None
    n: Annotated[int | None, Field(ge=1)] = None
    recipes: list[str] = []
    field: str | None = None
    where: Selection = {}
    columns: list[_Column] = []
    rows: list[_Row] = []
    absent: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "_Table":
        problems = [] if bool(self.rows) != bool(self.absent) else ["expected rows, or absent"]
        if bool(self.recipes) != bool(self.field):
            problems.append("recipes and field: expected both, or neither")
        for kind, lines in (("row", self.rows), ("column", self.columns)):
            labels = [line.label for line in lines]
            duplicates = sorted({label for label in labels if labels.count(label) > 1})
            problems += [f"{kind} '{label}' is a duplicate" for label in duplicates]
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                problems.append(
                    f"row '{row.label}': {len(row.cells)} cells for {len(self.columns)} columns"
                )
            if self.metric != "setting":
                problems += [
                    f"row '{row.label}': cell '{cell}': expected a number, 'mean±std', "
                    f"'{NOT_AVAILABLE}' or '{NOT_PRINTED}'"
                    for cell in row.cells
                    if cell not in (NOT_AVAILABLE, NOT_PRINTED) and not _CELL.fullmatch(cell)
                ]
            problems += [
                f"row '{row.label}' and column '{column.label}' both set '{key}'"
                for column in self.columns
                for key in sorted(set(row.where) & set(column.where))
            ]
        if problems:
            raise ValueError("\n".join(problems))
        return self


class Evidence(_Strict):
    """What runs showed of a claim."""

    result: Annotated[str, Field(min_length=1)]  # the effect, in one sentence with its figures
    n: Annotated[int, Field(ge=1)]  # how many of `of` (such as `seed`) are behind each figure
    of: str
    # the 95 % interval of the effect
    interval: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    p: Annotated[float | None, Field(ge=0, le=1)] = None  # adjusted by Holm's procedure
    file: str  # in the paper's folder; a page or a recipe where no cells are stored
    commit: str | None = None  # of the package at the run; None where the file does not say


class NeverRun(_Strict):
    """Why a claim has no verdict, and the estimated time of a run."""

    reason: Annotated[str, Field(min_length=1)]
    time: Annotated[str, Field(min_length=1)]


NEVER_RUN = "never run"
ClaimVerdict = Literal[
    "holds", "holds in part", "does not hold", "no significant difference", "inconclusive",
    "never run",
]  # fmt: skip


class Claim(_Strict):
    """A statement of a paper, in our words, and what we found."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    statement: Annotated[str, Field(min_length=1)]
    place: Annotated[str, Field(min_length=1)]  # in a text that we have, or the public source
    # what tests it
    recipes: list[str] = []
    command: Annotated[str | None, Field(pattern=r"^marginctl ")] = None
    test: Annotated[str | None, Field(pattern=r"^tests/[\w/]+\.py::\w+$")] = None
    reduced: str | None = None  # how that differs from the paper's form; None where it does not
    verdict: ClaimVerdict
    evidence: Evidence | None = None
    never_run: NeverRun | None = None

    @model_validator(mode="after")
    def _founded(self) -> "Claim":
        if (self.never_run is not None) != (self.verdict == NEVER_RUN):
            raise ValueError(f"never_run: expected it with the verdict '{NEVER_RUN}', and then")
        if self.never_run is None and self.evidence is None and self.test is None:
            raise ValueError(f"verdict '{self.verdict}': expected evidence or a test")
        if self.never_run is not None and self.evidence is not None:
            raise ValueError(f"evidence: expected none with the verdict '{NEVER_RUN}'")
        return self


@dataclass(frozen=True)
class Paper:
    """A paper: its tables by their numbers, and its claims."""

    name: str
    title: str
    source: str
    tables: Mapping[str, PublishedTable]
    claims: list[Claim]


class _PaperFile(_Strict):
    title: str
    source: str
    tables: dict[str, _Table] = {}
    claims: list[Claim] = []

    @model_validator(mode="after")
    def _unique_claims(self) -> "_PaperFile":
        ids = [claim.id for claim in self.claims]
        if len(set(ids)) < len(ids):
            raise ValueError("claims: an id is a duplicate")
        return self


def read_paper(name: str, path: Path) -> Paper:
    """Read the published.yaml of a paper.

    Raises:
        RequestError: it is not YAML, does not fit the schema, or names an unknown objective or
            model.
    """
    try:
        file = _PaperFile.model_validate(yaml.read(path)[0])
    except ValidationError as error:
        key = ".".join(map(str, error.errors()[0]["loc"]))
        raise RequestError(f"{path}: {key}: {first_error_line(error)}") from None
    tables = {number: _published_table(name, number, t) for number, t in file.tables.items()}
    return Paper(name, file.title, file.source, tables, file.claims)


def _published_table(paper: str, number: str, file: _Table) -> PublishedTable:
    default = Quantity(file.metric, file.unit, file.direction, file.delta, file.field)
    cells: dict[CellKey, PublishedValue | None] = {}
    settings: dict[CellKey, str] = {}
    selections: dict[CellKey, Selection] = {}
    quantities: dict[CellKey, Quantity] = {}
    for row in file.rows:
        for column, text in zip(file.columns, row.cells, strict=True):
            key = (row.label, column.label)
            selections[key] = _selection(file, row, column)
            override = column.quantity.model_dump(exclude_unset=True)
            override |= row.quantity.model_dump(exclude_unset=True)
            quantities[key] = replace(default, **override)
            if file.metric == "setting":
                settings[key] = text
            elif text != NOT_PRINTED:
                cells[key] = None if text == NOT_AVAILABLE else _value(text, file.n)
    return PublishedTable(
        paper=paper,
        number=number,
        caption=file.caption,
        quantity=default,
        n=file.n,
        recipes=tuple(file.recipes),
        rows=tuple(row.label for row in file.rows),
        columns=tuple(column.label for column in file.columns),
        cells=cells,
        settings=settings,
        absent=file.absent,
        selections=selections,
        quantities=quantities,
    )


def _value(text: str, n: int | None) -> PublishedValue:
    match = _CELL.fullmatch(text)
    assert match is not None
    mean, std = float(match["mean"]), match["std"]
    if std is None or n is None:
        return PublishedValue(mean, None if std is None else float(std), n)
    return PublishedMean(mean, float(std), n)


def _selection(file: _Table, row: _Row, column: _Column) -> Selection:
    """Return the union of the selections of table, row and column, with canonical names."""
    union: Selection = {**file.where, **row.where, **column.where}
    selection = {k: v for k, v in union.items() if not k.startswith(_OPTION)}
    if "objective" in selection:
        name = str(selection["objective"])
        for key in union:
            if key.startswith(_OPTION):
                name += f"{',' if ':' in name else ':'}{key.removeprefix(_OPTION)}={union[key]}"
        selection["objective"] = str(parse(name))
    if "model" in selection:
        selection["model"] = str(ModelSpec.parse(str(selection["model"])))
    return selection
