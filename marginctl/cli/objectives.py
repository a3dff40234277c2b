"""marginctl objectives: list and show."""

from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import options
from marginctl.cli.options import integer, print_json

app = typer.Typer(help="The objectives and their options.", no_args_is_help=True)


@app.command("list")
def list_(
    parts: Annotated[
        bool, typer.Option("--parts", help="The parts and schedules to compose from instead.")
    ] = False,
    json: options.Json = False,
) -> None:
    """List the objectives with their defaults and where they were published."""
    from marginctl.objectives.describe import describe, list_parts, summarize
    from marginctl.objectives.parsing import parse_preset
    from marginctl.objectives.presets import PRESETS
    from marginctl.reports.formats.output import print_rows, value_text

    if parts:
        document = list_parts()
        if json:
            print_json(document)
            return
        print_rows(document["parts"], ["part", "kind", "option", "default", "expected", "help"])
        print()
        print_rows(document["schedules"], ["schedule", "option", "default", "expected", "help"])
        return
    if json:
        print_json([describe(parse_preset(name)) for name in PRESETS])
        return
    rows = [summarize(parse_preset(name)) for name in PRESETS]
    for row in rows:
        row["defaults"] = ", ".join(
            f"{o['name']}={value_text(o['default'])}" for o in row["options"]
        )
    print_rows(rows, ["name", "defaults", "title", "source"])


@app.command()
def show(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="Objectives, with options or without, or parts."),
    ],
    classes: Annotated[
        int,
        typer.Option(
            "--classes", metavar="C", parser=integer(2, 10**9), help="For theory and figure."
        ),
    ] = 10,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Draw the target's logit, the loss and its gradient: .png, .svg or .pdf.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Show objectives: formula, options with ranges, source, two classes, and what theory says."""
    from marginctl.objectives.describe import describe
    from marginctl.objectives.parsing import parse
    from marginctl.reports.formats.output import print_objective

    found = [describe(parse(name), classes) for name in names]
    if plot is not None:
        from marginctl.console.progress import log_lines
        from marginctl.reports.figures.objective_curves import draw

        draw(names, classes, plot)
        log_lines([f"wrote {plot}"])
    if json:
        print_json(found[0] if len(found) == 1 else found)
        return
    for i, one in enumerate(found):
        print_objective(one, first=i == 0)
