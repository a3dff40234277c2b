"""Options that several commands share, and parsers of their values."""

import json
import math
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marginctl.cli import completion
from marginctl.errors import RequestError
from marginctl.utils.text import shorten

if TYPE_CHECKING:
    from marginctl.data.images.summary import ImageSummary


def option(
    metavar: str,
    help: str,
    parser: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    complete: Callable[[str], list[str]] | None = None,
) -> Any:
    """Return an option with a value; its parameter gives the name, unless `name` does."""
    names = [] if name is None else [name]
    return typer.Option(*names, metavar=metavar, help=help, parser=parser, autocompletion=complete)


def flag(name: str, help: str) -> Any:
    """Return an option without a value."""
    return typer.Option(name, help=help)


def argument(metavar: str, help: str, complete: Callable[[str], list[str]] | None = None) -> Any:
    return typer.Argument(metavar=metavar, help=help, autocompletion=complete)


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


def non_negative(text: str | float) -> float:
    """Parse a finite number of at least 0."""
    value = _float(text)
    if not 0 <= value < math.inf:
        raise typer.BadParameter(f"{shorten(str(text))!r}: expected a number of at least 0")
    return value


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


def refuse(given: Mapping[str, Any], reason: str) -> None:
    """Raise RequestError where one of these options was given."""
    for name, value in given.items():
        if value:
            raise RequestError(f"{name}: {reason}")


def print_next_step(command: str, *arguments: object) -> None:
    """Print the command that usually follows, where a person reads it: on a terminal.

    Args:
        command: with its options; `arguments` are quoted where they need it.
    """
    if sys.stdout.isatty() and sys.stderr.isatty():
        words = [f"next: marginctl {command}", *(shlex.quote(str(one)) for one in arguments)]
        print(" ".join(words), file=sys.stderr)


def print_same_without_dry_run() -> None:
    print_next_step(shlex.join(argument for argument in sys.argv[1:] if argument != "--dry-run"))


RecipeName = Annotated[
    str, argument("RECIPE", "Name of a shipped recipe, or a file.", completion.recipe)
]
Objectives = Annotated[
    list[str] | None,
    option(
        "NAME",
        "Preset, NAME:option=value,..., or parts, similarity=KIND;...; repeatable.",
        complete=completion.objective,
    ),
]
Ood = Annotated[
    list[str] | None,
    option("NAME", "OOD test set: NAME, near=NAME, far=NAME, or openood (OpenOOD's); repeatable."),
]
Pairs = Annotated[
    list[str] | None,
    option("FILE", "Verification pair list, evaluated after the last epoch; repeatable."),
]
Set = Annotated[
    list[str] | None, option("KEY=VALUE", "Override a recipe setting; repeatable.", name="--set")
]
Seed = Annotated[
    list[int] | None, option("N", "Seed to run instead of the recipe's; repeatable.", integer(0))
]
RUNS = Path("runs")  # the runs folder unless --out names one
Out = Annotated[Path, option("FOLDER", "Runs folder.", folder)]
DataDir = Annotated[
    Path | None,
    option("FOLDER", "Data folder (default: MARGINCTL_DATA, or the user's cache).", folder),
]
Device = Annotated[str, option("NAME", "auto, cpu, cuda, cuda:N or mps.")]
Workers = Annotated[int | None, option("N", "Workers (default: one per core).", integer(1))]
DryRun = Annotated[bool, flag("--dry-run", "Show the plan and its estimated time.")]
NoHeader = Annotated[bool, flag("--no-header", "The first line is data: name columns 1, 2, ...")]
Quiet = Annotated[bool, flag("--quiet", "Show no progress.")]
Json = Annotated[bool, flag("--json", "Print one JSON document.")]
Baseline = Annotated[str | None, option("NAME", "Baseline (default: soft).")]
Metric = Annotated[
    str,
    option(
        "NAME",
        "Metric to test and to rank by: accuracy, balanced_accuracy, macro_f1, auroc, log_loss or "
        "ece.",
        name="--metric",
    ),
]


def report_format(text: str) -> str:
    """Parse the name of a format, which a plug-in may have added."""
    from marginctl.reports.formats.registry import FORMATS

    FORMATS.find(text)
    return text


ReportFormat = Annotated[
    str,
    option(
        "FORMAT",
        "Output format: table, markdown, latex, csv, json or html.",
        report_format,
        name="--format",
    ),
]


def print_json(document: Any) -> None:
    """Print one JSON document on stdout; NaN is refused."""
    print(json.dumps(document, indent=1, allow_nan=False))


def log_image_summary(name: str, summary: "ImageSummary", image_size: int | None = None) -> None:
    """Print on stderr what a folder or list of images holds."""
    from marginctl.console.progress import log_lines
    from marginctl.reports.data_summary import image_lines

    log_lines(f"{name}: {line}" for line in image_lines(summary, image_size))
