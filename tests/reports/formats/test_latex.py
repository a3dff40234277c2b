"""A table as LaTeX, to the letter; compiled by hand with pdflatex, which no test needs."""

import shutil
import subprocess
from pathlib import Path

import pytest

from marginctl.reports.formats.latex import escaped, latex
from tests.reports.formats.factories import TABLE

GOLDEN = Path(__file__).with_name("golden.tex")

DOCUMENT = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{booktabs,graphicx,amssymb,textcomp}
\begin{document}
%s
\end{document}
"""


def test_golden():
    assert latex(TABLE) + "\n" == GOLDEN.read_text("utf-8")


def test_every_printable_character_is_harmless():
    written = escaped("".join(chr(c) for c in range(32, 127)))
    for special in "#$%&_{}":
        assert f"\\{special}" in written
    assert escaped("a\nb\x1b[0m") == "a b?[0m"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_it_compiles(tmp_path):
    (tmp_path / "t.tex").write_text(DOCUMENT % latex(TABLE))
    line = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
