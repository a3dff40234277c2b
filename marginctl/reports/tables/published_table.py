"""Tables of published tables, with ours above their numbers and a verdict on each."""

from marginctl.reports.tables.table import Cell, Row, Table, table_of_texts
from marginctl.results.verdict import Judged, JudgedTable, Verdict

SYMBOLS = {
    Verdict.reproduced: "✓",
    Verdict.inconclusive: "~",
    Verdict.differs: "≠",
    Verdict.not_comparable: "∦",
    Verdict.missing: "·",
    Verdict.not_available: "?",
}


def of_judged(judged: JudgedTable, *, key: str) -> Table:
    """A published table with ours above its numbers, and a verdict on each."""
    table = judged.table
    rows = []
    for label in table.rows:
        found = [judged.cells.get((label, column)) for column in table.columns]
        rows.append(Row(label, tuple(None if j is None else _of_judged(j) for j in found)))
    unit = {"percent": " in percent", "none": ""}.get(
        table.quantity.unit, f" in {table.quantity.unit}"
    )
    return Table(
        key=key,
        title=f"{table.paper}, table {table.number}: {table.caption}",
        caption=f"{table.quantity.metric.capitalize()}{unit}: ours, mean ± standard deviation; "
        "published values below ours.",
        label_heading="",
        columns=table.columns,
        rows=tuple(rows),
        notes=tuple(verdict_notes(judged)),
        code_headings=False,
        details=_differences(judged),
    )


def _of_judged(cell: Judged) -> Cell:
    places = cell.quantity.decimals
    text = "-"
    if cell.mean is not None:
        spread_of = "" if cell.std is None else f" ± {cell.std:.{places}f}"
        text = f"{cell.mean:.{places}f}{spread_of}"
    below = ""
    if cell.published is not None:
        std = cell.published.std
        below = f"{cell.published.mean:.{places}f}" + (
            "" if std is None else f" ± {std:.{places}f}"
        )
    return Cell(
        text,
        best=cell.best,
        footnotes=SYMBOLS[cell.verdict],
        below=below,
        verdict=cell.verdict,
        remark=said_of(cell),
        runs=cell.runs,
    )


def said_of(cell: Judged) -> str:
    """A judged cell in a sentence: the difference, its interval, what it rests on."""
    parts = [str(cell.verdict)]
    if cell.difference is not None:
        places = cell.quantity.decimals
        between = f" (95 %: {_between(cell)})" if cell.low is not None else ""
        parts.append(f"difference {cell.difference:+.{places}f}{between}, n = {cell.n}")
    return "; ".join([*parts, *([cell.reason] if cell.reason else [])])


def _between(cell: Judged) -> str:
    """The interval of the difference, `-` where there is none."""
    if cell.low is None or cell.high is None:
        return "-"
    return f"{cell.low:+.{cell.quantity.decimals}f} to {cell.high:+.{cell.quantity.decimals}f}"


def _differences(judged: JudgedTable) -> tuple[Table, ...]:
    """A line each cell that has a number of ours: how far it is from the published one."""
    headings = ["row", "column", "ours", "n", "published", "difference", "95 %", "verdict"]
    lines = []
    for cell in judged.cells.values():
        if cell.difference is not None:
            entry = _of_judged(cell)
            shown = f"{cell.difference:+.{cell.quantity.decimals}f}"
            lines.append(
                [
                    *(cell.row, cell.column, entry.text, str(cell.n), entry.below, shown),
                    *(_between(cell), str(cell.verdict)),
                ]
            )
    if not lines:
        return ()
    caption = "Difference (ours - published)"
    return (table_of_texts(caption, headings, lines, text_columns=1),)


def verdict_notes(judged: JudgedTable) -> list[str]:
    """How many cells have each verdict, what it means, and why cells are not comparable."""
    counts = ", ".join(f"{n} {SYMBOLS[v]} {v}" for v, n in judged.counts().items())
    deltas = sorted(
        {c.quantity.delta for c in judged.cells.values() if c.quantity.delta is not None}
    )
    within = " or ".join(f"{d:g}" for d in deltas) if deltas else "no delta is set"
    lines = [
        f"verdicts: {counts}",
        "reproduced: the 95 % interval of the difference (Welch's, approximate) lies within "
        f"±{within}",
    ]
    reasons: dict[str, list[str]] = {}
    for cell in judged.cells.values():
        if cell.verdict is Verdict.not_comparable and cell.reason:
            reasons.setdefault(cell.reason, []).append(f"{cell.row} / {cell.column}")
    lines += [
        f"{SYMBOLS[Verdict.not_comparable]}  not comparable: {why}: {', '.join(where)}"
        for why, where in reasons.items()
    ]
    return lines
