"""marginctl objectives: list and show."""

from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import common_options
from marginctl.cli.common_options import argument, flag, integer, option, print_json

app = typer.Typer(help="List objectives and show their formulas and options.", no_args_is_help=True)


@app.command("list")
def list_(
    parts: Annotated[bool, flag("--parts", "List parts and schedules instead.")] = False,
    json: common_options.Json = False,
) -> None:
    """List the objectives with their defaults and sources."""
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
        list[str], argument("NAME", "Presets, with or without options, or compositions of parts.")
    ],
    classes: Annotated[
        int, option("C", "Number of classes for theory and figure.", integer(2, 10**9))
    ] = 10,
    plot: Annotated[
        Path | None, option("FILE", "Plot target logit, loss and gradient: .png, .svg or .pdf.")
    ] = None,
    json: common_options.Json = False,
) -> None:
    """Show objectives: formula, source, options and ranges, two classes, and theory."""
    from marginctl.objectives.describe import describe
    from marginctl.objectives.parsing import parse
    from marginctl.reports.formats.output import print_objective

    objectives = [parse(name) for name in names]
    documents = [describe(objective, classes) for objective in objectives]
    if plot is not None:
        from marginctl.reports.figures.objective_curves import check_plot

        check_plot(plot, classes)
    if json:
        print_json(documents[0] if len(documents) == 1 else documents)
    else:
        for i, document in enumerate(documents):
            print_objective(document, first=i == 0)
    if plot is not None:
        from marginctl.console.progress import log_lines
        from marginctl.reports.figures.objective_curves import draw

        draw(objectives, classes, plot)
        log_lines([f"wrote {plot}"])
