"""Options that several commands share, and parsers of their values."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from marginctl.cli import completion
from marginctl.utils.text import shorten


def integer(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Return a parser of integers whose error names the value."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum or (maximum is not None and value > maximum):
            limit = "" if maximum is None else f" and at most {maximum}"
            raise typer.BadParameter(
                f"{shorten(text)!r}: expected an integer of at least {minimum}{limit}"
            )
        return value

    return parse


def number(minimum: float) -> Callable[[str | float], float]:
    """Return a parser of finite numbers whose error names the value."""

    def parse(text: str | float) -> float:
        value = _float(text)
        if not minimum <= value < math.inf:
            raise typer.BadParameter(
                f"{shorten(str(text))!r}: expected a number of at least {minimum:g}"
            )
        return value

    return parse


def fraction(text: str) -> float:
    """Parse a number between 0 and 1, both excluded."""
    value = _float(text)
    if not 0 < value < 1:
        raise typer.BadParameter(
            f"{shorten(text)!r}: expected a fraction between 0 and 1, such as 0.5"
        )
    return value


def _float(text: str | float) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def folder(text: str | Path) -> Path:
    """Parse a folder; an empty name, such as of an unset variable, is not the current folder."""
    if not str(text).strip():
        raise typer.BadParameter(f"{text!r}: expected a folder (the current one is '.')")
    return Path(text)


RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="Name of a shipped recipe, or a file.",
        autocompletion=completion.recipe,
    ),
]
Objectives = Annotated[
    list[str] | None,
    typer.Option(
        "--objective",
        metavar="NAME",
        help="Preset, NAME:option=value,..., or parts, similarity=KIND;...; repeatable.",
        autocompletion=completion.objective,
    ),
]
Ood = Annotated[
    list[str] | None,
    typer.Option(
        "--ood", metavar="NAME", help="OOD test set: NAME, near=NAME or far=NAME; repeatable."
    ),
]
Pairs = Annotated[
    list[str] | None,
    typer.Option(
        "--pairs",
        metavar="FILE",
        help="Verification pair list, evaluated after the last epoch; repeatable.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe setting; repeatable."),
]
Seed = Annotated[
    list[int] | None,
    typer.Option(
        "--seed",
        metavar="N",
        parser=integer(0),
        help="Seed to run instead of the recipe's; repeatable.",
    ),
]
Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", parser=folder, help="Runs folder.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="FOLDER",
        parser=folder,
        help="Data folder (default: MARGINCTL_DATA, or the user's cache).",
    ),
]
Device = Annotated[
    str, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda, cuda:N or mps.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", metavar="N", parser=integer(1), help="Workers (default: one per core)."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and its estimated time.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Baseline = Annotated[
    str | None,
    typer.Option("--baseline", metavar="NAME", help="Baseline (default: soft)."),
]


def report_format(text: str) -> str:
    """Parse the name of a format, which a plug-in may have added."""
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
    """Print one JSON document on stdout; NaN is refused."""
    print(json.dumps(document, indent=1, allow_nan=False))
