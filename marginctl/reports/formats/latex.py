"""A sheet as a LaTeX table with booktabs, to be put into a paper."""

from collections.abc import Sequence

from marginctl.reports.tables.table import Entry, Row, Sheet

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"$\sim$",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "▲": r"$\blacktriangle$",
    "▼": r"$\blacktriangledown$",
    "≠": r"$\neq$",
    "✓": r"$\checkmark$",
    "∦": r"$\nparallel$",
    "·": r"$\cdot$",
    **{c: f"\\{c}" for c in "{}$&#%_"},
}


def latex(sheet: Sheet) -> str:
    """A `table` environment; comments above it say what it needs; the notes stand below it.

    Each further list of the sheet is a table of its own.
    """
    lines = ["% Needs \\usepackage{booktabs,graphicx,amssymb,textcomp} and [T1]{fontenc}."]
    if sheet.rows:
        body: list[str] = []
        feet = False
        for row in sheet.rows:
            if row.foot and not feet:
                body.append(r"\midrule")
            feet = row.foot
            body += _row(row)
        heads = [escaped(sheet.corner), *(_heading(c, sheet.codes) for c in sheet.columns)]
        caption = f"{sheet.title}. {sheet.caption}"
        lines += _table(
            caption, sheet.key, "l" + "r" * len(sheet.columns), heads, body, sheet.notes
        )
    else:
        lines += [f"% {escaped(note)}" for note in sheet.notes]
    for number, (caption, rows) in enumerate(sheet.lists, 1):
        heads, *others = (list(map(escaped, row)) for row in rows)
        body = [" & ".join(row) + r" \\" for row in others]
        lines += _table(caption, f"{sheet.key}-{number}", "l" * len(heads), heads, body)
    return "\n".join(lines)


def _table(
    caption: str,
    key: str,
    columns: str,
    heads: Sequence[str],
    body: Sequence[str],
    notes: Sequence[str] = (),
) -> list[str]:
    """The lines of a `table` environment; heads and body are LaTeX already."""
    lines = [
        r"\begin{table}",
        r"\centering",
        r"\caption{" + escaped(caption.strip(". ")) + "}",
        r"\label{tab:" + "".join(c if c.isalnum() else "-" for c in key) + "}",
        r"\smallskip",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        r"\begin{tabular}{" + columns + "}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}}",
    ]
    if notes:
        lines += [r"\par\smallskip\begin{minipage}{\linewidth}\footnotesize\raggedright"]
        lines += [escaped(note) + r"\par" for note in notes]
        lines += [r"\end{minipage}"]
    return [*lines, r"\end{table}"]


def escaped(text: str) -> str:
    """Text without any meaning to LaTeX; other than ASCII and what is known becomes `?`."""
    known = (_SPECIAL.get(c, c if c.isascii() and c.isprintable() else _latin(c)) for c in text)
    return "".join(known)


def _latin(character: str) -> str:
    """What [T1]{fontenc} has as it is; a blank for a line end; else a question mark."""
    if character.isspace():
        return " "
    return character if 0xA1 <= ord(character) <= 0x17E and character.isprintable() else "?"


def _heading(text: str, codes: bool) -> str:
    return r"\texttt{" + escaped(text) + "}" if codes else escaped(text)


def _row(row: Row) -> list[str]:
    """The row, and a second line of what stands below its cells."""
    lines = [" & ".join([escaped(row.label), *map(_cell, row.entries)]) + r" \\"]
    if any(entry and entry.below for entry in row.entries):
        lines[0] += "[-2pt]"
        lines.append(" & ".join(["", *map(_below, row.entries)]) + r" \\")
    return lines


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return ""
    number, plus_minus, std = map(escaped, entry.text.partition(" ± "))
    marks = f"\\,$^{{{''.join(map(_mark, entry.marks))}}}$" if entry.marks else ""
    return (rf"\textbf{{{number}}}" if entry.best else number) + plus_minus + std + marks


def _below(entry: Entry | None) -> str:
    if entry is None or not entry.below:
        return ""
    marks = f"$^{{{''.join(map(_mark, entry.below_marks))}}}$\\," if entry.below_marks else ""
    return rf"{{\footnotesize {marks}({escaped(entry.below)})}}"


def _mark(character: str) -> str:
    """A mark in mathematics."""
    return _SPECIAL.get(character, rf"\mathrm{{{character}}}").strip("$")
