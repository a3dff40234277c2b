"""marginctl train."""

from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import completion, options, training_options


def command(
    recipe: training_options.Recipe = None,
    data: training_options.Data = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="A backbone: NAME:option=value,...",
            autocompletion=completion.model,
        ),
    ] = None,
    objective: options.Objectives = None,
    ood: options.Ood = None,
    pairs: options.Pairs = None,
    epochs: training_options.Epochs = None,
    seeds: training_options.SeedCount = None,
    keep: training_options.Keep = 1,
    checkpoint_minutes: training_options.CheckpointMinutes = 5.0,
    tensorboard: training_options.TensorBoardFolder = None,
    report_format: options.ReportFormat = "table",
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
    training_options.perform(
        "train",
        recipe,
        {
            "data.name": ("--data", data),
            "model": ("--model", model),
            "objectives": ("--objective", objective),
            "ood": ("--ood", ood),
            "pairs": ("--pairs", pairs),
            "train.epochs": ("--epochs", epochs),
        },
        training_options.How(
            *(set_ or [], seed, seeds, keep, checkpoint_minutes, tensorboard, report_format, json),
            *(out, data_dir, device, dry_run, quiet),
        ),
    )
