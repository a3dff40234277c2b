"""Published values: the tables and claims of each paper, read from its folder of recipes."""

from functools import cache
from pathlib import Path

from marginctl.errors import RequestError
from marginctl.papers.published import (
    NEVER_RUN,
    Claim,
    Paper,
    PublishedMean,
    PublishedTable,
    PublishedValue,
    Quantity,
    read_paper,
)
from marginctl.recipe.load import PUBLISHED, papers_registry
from marginctl.utils.text import did_you_mean

__all__ = [
    "NEVER_RUN",
    "Claim",
    "Paper",
    "PublishedMean",
    "PublishedTable",
    "PublishedValue",
    "Quantity",
    "check_paper",
    "papers",
    "published_means",
    "published_table",
]

_ROMAN = {"1": "I", "2": "II", "3": "III", "4": "IV", "5": "V", "6": "VI", "7": "VII"}


def papers() -> list[Paper]:
    return [_paper(name, folder) for name, folder in papers_registry().items()]


def check_paper(name: str) -> None:
    """Raise a RequestError for an unknown paper."""
    papers_registry().find(name)


def published_table(paper: str, number: str) -> PublishedTable:
    """Return a table of a paper by its number as printed, with its part if it has parts (`12c`).

    Raises:
        RequestError: there is no such paper, or it has no such table.
    """
    tables = _paper(paper, papers_registry().find(paper)).tables
    if number not in tables:
        known = ", ".join(tables) or "none (it has claims only)"
        raise RequestError(
            f"unknown table '{number}' of {paper}: expected one of {known}."
            + did_you_mean(_ROMAN.get(number, number), tables)
        )
    return tables[number]


def published_means(paper: str | None, number: str | None) -> dict[tuple[str, str], PublishedMean]:
    """Return the cells of a cross-validation table by (data set, objective).

    Empty if we hold no such table, or if its cells are selected by other keys.
    """
    tables = next((one.tables for one in papers() if one.name == paper), {})
    if number is None or number not in tables:
        return {}
    cells = {}
    for key, cell in tables[number].cells.items():
        selection = tables[number].selections[key]
        if isinstance(cell, PublishedMean) and set(selection) == {"dataset", "objective"}:
            cells[str(selection["dataset"]), str(selection["objective"])] = cell
    return cells


@cache
def _paper(name: str, folder: str) -> Paper:
    return read_paper(name, Path(folder) / PUBLISHED)
