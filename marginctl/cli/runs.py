"""marginctl runs: list and remove."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import common_options
from marginctl.cli.common_options import argument, flag, print_json
from marginctl.errors import RequestError

app = typer.Typer(help="Finished and unfinished trials on disk.", no_args_is_help=True)


@app.command("list")
def list_(
    folder: Annotated[Path, argument("FOLDER", "Runs folder.")] = common_options.RUNS,
    json: common_options.Json = False,
) -> None:
    """List the folders of trials, and the space that they take."""
    from marginctl.reports.formats.output import print_rows
    from marginctl.runs.disk_usage import stored_runs

    rows = [asdict(row) for row in stored_runs(folder)]
    if json:
        print_json(rows)
        return
    total = {key: sum(row[key] for row in rows) for key in ("checkpoints", "size")}
    for row in [*rows, total]:
        row |= {f"{key} (MB)": f"{row[key] / 1e6:.1f}" for key in ("checkpoints", "size")}
        row["last written"] = row.get("last_written", "")
    count = {key: sum(row[key] for row in rows) for key in ("trials", "finished")}
    columns = ("folder", "trials", "finished", "checkpoints (MB)", "size (MB)", "last written")
    print_rows([*rows, {"folder": "total"} | total | count], columns)


@app.command()
def remove(
    folders: Annotated[
        list[Path], argument("FOLDER", "Runs folders, folders in them, or folders of trials.")
    ],
    checkpoints: Annotated[
        bool, flag("--checkpoints", "Only checkpoints of finished trials: results stay.")
    ] = False,
    yes: Annotated[bool, flag("--yes", "Do not ask.")] = False,
) -> None:
    """Remove trials, or only their checkpoints, after a question.

    Without its checkpoints, a finished trial stays in every report, but its network can no longer
    be evaluated or used as a source model.
    """
    from marginctl.console.progress import log_lines
    from marginctl.reports.formats.output import print_lines
    from marginctl.runs.disk_usage import remove_runs, stored_runs
    from marginctl.utils.text import count_noun

    rows = [row for folder in folders for row in stored_runs(folder)]
    if checkpoints:
        trials, size = sum(row.finished for row in rows), sum(row.checkpoints for row in rows)
        what = f"the checkpoints of {count_noun(trials, 'finished trial')}"
    else:
        trials, size = sum(row.trials for row in rows), sum(row.size for row in rows)
        what = count_noun(trials, "trial")
    what += f", {size / 1e6:.1f} MB"
    if not yes:
        if not sys.stdin.isatty():
            raise RequestError(f"{what}: nothing was removed: add --yes")
        typer.confirm(f"Remove {what}?", abort=True)
    count, skipped = remove_runs(folders, checkpoints_only=checkpoints)
    log_lines(skipped)
    print_lines([f"removed {'checkpoints of ' if checkpoints else ''}{count_noun(count, 'trial')}"])
