"""The one style of all figures, and the files that they are written to."""

import contextlib
import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from marginctl.errors import RequestError
from marginctl.reports.figures import KINDS
from marginctl.runs.atomic_io import write_output
from marginctl.utils.text import did_you_mean

FORMATS = (".png", ".svg", ".pdf")

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.handlelength": 3.5,  # a whole dash-dot pattern
    "figure.titlesize": 10,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "errorbar.capsize": 3,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "savefig.dpi": 110,
    "svg.hashsalt": "marginctl",  # ids that do not differ from run to run
}
# Colours for all eyes (Okabe and Ito 2008) but yellow, which white paper hides. Their number and
# those of the dashes and the markers have no common divisor: no two of 105 lines look alike, and
# neighbours differ in all three, so that they do so in grey, too.
COLORS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^")
LEGEND_WIDTH = 36  # letters


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """The style, for what is drawn or written within; also a decorator."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield


def line(i: int, points: int | None = None) -> dict[str, Any]:
    """How the i-th line of a figure looks, as options of `Axes.plot`.

    Args:
        i: from 0.
        points: how many it has, of which about ten get markers; None for a line without markers.
    """
    look: dict[str, Any] = {"color": COLORS[i % len(COLORS)], "linestyle": DASHES[i % len(DASHES)]}
    if points is not None:
        look |= {"marker": MARKERS[i % len(MARKERS)], "markevery": max(1, points // 10)}
    return look


def legend_text(name: str, width: int = LEGEND_WIDTH) -> str:
    """An objective or a row in lines of at most `width` letters, where it can be broken."""
    broken = re.sub("([;,]) ?", r"\1 ", name).replace("+", " + ")
    return textwrap.fill(broken, width)


def check_kinds(kinds: Sequence[str]) -> None:
    """Refuses a kind of figure that there is not.

    Raises:
        RequestError: naming those that there are.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise RequestError(
                f"--kind {kind}: expected one of {', '.join(KINDS)}.{did_you_mean(kind, KINDS)}"
            )


def check_path(option: str, path: Path) -> None:
    """Refuses a path before anything is drawn.

    Raises:
        RequestError: a file type other than `FORMATS`, or a folder that is not there.
    """
    if path.suffix.lower() not in FORMATS:
        raise RequestError(f"{option} {path}: expected a file name ending in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise RequestError(f"{option} {path}: there is no folder {path.parent}: make it first")


def save(figure: Any, path: Path) -> None:
    """Writes a matplotlib figure, whole or not at all: the same file for the same figure.

    Raises:
        StorageError: the file cannot be written.
    """
    undated: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    suffix, content = path.suffix.lower(), io.BytesIO()
    with styled():
        figure.savefig(content, format=suffix[1:], metadata=undated.get(suffix, {}))
    write_output(path, content.getvalue())
