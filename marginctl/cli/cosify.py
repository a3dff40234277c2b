"""marginctl cosify."""

from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import options, training_options


def command(
    recipe: training_options.Recipe = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="START",
            help="The trained network: a trial's folder, a checkpoint in it, or weights such as "
            "ResNet50_Weights.IMAGENET1K_V1 or efficientnet-lite0.",
        ),
    ] = None,
    data: training_options.Data = None,
    blocks: Annotated[
        list[str] | None,
        typer.Option(
            "--blocks",
            metavar="BLOCKS",
            help="Which of four are fine-tuned: 1-4, 2-4, 3-4, 4, or head for none; repeatable.",
        ),
    ] = None,
    objective: options.Objectives = None,
    ood: options.Ood = None,
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
    """Turn a softmax network into a cosine one: a new classifier, and some blocks fine-tuned.

    The network goes on from what --from names, with a new classifier of the objective and without
    its own. Blocks that are not named stand still: their weights, their statistics of batch
    normalisation, their dropout. Prints the accuracy, kappa* and detection of the network before
    and after. Finished trials are kept, unfinished ones have checkpoints: the same command again
    resumes.
    """
    training_options.perform(
        "cosify",
        recipe,
        {
            "source_model": ("--from", start),
            "data.name": ("--data", data),
            "grid.blocks": ("--blocks", blocks or None),
            "objectives": ("--objective", objective),
            "ood": ("--ood", ood),
            "train.epochs": ("--epochs", epochs),
        },
        training_options.How(
            *(set_ or [], seed, seeds, keep, checkpoint_minutes, tensorboard, report_format, json),
            *(out, data_dir, device, dry_run, quiet),
        ),
    )
