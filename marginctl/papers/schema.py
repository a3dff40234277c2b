"""The schema of a paper's YAML file."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

NOT_AVAILABLE = "not available"
NOT_PRINTED = "-"  # the paper itself has no number here

Metric = Literal[
    "accuracy",
    "error",
    "angle",
    "time",
    "average precision",
    "scale",
    "count",
    "setting",
]
Unit = Literal["percent", "rad", "ms", "none"]
Direction = Literal["higher", "lower", "none"]
Scalar = str | int | float | bool
Where = dict[str, Scalar]

_NUMBER = r"\d+(?:\.\d+)?"
CELL = re.compile(rf"(?P<mean>{_NUMBER})(?:\s*±\s*(?P<std>{_NUMBER}))?")


def _text(cell: Any) -> Any:
    """A number of the file as text again; what is neither number nor text stays and is refused."""
    plain = isinstance(cell, int | float) and not isinstance(cell, bool)
    return repr(cell) if plain else cell


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class MeasureOf(_Strict):
    """What a row or a column measures, where it is not what its table does."""

    metric: Metric | None = None
    unit: Unit | None = None
    direction: Direction | None = None
    delta: Annotated[float | None, Field(gt=0)] = None
    field: str | None = None


class Line(_Strict):
    """A column, or what a row has of one."""

    label: Annotated[str, Field(min_length=1)]
    where: Where = {}
    measure: MeasureOf = MeasureOf()


class Row(Line):
    """A row with its cells, in the order of the columns."""

    cells: list[Annotated[str, BeforeValidator(_text)]]


class TableFile(_Strict):
    """A published table. See the head of arcgrad.yaml for what each key means."""

    caption: Annotated[str, Field(min_length=1)]
    metric: Metric
    unit: Unit
    direction: Direction
    delta: Annotated[float | None, Field(gt=0)] = None
    n: Annotated[int | None, Field(ge=1)] = None
    recipe: list[str] | None = None
    field: str | None = None
    where: Where = {}
    columns: list[Line] = []
    rows: list[Row] = []
    absent: str | None = None

    @model_validator(mode="after")
    def _fits(self) -> "TableFile":
        problems = [] if bool(self.rows) != bool(self.absent) else ["expected rows, or absent"]
        if bool(self.recipe) != bool(self.field):
            problems.append("recipe and field: expected both, or neither")
        for kind, lines in (("row", self.rows), ("column", self.columns)):
            labels = [line.label for line in lines]
            twice = sorted({label for label in labels if labels.count(label) > 1})
            problems += [f"{kind} '{label}' stands twice" for label in twice]
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
                    if cell not in (NOT_AVAILABLE, NOT_PRINTED) and not CELL.fullmatch(cell)
                ]
            problems += [
                f"row '{row.label}' and column '{column.label}' both say '{key}'"
                for column in self.columns
                for key in sorted(set(row.where) & set(column.where))
            ]
        if problems:
            raise ValueError("\n".join(problems))
        return self


class ClaimFile(_Strict):
    """What a paper says without a table of numbers."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    statement: Annotated[str, Field(min_length=1)]
    recipe: list[str] | None
    test: Annotated[str | None, Field(pattern=r"^tests/[\w/]+\.py::\w+$")] = None


class PaperFile(_Strict):
    """A paper: its tables by their printed numbers, and its claims."""

    title: str
    source: str
    tables: dict[str, TableFile] = {}
    claims: list[ClaimFile] = []

    @model_validator(mode="after")
    def _each_once(self) -> "PaperFile":
        ids = [claim.id for claim in self.claims]
        if len(set(ids)) < len(ids):
            raise ValueError("claims: an id stands twice")
        return self
