"""Options that several commands share."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from marginctl.cli import completion
from marginctl.utils.text import shorten


def integer(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Reads an integer option and names the value where it is none."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if number < minimum or (maximum is not None and number > maximum):
            most = "" if maximum is None else f" and at most {maximum}"
            raise typer.BadParameter(
                f"{shorten(text)!r}: expected an integer of at least {minimum}{most}"
            )
        return number

    return read


def number(minimum: float) -> Callable[[str | float], float]:
    """Reads a number option and names the value where it is none, or is not finite."""

    def read(text: str | float) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not minimum <= found < math.inf:
            raise typer.BadParameter(
                f"{shorten(str(text))!r}: expected a number of at least {minimum:g}"
            )
        return found

    return read


def share(text: str) -> float:
    """Reads an option that is a share of a whole, which leaves something on both sides."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < 1:
        raise typer.BadParameter(
            f"{shorten(text)!r}: expected a share between 0 and 1, such as 0.5"
        )
    return found


def folder(text: str | Path) -> Path:
    """Reads a folder. An empty name, as of a variable that is not set, is not the current one."""
    if not str(text).strip():
        raise typer.BadParameter(f"{text!r}: expected a folder (the current one is '.')")
    return Path(text)


RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A shipped recipe's name, or a file.",
        autocompletion=completion.recipe,
    ),
]
Objectives = Annotated[
    list[str] | None,
    typer.Option(
        "--objective",
        metavar="NAME",
        help="A preset, NAME:option=value,..., or parts, similarity=KIND;...; repeatable.",
        autocompletion=completion.objective,
    ),
]
Ood = Annotated[
    list[str] | None,
    typer.Option(
        "--ood",
        metavar="NAME",
        help="Foreign images to tell from its own, their test part: NAME, near=NAME or far=NAME; "
        "repeatable.",
    ),
]
Pairs = Annotated[
    list[str] | None,
    typer.Option(
        "--pairs",
        metavar="FILE",
        help="Pairs of images, which lie beside the list, to verify at the end; repeatable.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a dotted key of the recipe; repeatable."
    ),
]
Seed = Annotated[
    list[int] | None,
    typer.Option(
        "--seed", metavar="N", parser=integer(0), help="Replaces the recipe's seeds; repeatable."
    ),
]
Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", parser=folder, help="The run store.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="FOLDER",
        parser=folder,
        help="The data folder; else MARGINCTL_DATA, else the user's cache.",
    ),
]
Device = Annotated[
    str, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda, cuda:N or mps.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", metavar="N", parser=integer(1), help="Processes; one a core where not given."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would run, and about how long.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


Baseline = Annotated[
    str | None,
    typer.Option("--baseline", metavar="NAME", help="Compare with it; soft where it is there."),
]


def report_format(text: str) -> str:
    """Read the name of a format, which a plug-in may have added."""
    from marginctl.reports.formats.registry import FORMATS

    FORMATS.find(text)
    return text


ReportFormat = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        parser=report_format,
        help="Output format: table, markdown, latex, csv, json or html.",
    ),
]


def print_json(document: Any) -> None:
    """Exactly one JSON document on stdout; NaN is refused."""
    print(json.dumps(document, indent=1, allow_nan=False))
