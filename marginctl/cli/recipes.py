"""marginctl recipes: list, show, validate and copy."""

from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import common_options
from marginctl.cli.common_options import argument, print_json

app = typer.Typer(help="The shipped recipes.", no_args_is_help=True)


@app.command("list")
def list_(json: common_options.Json = False) -> None:
    """List the shipped recipes."""
    from marginctl.experiments.tasks import recipe_summaries
    from marginctl.reports.formats.output import print_rows

    rows = recipe_summaries()
    if json:
        print_json(rows)
    else:
        print_rows(rows, ["name", "paper", "table", "task", "data", "cost", "status"])


@app.command()
def show(recipe: common_options.RecipeName) -> None:
    """Print the file of a recipe."""
    from marginctl.recipe.load import find_recipe
    from marginctl.reports.formats.output import print_lines
    from marginctl.utils.yaml import read_text

    file = find_recipe(recipe)
    print_lines(read_text(file.path, str(file.path)).removesuffix("\n").split("\n"))


@app.command()
def validate(
    recipe: Annotated[list[str], argument("RECIPE", "Names or files of recipes.")],
    set_: common_options.Set = None,
) -> None:
    """Validate recipes and print all their errors."""
    from marginctl.errors import RequestError
    from marginctl.experiments.tasks import load_any_recipe
    from marginctl.recipe.load import find_recipe
    from marginctl.reports.formats.output import print_lines

    problems: list[str] = []
    for name in recipe:
        try:
            load_any_recipe(find_recipe(name), set_ or [])
            print_lines([f"{name}: valid"])
        except RequestError as error:
            problems += error.lines
    if problems:
        raise RequestError(*problems)


@app.command()
def copy(
    recipe: common_options.RecipeName,
    to: Annotated[Path, argument("FILE", "Target file or folder.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Copy a recipe to a file."""
    from marginctl.errors import RequestError
    from marginctl.recipe.load import find_recipe
    from marginctl.reports.formats.output import print_lines
    from marginctl.runs.atomic_io import check_outputs, write_output
    from marginctl.utils.yaml import read_text

    source = find_recipe(recipe).path
    target = to / source.name if to.is_dir() else to
    if target.exists() and not force:
        raise RequestError(f"{target}: exists already: name another file, or add --force")
    check_outputs({"FILE": target}, [source])
    write_output(target, read_text(source, str(source)))
    print_lines([str(target)])
