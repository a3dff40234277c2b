"""What `train`, `cosify` and `transfer` share: their options, and running a recipe's trials."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from marginctl.cli import common_options, completion
from marginctl.cli.common_options import argument, integer, log_image_summary, option, print_json
from marginctl.errors import MarginctlError

Recipe = Annotated[
    str | None,
    argument(
        "RECIPE", "Name or file of a recipe. Omit to use options only.", complete=completion.recipe
    ),
]
Data = Annotated[
    str | None,
    option(
        "NAME",
        "Image data set: digits, mnist, cifar-100, folder:PATH, ...",
        complete=completion.images,
    ),
]
Groups = Annotated[
    str | None,
    option(
        "CSV|re:PATTERN",
        "Hold out images of one person or object together: a CSV with the columns image and group, "
        "or a pattern of file names, such as re:^(p\\d+)_.",
    ),
]
Epochs = Annotated[int | None, option("N", "Number of epochs.", integer(1))]
Tune = Annotated[
    bool | None,
    typer.Option(
        help="Choose learning rate and options of every objective on a validation part (default: "
        "as the recipe says; comparisons on own data are tuned)."
    ),
]
SaveModel = Annotated[
    Path | None,
    option("FILE", "Save the best network by validation for predict (one objective without)."),
]


@dataclass(frozen=True)
class RunOptions:
    """The options of a command besides those that change its recipe."""

    seeds: Annotated[
        int | None, option("N", "Number of seeds (0 to N - 1).", integer(1, 10000))
    ] = None
    keep: Annotated[
        int, option("N", "Recent checkpoints to keep, besides the best.", integer(1))
    ] = 1
    checkpoint_minutes: Annotated[
        float, option("MINUTES", "Checkpoint interval.", common_options.non_negative)
    ] = 5.0
    decode_workers: Annotated[
        int | None,
        option(
            "N",
            "Processes that decode images from files (default: one per core, at most 16).",
            integer(0),
        ),
    ] = None
    tensorboard: Annotated[
        Path | None,
        option(
            "FOLDER", "Write the metrics of every epoch for TensorBoard.", common_options.folder
        ),
    ] = None
    report_format: common_options.ReportFormat = "table"
    json: common_options.Json = False
    set_: common_options.Set = None
    seed: common_options.Seed = None
    out: common_options.Out = common_options.RUNS
    data_dir: common_options.DataDir = None
    device: common_options.Device = "auto"
    workers: Annotated[
        int | None,
        option(
            "N",
            "Trials trained side by side, with the same results (default: one per core or GPU, "
            "unless all take a few seconds).",
            integer(1),
        ),
    ] = None
    gpu_fast_path: Annotated[
        bool | None,
        typer.Option(
            help="Fused optimizer, and cuDNN's fastest algorithms by timing (default: as the "
            "recipe says, else off). For CUDA; it has never run on a GPU."
        ),
    ] = None
    cuda_graphs: Annotated[
        bool | None,
        typer.Option(
            help="Launch each training step as one CUDA graph, for small networks (default: as "
            "the recipe says, else off). For CUDA; it has never run on a GPU."
        ),
    ] = None
    dry_run: common_options.DryRun = False
    quiet: common_options.Quiet = False


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the fields of `RunOptions` as options to a command that takes them as `run`."""
    parameters = [p for p in inspect.signature(command).parameters.values() if p.name != "run"]
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=field.default,
            annotation=field.type,
        )
        for field in fields(RunOptions)
    ]

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        run = RunOptions(**{field.name: values.pop(field.name) for field in fields(RunOptions)})
        command(**values, run=run)

    wrapped.__signature__ = inspect.Signature([*parameters, *shared])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in (*parameters, *shared)}
    return wrapped


