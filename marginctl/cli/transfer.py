"""marginctl transfer."""

import enum
from pathlib import Path
from typing import Annotated, Any

import typer

from marginctl.cli import completion, options, training_options


class Method(enum.StrEnum):
    probe = "probe"
    fine_tune = "fine-tune"


def command(
    recipe: training_options.Recipe = None,
    start: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="START",
            help="A trained network: a trial's folder, a folder of trials, a checkpoint, or "
            "weights such as ResNet50_Weights.IMAGENET1K_V1 or efficientnet-lite0; repeatable.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="NAME",
            help="folder:PATH with train/CLASS/IMAGE and val/CLASS/IMAGE, digits, mnist, ...; "
            "repeatable.",
            autocompletion=completion.images,
        ),
    ] = None,
    method: Annotated[
        list[Method] | None,
        typer.Option(
            "--method",
            help="A linear classifier on frozen features, or fine-tuning; repeatable.",
        ),
    ] = None,
    objective: options.Objectives = None,
    epochs: training_options.Epochs = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            "--predictions",
            metavar="FILE",
            help="Write what is said of each test image as CSV.",
        ),
    ] = None,
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
    """See what trained networks are worth on other images: linear probes, or fine-tuning.

    A probe is a linear classifier on the frozen network's features, fitted by L-BFGS; the strength
    of its penalty is chosen on a part of the training images. Features are kept in the run store.
    Finished trials are kept: the same command again computes what is missing.
    """
    from marginctl.runs.atomic_io import check_writable

    if predictions is not None:
        check_writable(predictions)

    def after(session: Any) -> None:
        if predictions is not None:
            session.write_predictions(predictions)

    training_options.perform(
        "transfer",
        recipe,
        {
            "source_models": ("--from", start or None),
            # both: the first one stands for the others where a recipe is checked as a whole
            "data.name": ("--data", data[0] if data else None),
            "grid.data.name": ("--data", data or None),
            "method": ("--method", str(method[0]) if method else None),
            "grid.method": ("--method", list(map(str, method)) if method else None),
            "objectives": ("--objective", objective),
            "train.epochs": ("--epochs", epochs),
        },
        training_options.How(
            *(set_ or [], seed, seeds, keep, checkpoint_minutes, tensorboard, report_format, json),
            *(out, data_dir, device, dry_run, quiet),
        ),
        after,
    )
