"""marginctl eval."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import options
from marginctl.cli.options import integer, print_json


class Which(enum.StrEnum):
    last = "last"
    best = "best"


def command(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A trial's folder in a run store, a checkpoint, or weights of torchvision: "
            "ResNet50_Weights.IMAGENET1K_V2, or resnet50 for the newest.",
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="NAME", help="Other images than its own; of weights, which images."
        ),
    ] = None,
    which: Annotated[
        Which,
        typer.Option("--checkpoint", help="Of a folder: after the last epoch, or the best one."),
    ] = Which.last,
    bins: Annotated[
        int,
        typer.Option("--bins", metavar="N", parser=integer(1, 1000), help="Of the calibration."),
    ] = 15,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            metavar="FILE",
            help="A map of `calibrate --save`: also show the calibrated numbers.",
        ),
    ] = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
) -> None:
    """Evaluate a trained network: accuracy with its interval, calibration, angles, confusion."""
    from marginctl.data.uci import default_data_dir
    from marginctl.devices import resolve_device
    from marginctl.evaluation.document import as_text
    from marginctl.training import evaluate, weights

    folder = data_dir or default_data_dir()
    place = resolve_device(device, accelerated=True)
    if weights.is_name(run):
        found = weights.evaluate_weights(run, data, folder, place, bins, calibration)
        title = weights.title(found)
    else:
        found = evaluate.evaluate(Path(run), data, which.value, folder, place, bins, calibration)
        title = evaluate.title(found)
    if json:
        print_json(found)
    else:
        print("\n".join(as_text(title, found)))
