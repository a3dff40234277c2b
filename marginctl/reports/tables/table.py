"""The table that every command prints, independent of what it holds and of its format."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marginctl.results.load_run import Run

# Footnotes of a cell: diverged runs, constant predictions, and comparisons with the baseline.
DIVERGED, COLLAPSED, BETTER, WORSE = "d", "c", "▲", "▼"
DIRECTIONS = {1: BETTER, -1: WORSE, 0: ""}


def directions_note(baseline: str, tests: str, compared: str = "methods") -> str:
    """Return what the footnotes of comparisons with the baseline mean."""
    return (
        f"{BETTER} {WORSE}  better or worse than {baseline}: {tests}, Holm-adjusted p < 0.05 (over "
        f"the {compared} of a row)"
    )


@dataclass(frozen=True)
class Cell:
    text: str  # the number as shown, such as `93.54 ± 0.21`
    best: bool = False  # whether it is the best of the cells that it compares with
    footnotes: str = ""  # one character for each footnote, explained below the table
    below: str = ""  # a second line, such as the published value, with footnotes of its own
    below_footnotes: str = ""
    verdict: str | None = None  # on the published value
    remark: str | None = None  # a sentence about this cell alone
    runs: tuple["Run", ...] = ()  # behind the number


@dataclass(frozen=True)
class Row:
    """A row of a table; a foot row, such as the average, is set apart."""

    label: str
    cells: tuple[Cell | None, ...]
    foot: bool = False


@dataclass(frozen=True)
class Table:
    """A table with its title, caption and notes."""

    key: str  # a name that no other table of the report has, for links and files
    title: str  # a line above the table
    caption: str  # what the numbers are
    label_heading: str  # the heading of the row labels; `columns` are the other headings
    columns: tuple[str, ...]
    rows: tuple[Row, ...]  # in order; each has a cell, or None, for each column
    notes: tuple[str, ...] = ()  # lines below the table: footnotes, tests, conclusions
    code_headings: bool = True  # whether the headings are objectives, which are set as code
    details: tuple["Table", ...] = ()  # further tables below this one
    text_columns: int = 0  # how many leading columns hold text; the others hold numbers
    answers: tuple[str, ...] = ()  # sentences above the table that say what it shows
    sentences: bool = False  # whether cells hold sentences, which a terminal shows as paragraphs


def table_of_texts(
    caption: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Cell | None]],
    *,
    key: str = "",
    title: str = "",
    notes: Sequence[str] = (),
    **options: Any,
) -> Table:
    """Return a table of texts, whose first column labels the rows; `options` are those of Table."""
    shown = tuple(
        Row(str(label), tuple(Cell(c) if isinstance(c, str) else c for c in cells))
        for label, *cells in rows
    )
    label, *columns = headings
    return Table(
        key,
        title,
        caption,
        label,
        tuple(columns),
        shown,
        tuple(notes),
        code_headings=False,
        **options,
    )


@dataclass(frozen=True)
class Report:
    """What a command prints, in whatever format."""

    tables: Sequence[Table]  # for a reader
    # the numbers in full, for CSV and for JSON
    records: Sequence[Mapping[str, Any]]
    document: Mapping[str, Any]
    title: str = "marginctl report"  # of a page
    sources: Sequence[str] = ()  # the runs folders or files that the numbers come from
    problems: Sequence[str] = field(default=())  # a line for each run that is left out


def format_mean_std(mean: float | None, std: float | None, decimals: int = 2) -> str:
    """Return `93.54 ± 0.21`; the mean alone without a standard deviation, `-` without a mean."""
    if mean is None:
        return "-"
    return f"{mean:.{decimals}f}" + ("" if std is None else f" ± {std:.{decimals}f}")


def flat_record(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a JSON object as a line of CSV: inner keys joined by `_`, lists by blanks."""
    record: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            record |= flat_record(value, f"{prefix}{key}_")
        elif isinstance(value, list):
            record[prefix + key] = " ".join(map(str, value))
        else:
            record[prefix + key] = value
    return record


def number_range(numbers: Iterable[int]) -> str:
    """Return `3`, or `2 to 5` for numbers that differ; `0` for none."""
    ordered = sorted(set(numbers)) or [0]
    return str(ordered[0]) if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


def format_p(value: float | None) -> str:
    """Return a p-value to three decimals, a small one as 1.2e-05; `-` for none."""
    return "-" if value is None else f"{value:.3f}" if value >= 0.001 else f"{value:.1e}"


def group_by_text(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names that share a text, by the text, such as the cells that share a remark."""
    groups: dict[str, list[str]] = {}
    for name, text in pairs:
        groups.setdefault(text, []).append(name)
    return groups
