"""marginctl objectives: list and show."""

from typing import Annotated

import typer

from marginctl.cli import options
from marginctl.cli.options import print_json

app = typer.Typer(help="The objectives and their options.", no_args_is_help=True)


@app.command("list")
def list_(json: options.Json = False) -> None:
    """List the objectives with their defaults and where they were published."""
    from marginctl.objectives.names import described
    from marginctl.objectives.presets import PRESETS
    from marginctl.reporting.listing import print_rows, shown

    rows = [described(name) for name in PRESETS]
    if json:
        print_json(rows)
        return
    for row in rows:
        row["defaults"] = ", ".join(f"{o['name']}={shown(o['default'])}" for o in row["options"])
    print_rows(rows, ["name", "defaults", "title", "source"])


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An objective's name.")],
    json: options.Json = False,
) -> None:
    """Show an objective: its formula, options with ranges, source, and what two classes mean."""
    from marginctl.objectives.names import described
    from marginctl.reporting.listing import print_rows

    found = described(name)
    if json:
        print_json(found)
        return
    print(f"{found['name']}: {found['title']} ({found['source']})")
    print(f"  loss of a sample: {found['formula']}")
    for role, text in found["parts"].items():
        print(f"  {role}: {text}")
    if found["two_classes"]:
        print(f"  with two classes: {found['two_classes']}")
    if found["options"]:
        print()
        print_rows(found["options"], ["name", "default", "expected", "help"])