def run_task(
    task: str,
    recipe: str | None,
    recipe_options: Mapping[str, tuple[str, Any]],
    run: RunOptions,
    after: Callable[[Any], None] | None = None,
    *,
    tune: bool | None = None,
    save_model: Path | None = None,
    metric: str = "accuracy",
    remarks: Sequence[str] = (),
) -> None:
    """Run the trials of a recipe and print their table.

    Args:
        recipe_options: dotted key -> (option, value), besides the seeds.
        after: called with the session when its table is printed.
        remarks: lines to print before those of the session.
    """
    from marginctl.console.progress import TrainProgress, log_lines, phase
    from marginctl.console.tensorboard import TensorBoard, check
    from marginctl.data.images.registry import IMAGE_SETS
    from marginctl.data.loading.workers import WORKERS_VARIABLE
    from marginctl.errors import RequestError
    from marginctl.experiments.execution import run_trials
    from marginctl.experiments.request import Request
    from marginctl.experiments.run_trial import CheckpointPolicy
    from marginctl.experiments.tasks import TASKS
    from marginctl.metrics.registry import check_metric, network_metric
    from marginctl.reports.formats.output import print_report, print_sentences
    from marginctl.reports.tables.plan_table import plan_lines
    from marginctl.utils.device import is_main_process, is_other_process_of_torchrun, world_size

    if run.decode_workers is not None:
        os.environ[WORKERS_VARIABLE] = str(run.decode_workers)
    check_metric(metric)
    seeds = None if run.seeds is None else list(range(run.seeds))
    if run.seed and seeds is not None:
        raise RequestError("--seed and --seeds: give one of them")
    if run.workers is not None and run.workers > 1 and world_size() > 1:
        raise RequestError(
            f"--workers {run.workers}: torchrun has started {world_size()} processes that train "
            "together: leave one of them out"
        )
    if run.tensorboard:
        check(run.tensorboard)
    seed_option = ("--seed", run.seed) if run.seed else ("--seeds", seeds)
    shared_options = {
        "seeds": seed_option,
        "train.gpu_fast_path": ("--gpu-fast-path", run.gpu_fast_path),
        "train.cuda_graphs": ("--cuda-graphs", run.cuda_graphs),
    }
    request = Request(
        recipe,
        {**recipe_options, **shared_options},
        run.set_ or [],
        run.data_dir,
        run.out,
        run.device,
        tune,
    )
    with phase("reading data", quiet=run.quiet):
        session = TASKS[task].load("prepare")(request)
    if metric != "accuracy" and session.recipe.paper is not None:
        raise RequestError(
            f"--metric {metric}: {recipe} is of a paper and has the accuracy alone: expected "
            "--metric accuracy"
        )
    prints = is_main_process()
    if save_model is not None:
        from marginctl.experiments.trained_model import check_one_model, trained_model
        from marginctl.runs.atomic_io import check_outputs

        check_outputs({"--save-model": save_model})
        check_one_model(session)
    if prints and not run.quiet:
        log_lines([*remarks, *session.remarks])
    if run.dry_run:
        if not is_other_process_of_torchrun():
            estimate = TASKS[task].load("estimate")(session)
            if run.json:
                print_json({"schema": 1, "command": task, "dry_run": estimate})
            else:
                print_sentences(plan_lines(estimate))
                common_options.print_same_without_dry_run()
        return
    steps = {trial: session.steps(trial) for trial in session.unfinished()}
    if prints and not run.quiet and steps:
        for name, summary in session.summaries.items():
            size = next(i.image_size for i in session.images.values() if i.name == name)
            log_image_summary(name, summary, size)
        for name in dict.fromkeys(i.name for i in session.images.values()):
            entry = IMAGE_SETS.get(name)
            if entry and entry.metric not in ("accuracy", metric) and session.recipe.paper is None:
                log_lines([f"{name} is usually compared by --metric {entry.metric}"])
    quiet = run.quiet or not prints
    costs = {} if quiet else {trial: session.step_operations(trial) for trial in steps}
    with TrainProgress(steps, len(session.trials), quiet=quiet, costs=costs) as progress:
        callback = TensorBoard(progress, session, run.tensorboard) if run.tensorboard else progress
        checkpoints = CheckpointPolicy(run.checkpoint_minutes, run.keep)
        outcome = run_trials(session, callback, checkpoints, callback.done, run.workers)
    if not prints:
        raise typer.Exit(1 if outcome.failed else 0)
    results = list(outcome.results.values())
    if run.json or results:
        report = TASKS[task].load("report")(
            results, session.recipe, outcome.failed, network_metric(metric)
        )
        print_report(report, "json" if run.json else run.report_format)
    if after is not None:
        after(session)
    if save_model is not None and not outcome.failed:
        model = trained_model(session, outcome.results)
        model.save(save_model)
        if not run.quiet:
            log_lines([f"saved {model.record.chosen}: {save_model}"])
    if outcome.failed:
        raise MarginctlError(*outcome.failed)
    common_options.print_next_step("report", session.folder)
