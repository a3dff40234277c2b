"""marginctl train."""

from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import options
from marginctl.cli.options import Format, integer, print_json
from marginctl.errors import MarginctlError


def command(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="[RECIPE]", help="A shipped recipe's name, or a file; none: the options alone."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="NAME", help="digits, mnist, cifar-100, folder:PATH, ..."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="A backbone: NAME:option=value,..."),
    ] = None,
    objective: options.Objectives = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", metavar="N", parser=integer(1), help="Epochs.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", metavar="N", parser=integer(1, 10_000), help="So many, from 0."),
    ] = None,
    keep: Annotated[
        int,
        typer.Option(
            "--keep", metavar="N", parser=integer(1), help="Checkpoints that stay, the best apart."
        ),
    ] = 1,
    checkpoint_minutes: Annotated[
        float,
        typer.Option(
            "--checkpoint-minutes", metavar="MINUTES", min=0, help="Between two checkpoints."
        ),
    ] = 5.0,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            "--tensorboard",
            metavar="FOLDER",
            parser=options.folder,
            help="Write every epoch there for TensorBoard.",
        ),
    ] = None,
    table_format: options.TableFormat = Format.table,
    json: options.Json = False,
    set_: options.Set = None,
    seed: options.Seed = None,
    out: options.Out = Path("runs"),
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    dry_run: options.DryRun = False,
    quiet: options.Quiet = False,
) -> None:
    """Train objectives on images, by a recipe or by options alone.

    Prints the test accuracy of the last and of the best epoch over the seeds. Finished trials are
    kept in the run store, unfinished ones have checkpoints: the same command again resumes.
    """
    from marginctl.devices import first_process
    from marginctl.errors import RequestError
    from marginctl.reporting.tensorboard import TensorBoard, check
    from marginctl.reporting.train_plan import lines_of
    from marginctl.reporting.train_progress import TrainProgress
    from marginctl.reporting.train_table import as_json, print_as, rows_of
    from marginctl.training.session import Session, run

    if seed is not None and seeds is not None:
        raise RequestError("--seed and --seeds: give one of them")
    if tensorboard:
        check(tensorboard)
    session = Session.open(
        recipe,
        overrides=set_ or [],
        options={
            "data.name": ("--data", data),
            "model": ("--model", model),
            "objectives": ("--objective", objective),
            "train.epochs": ("--epochs", epochs),
            "seeds": ("--seed", [seed])
            if seed is not None
            else ("--seeds", None if seeds is None else list(range(seeds))),
        },
        data_dir=data_dir,
        out=out,
        device=device,
    )
    speaks = first_process()
    if dry_run:
        from marginctl.training.cost import plan

        if speaks:
            planned = plan(session)
            if json:
                print_json({"schema": 1, "command": "train", "dry_run": planned})
            else:
                print("\n".join(lines_of(planned)))
        return
    with TrainProgress(len(session.trials), quiet=quiet or not speaks) as progress:
        listener = TensorBoard(progress, session, tensorboard) if tensorboard else progress
        outcome = run(
            session, listener, keep=keep, minutes=checkpoint_minutes, on_done=listener.done
        )
    if not speaks:
        raise typer.Exit(1 if outcome.failed else 0)
    table = rows_of(outcome.records.values())
    if json:
        print_json(as_json(table, session.recipe, outcome.failed))
    elif table:
        print_as(table_format, table)
    if outcome.failed:
        raise MarginctlError(*outcome.failed)
