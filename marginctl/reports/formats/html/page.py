"""A report as one HTML page: what holds first, then the tables, then the runs behind each cell.

Every text of a recipe, a file or a run is escaped; figures are images of `data:` addresses, in
which nothing runs; the page's own policy allows no address but these, and no style or script but
the page's own, by their digests.
"""

import base64
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from marginctl.reports.formats.html.contents import (
    Comparison,
    PaperSection,
    Part,
    Picture,
    Placed,
    Report,
    parts,
)
from marginctl.reports.formats.html.run_sections import book
from marginctl.reports.formats.html.verdict_summary import MEANING, difference, summarise
from marginctl.reports.tables.published_table import SYMBOLS
from marginctl.results.verdict import Verdict

__all__ = ["Comparison", "PaperSection", "Picture", "Report", "page"]

_HERE = Path(__file__).parent
_WIDE = 6  # columns: with more, a paper is printed across
_BREAKS = re.compile(r"(?<=[:;,(+=/_])(?!$)|(?<=[a-z])(?=[A-Z])")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def page(report: Report) -> str:
    """The page, whole: the same for the same runs, whatever the order of the stores.

    Returns:
        HTML that can be written as UTF-8: what no text can hold is shown as U+FFFD.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE, encoding="utf-8"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"breakable": _breakable, "image": _image}
    style, script = ((_HERE / name).read_text("utf-8") for name in ("page.css", "page.js"))
    made = parts(report)
    text = environment.get_template("report.html.j2").render(
        report=report,
        stores=sorted(report.stores),
        problems=sorted(report.problems),
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        parts=made,
        summary=summarise(made),
        book=book(made),
        verdicts=Verdict,
        of_verdict={str(verdict): verdict for verdict in Verdict},
        symbols=SYMBOLS,
        meaning=MEANING,
        difference=difference,
        remarks=_remarks,
        is_wide=_is_wide,
    )
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _policy(style: str, script: str) -> str:
    """The content security policy: nothing from anywhere, and of what is here only our own."""

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src 'sha256-{digest(style)}'; script-src 'sha256-{digest(script)}'"
    )


def _is_wide(part: Part) -> bool:
    return any(len(placed.sheet.columns) > _WIDE for placed in part.tables)


def _breakable(text: str) -> Markup:
    """A name that may be broken after its punctuation and between its words."""
    return Markup("<wbr>").join(escape(piece) for piece in _BREAKS.split(text))


def _image(svg: str) -> str:
    """The address of a figure."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _remarks(placed: Placed) -> list[tuple[str, str]]:
    """(Where, remark) of the cells that have one, a line for each remark.

    Of a published table the reasons: the numbers stand in its cells. Those that the notes below
    the table explain are left out.
    """
    cells: dict[str, list[str]] = {}
    for place, remark in _of_cells(placed):
        cells.setdefault(remark, []).append(place)
    return [("; ".join(places), remark) for remark, places in cells.items()]


def _of_cells(placed: Placed) -> Iterable[tuple[str, str]]:
    if placed.judged is not None:
        for cell in placed.judged.cells.values():
            if cell.reason and cell.verdict is not Verdict.not_comparable:
                yield f"{cell.row}, {cell.column}", cell.reason
        return
    for row in placed.sheet.rows:
        for column, entry in zip(placed.sheet.columns, row.cells, strict=True):
            if entry is not None and entry.remark:
                yield f"{row.label}, {column}", entry.remark
