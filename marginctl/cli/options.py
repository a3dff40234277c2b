"""Options that several commands share."""

import enum
import json
from pathlib import Path
from typing import Annotated, Any

import typer

RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A shipped recipe's name, or a file.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a dotted key of the recipe; repeatable."
    ),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Replaces the recipe's seeds.")]
Out = Annotated[Path, typer.Option("--out", help="The run store.")]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="The data folder; else MARGINCTL_DATA, else the user's cache."),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes; one a core where not given.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would run, and about how long.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


class Format(enum.StrEnum):
    table = "table"
    markdown = "markdown"
    csv = "csv"


TableFormat = Annotated[Format, typer.Option("--format", help="How the table is printed.")]


def print_json(document: Any) -> None:
    """Exactly one JSON document on stdout; NaN is refused."""
    print(json.dumps(document, indent=1, allow_nan=False))
