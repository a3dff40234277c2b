"""Published values as data: one YAML file a paper."""

from functools import cache
from pathlib import Path

from marginctl.errors import RequestError
from marginctl.papers.published import Claim, Measure, Paper, Published, PublishedTable, Value, read
from marginctl.utils.text import did_you_mean

__all__ = [
    "Claim",
    "Measure",
    "Paper",
    "Published",
    "PublishedTable",
    "Value",
    "check_paper",
    "papers",
    "published_table",
    "table",
]


def papers() -> list[Paper]:
    """All papers, by their names."""
    return [_paper(path) for path in _files().values()]


def check_paper(name: str) -> None:
    """Refuses a paper that we hold nothing of.

    Raises:
        RequestError: no such paper.
    """
    known = list(_files())
    if name not in known:
        raise RequestError(
            f"unknown paper '{name}': expected one of {', '.join(known)}."
            + did_you_mean(name, known)
        )


def published_table(paper: str, number: str) -> PublishedTable:
    """A table of a paper.

    Args:
        paper: its name, such as `arcgrad`.
        number: the table's, as printed, such as `I`; with its part where it has parts (`12c`).

    Raises:
        RequestError: no such paper, or no such table of it.
    """
    check_paper(paper)
    tables = _paper(_files()[paper]).tables
    if number not in tables:
        known = ", ".join(tables) or "none, it has claims alone"
        raise RequestError(
            f"unknown table '{number}' of {paper}: expected one of {known}."
            + did_you_mean(number, tables)
        )
    return tables[number]


def table(paper: str | None, name: str | None) -> dict[tuple[str, str], Published]:
    """The cells of a table of cross-validations by (data set, objective); empty where we hold none.

    Args:
        paper: a paper's name, such as `arcgrad`.
        name: the table's number as printed, such as `I`.
    """
    if paper not in _files():
        return {}
    found = _paper(_files()[paper]).tables.get(name or "")
    cells = {}
    for place, cell in found.cells.items() if found else ():
        selection = found.where(*place) if found else {}
        if isinstance(cell, Published) and set(selection) == {"dataset", "objective"}:
            cells[str(selection["dataset"]), str(selection["objective"])] = cell
    return cells


def _files() -> dict[str, Path]:
    """The file of each paper, by its name."""
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.yaml"))}


@cache
def _paper(path: Path) -> Paper:
    return read(path)
