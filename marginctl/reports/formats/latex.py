"""Tables as LaTeX with booktabs, for a paper."""

from collections.abc import Sequence

from marginctl.reports.tables.table import Cell, Report, Row, Table

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


def render(report: Report, width: int | None = None) -> str:
    return "\n\n".join(map(latex, report.tables))


def latex(table: Table) -> str:
    """Return a `table` environment with its notes; a comment above it names the packages it needs.

    Each detail table is an environment of its own.
    """
    lines = ["% Needs \\usepackage{booktabs,graphicx,amssymb,textcomp} and [T1]{fontenc}."]
    if table.rows:
        answers = "".join(f" {answer}" for answer in table.answers)
        lines += _environment(table, f"{table.title}.{answers} {table.caption}", table.key)
    else:
        lines += [f"% {escaped(note)}" for note in table.notes]
    for number, detail in enumerate(table.details, 1):
        lines += _environment(detail, detail.caption, f"{table.key}-{number}")
    return "\n".join(lines)


def _environment(table: Table, caption: str, key: str) -> list[str]:
    text = table.text_columns
    heads = [escaped(table.label_heading)]
    heads += [
        r"\texttt{" + escaped(c) + "}" if table.code_headings else escaped(c) for c in table.columns
    ]
    lines = [
        r"\begin{table}",
        r"\centering",
        r"\caption{" + escaped(caption.strip(". ")) + "}",
        r"\label{tab:" + "".join(c if c.isalnum() else "-" for c in key) + "}",
        r"\smallskip",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        r"\begin{tabular}{" + "l" * (1 + text) + "r" * (len(table.columns) - text) + "}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        r"\midrule",
        *_body(table.rows),
        r"\bottomrule",
        r"\end{tabular}}",
    ]
    if table.notes:
        lines += [r"\par\smallskip\begin{minipage}{\linewidth}\footnotesize\raggedright"]
        lines += [escaped(note) + r"\par" for note in table.notes]
        lines += [r"\end{minipage}"]
    return [*lines, r"\end{table}"]


def escaped(text: str) -> str:
    """Return text without any meaning to LaTeX; a character that it cannot set becomes `?`."""
    known = (_SPECIAL.get(c, c if c.isascii() and c.isprintable() else _latin(c)) for c in text)
    return "".join(known)


def _latin(character: str) -> str:
    """Return what [T1]{fontenc} has unchanged, a blank for a line end, else a question mark."""
    if character.isspace():
        return " "
    return character if 0xA1 <= ord(character) <= 0x17E and character.isprintable() else "?"


def _body(rows: Sequence[Row]) -> list[str]:
    """Return the rows, a rule above the foot, and below a row its cells' second lines."""
    lines: list[str] = []
    for above, row in zip([None, *rows], rows, strict=False):
        if row.foot and not (above and above.foot):
            lines.append(r"\midrule")
        line = " & ".join([escaped(row.label), *map(_cell, row.cells)]) + r" \\"
        if any(cell and cell.below for cell in row.cells):
            lines.append(line + "[-2pt]")
            lines.append(" & ".join(["", *map(_below, row.cells)]) + r" \\")
        else:
            lines.append(line)
    return lines


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    number, plus_minus, std = map(escaped, cell.text.partition(" ± "))
    footnotes = f"\\,$^{{{_footnotes(cell.footnotes)}}}$" if cell.footnotes else ""
    return (rf"\textbf{{{number}}}" if cell.best else number) + plus_minus + std + footnotes


def _below(cell: Cell | None) -> str:
    if cell is None or not cell.below:
        return ""
    footnotes = f"$^{{{_footnotes(cell.below_footnotes)}}}$\\," if cell.below_footnotes else ""
    return rf"{{\footnotesize {footnotes}({escaped(cell.below)})}}"


def _footnotes(characters: str) -> str:
    return "".join(_SPECIAL.get(c, rf"\mathrm{{{c}}}").strip("$") for c in characters)
