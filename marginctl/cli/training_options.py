"""What `train` and `cosify` have in common: their options, and running a recipe's trials."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marginctl.cli import completion, options
from marginctl.cli.options import integer, print_json
from marginctl.errors import MarginctlError

if TYPE_CHECKING:
    from marginctl.experiments.training_session import Session
    from marginctl.recipe import ImageRecipe
    from marginctl.reports.tables.table import Report

Recipe = Annotated[
    str | None,
    typer.Argument(
        metavar="RECIPE",
        help="A shipped recipe's name, or a file; none: the options alone.",
        autocompletion=completion.recipe,
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="NAME",
        help="digits, mnist, cifar-100, folder:PATH, ...",
        autocompletion=completion.images,
    ),
]
Epochs = Annotated[
    int | None, typer.Option("--epochs", metavar="N", parser=integer(1), help="Epochs.")
]
SeedCount = Annotated[
    int | None,
    typer.Option("--seeds", metavar="N", parser=integer(1, 10_000), help="So many, from 0."),
]
Keep = Annotated[
    int,
    typer.Option(
        "--keep", metavar="N", parser=integer(1), help="Checkpoints that stay, the best apart."
    ),
]
CheckpointMinutes = Annotated[
    float,
    typer.Option(
        "--checkpoint-minutes",
        metavar="MINUTES",
        parser=options.number(0),
        help="Between two checkpoints.",
    ),
]
TensorBoardFolder = Annotated[
    Path | None,
    typer.Option(
        "--tensorboard",
        metavar="FOLDER",
        parser=options.folder,
        help="Write every epoch there for TensorBoard.",
    ),
]
# results, their recipe, and a line for each trial without a result
Builder = Callable[[Sequence[Any], Any, Sequence[str]], "Report"]


@dataclass(frozen=True)
class How:
    """The options of a call that say how, and not what, is trained."""

    overrides: list[str]
    seed: list[int] | None
    seeds: int | None
    keep: int
    checkpoint_minutes: float
    tensorboard: Path | None
    report_format: str
    json: bool
    out: Path
    data_dir: Path | None
    device: str
    dry_run: bool
    quiet: bool


def perform(
    schema: "type[ImageRecipe]",
    recipe: str | None,
    given: Mapping[str, tuple[str, Any]],
    how: How,
    build_report: Builder,
    kind: "type[Session] | None" = None,
    after: "Callable[[Any], None] | None" = None,
) -> None:
    """Runs the trials of a recipe and prints their table.

    Args:
        schema: of the recipe.
        recipe: its name, or None for what the options alone say.
        given: dotted key -> (option, value), beside the seeds.
        how: all other options.
        build_report: returns what is printed of the results.
        kind: of session; None for that of `train` and `cosify`.
        after: called with the session when its trials are done.
    """
    from marginctl.console.progress import TrainProgress
    from marginctl.console.tensorboard import TensorBoard, check
    from marginctl.errors import RequestError
    from marginctl.experiments.execution import run
    from marginctl.experiments.training_session import Session
    from marginctl.reports.formats.output import print_report, print_sentences
    from marginctl.reports.tables.plan_table import plan_lines
    from marginctl.utils.device import is_main_process

    seeds = None if how.seeds is None else list(range(how.seeds))
    if how.seed and seeds is not None:
        raise RequestError("--seed and --seeds: give one of them")
    if how.tensorboard:
        check(how.tensorboard)
    session = (kind or Session).open(
        recipe,
        schema=schema,
        overrides=how.overrides,
        options={
            **given,
            "seeds": ("--seed", how.seed) if how.seed else ("--seeds", seeds),
        },
        data_dir=how.data_dir,
        out=how.out,
        device=how.device,
    )
    speaks = is_main_process()
    if how.dry_run:
        if speaks:
            planned = session.plan()
            if how.json:
                print_json({"schema": 1, "command": session.recipe.task, "dry_run": planned})
            else:
                print_sentences(plan_lines(planned))
        return
    with TrainProgress(len(session.trials), quiet=how.quiet or not speaks) as progress:
        listener = TensorBoard(progress, session, how.tensorboard) if how.tensorboard else progress
        outcome = run(
            session, listener, keep=how.keep, minutes=how.checkpoint_minutes, on_done=listener.done
        )
    if not speaks:
        raise typer.Exit(1 if outcome.failed else 0)
    if after is not None:
        after(session)
    records = list(outcome.records.values())
    if how.json or records:
        report = build_report(records, session.recipe, outcome.failed)
        print_report(report, "json" if how.json else how.report_format)
    if outcome.failed:
        raise MarginctlError(*outcome.failed)
