"""The style of all figures, and writing them to files."""

import contextlib
import io
import re
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marginctl.errors import RequestError
from marginctl.runs.atomic_io import write_output

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
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
    "svg.hashsalt": "marginctl",  # the same ids in every run
    "text.parse_math": False,  # a name is shown as it is, with its dollar signs
    "text.usetex": False,
}
# Colours for all eyes (Okabe and Ito 2008) but yellow, which is invisible on white. The numbers of
# colours, dashes and markers have no common divisor: no two of 105 lines look alike, and neighbours
# differ in all three, so that they differ in grey, too.
COLORS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^")
LEGEND_WIDTH = 36  # letters


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Apply the style, and none of a user's matplotlibrc, to what is drawn or written inside.

    Also a decorator.
    """
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def line_style(index: int, points: int | None = None) -> dict[str, Any]:
    """Return options of `Axes.plot` for line `index`; about ten of its `points` get markers."""
    style: dict[str, Any] = {
        "color": COLORS[index % len(COLORS)],
        "linestyle": DASHES[index % len(DASHES)],
    }
    if points is not None:
        style |= {"marker": MARKERS[index % len(MARKERS)], "markevery": max(1, points // 10)}
    return style


def legend_text(name: str, width: int = LEGEND_WIDTH) -> str:
    """Break the name of an objective or a row into lines of at most `width` letters."""
    broken = re.sub("([;,]) ?", r"\1 ", name).replace("+", " + ")
    invisible = "\u200b" * name.startswith("_")  # matplotlib leaves such names out of a legend
    return invisible + textwrap.fill(broken, width)


def check_path(option: str, path: Path) -> None:
    """Check the path of a figure before anything is drawn.

    Raises:
        RequestError: a file type that is not in `FORMATS`, or a folder that does not exist.
    """
    if path.suffix.lower() not in FORMATS:
        raise RequestError(f"{option} {path}: expected a file name ending in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise RequestError(f"{option} {path}: the folder {path.parent} does not exist: create it")


def save(figure: Any, path: Path) -> None:
    """Write a matplotlib figure atomically, its label as the description in its metadata.

    The same figure gives the same file.

    Raises:
        StorageError: the file cannot be written.
    """
    label, suffix, content = figure.get_label() or None, path.suffix.lower(), io.BytesIO()
    metadata: dict[str, Any] = {
        ".png": {"Description": label} if label else {},
        ".svg": {"Date": None, "Description": label},
        ".pdf": {"CreationDate": None, "Subject": label},
    }
    with styled(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph ")  # a letter that the font lacks is a box
        figure.savefig(content, format=suffix[1:], metadata=metadata[suffix])
    write_output(path, content.getvalue())
