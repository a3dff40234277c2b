"""marginctl recipes: list, show, keys, validate and copy."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import common_options
from marginctl.cli.common_options import argument, flag, option, print_json
from marginctl.errors import RequestError

app = typer.Typer(help="The shipped recipes.", no_args_is_help=True)


@app.command("list")
def list_(
    paper: Annotated[str | None, option("NAME", "Recipes of one paper.")] = None,
    task: Annotated[str | None, option("NAME", "Recipes of one command, such as train.")] = None,
    cpu: Annotated[bool, flag("--cpu", "Recipes that a CPU can run.")] = False,
    out: common_options.Out = common_options.RUNS,
    json: common_options.Json = False,
) -> None:
    """List the shipped recipes: when the authors ran each, and its finished trials in your runs."""
    from marginctl.experiments.tasks import find_task, recipe_summaries
    from marginctl.papers import check_paper
    from marginctl.reports.formats.output import print_rows

    if paper is not None:
        check_paper(paper)
    if task is not None:
        find_task(task)
    rows = recipe_summaries(out, paper=paper, task=task, cpu=cpu)
    if json:
        print_json(rows)
        return
    columns = ("name", "task", "data", "cost", "run by the authors", "your trials")
    for row in rows:
        row["run by the authors"] = str(row["status"]).removeprefix("run ")
        row["your trials"] = row["your_runs"]
    print_rows(rows, columns)
    common_options.print_next_step("recipes show", *(row["name"] for row in rows[:1]))


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
def keys(
    task: Annotated[str, argument("TASK", "A command that takes recipes, such as train.")],
    json: common_options.Json = False,
) -> None:
    """List the keys of a task's recipes: what each takes, its default and its meaning."""
    from marginctl.experiments.tasks import find_task
    from marginctl.recipe.keys import recipe_keys
    from marginctl.reports.formats.output import print_rows

    rows = [asdict(row) for row in recipe_keys(find_task(task).load("schema"))]
    if json:
        print_json(rows)
    else:
        print_rows(rows, ("key", "takes", "default", "description"))


@app.command()
def copy(
    recipe: common_options.RecipeName,
    to: Annotated[Path, argument("FILE", "Target file or folder.")],
    force: Annotated[bool, flag("--force", "Replace an existing file.")] = False,
) -> None:
    """Copy a recipe to a file."""
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
    common_options.print_next_step("recipes validate", target)
