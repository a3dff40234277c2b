"""What `train` and `cosify` have in common: their options, and running a recipe's trials."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marginctl.cli import completion, options
from marginctl.cli.options import integer, print_json
from marginctl.errors import MarginctlError

if TYPE_CHECKING:
    pass

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
    task: str,
    recipe: str | None,
    given: Mapping[str, tuple[str, Any]],
    how: How,
    after: "Callable[[Any], None] | None" = None,
) -> None:
    """Run the trials of a recipe and print their table.

    Args:
        task: the name of the task.
        recipe: the name or file of the recipe, or None for one of options alone.
        given: dotted key -> (option, value), besides the seeds.
        how: all other options.
        after: called with the session after its trials.
    """
    from marginctl.console.progress import TrainProgress
    from marginctl.console.tensorboard import TensorBoard, check
    from marginctl.errors import RequestError
    from marginctl.experiments.checks import Request
    from marginctl.experiments.execution import run_trials
    from marginctl.experiments.run_trial import CheckpointPolicy
    from marginctl.experiments.tasks import TASKS
    from marginctl.reports.formats.output import print_report, print_sentences
    from marginctl.reports.tables.plan_table import plan_lines
    from marginctl.utils.device import is_main_process

    seeds = None if how.seeds is None else list(range(how.seeds))
    if how.seed and seeds is not None:
        raise RequestError("--seed and --seeds: give one of them")
    if how.tensorboard:
        check(how.tensorboard)
    seed_option = ("--seed", how.seed) if how.seed else ("--seeds", seeds)
    session = TASKS[task].load("prepare")(
        Request(
            recipe,
            {**given, "seeds": seed_option},
            how.overrides,
            how.data_dir,
            how.out,
            how.device,
        )
    )
    speaks = is_main_process()
    if how.dry_run:
        if speaks:
            planned = TASKS[task].load("estimate")(session)
            if how.json:
                print_json({"schema": 1, "command": session.recipe.task, "dry_run": planned})
            else:
                print_sentences(plan_lines(planned))
        return
    with TrainProgress(len(session.trials), quiet=how.quiet or not speaks) as progress:
        listener = TensorBoard(progress, session, how.tensorboard) if how.tensorboard else progress
        checkpoints = CheckpointPolicy(how.checkpoint_minutes, how.keep)
        outcome = run_trials(session, listener, checkpoints, listener.done)
    if not speaks:
        raise typer.Exit(1 if outcome.failed else 0)
    if after is not None:
        after(session)
    records = list(outcome.results.values())
    if how.json or records:
        report = TASKS[task].load("report")(records, session.recipe, outcome.failed)
        print_report(report, "json" if how.json else how.report_format)
    if outcome.failed:
        raise MarginctlError(*outcome.failed)
