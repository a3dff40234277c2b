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
        Path,
        typer.Argument(metavar="RUN", help="A trial's folder in a run store, or a checkpoint."),
    ],
    data: Annotated[
        str | None, typer.Option("--data", metavar="NAME", help="Other images than its own.")
    ] = None,
    which: Annotated[
        Which,
        typer.Option("--checkpoint", help="Of a folder: after the last epoch, or the best one."),
    ] = Which.last,
    bins: Annotated[
        int,
        typer.Option("--bins", metavar="N", parser=integer(1, 1000), help="Of the calibration."),
    ] = 15,
    json: options.Json = False,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
) -> None:
    """Evaluate a trained network: accuracy with its interval, calibration, angles, confusion."""
    from marginctl.data.uci import default_data_dir
    from marginctl.devices import resolve_device
    from marginctl.training.evaluate import as_text, evaluate

    found = evaluate(
        *(run, data, which.value, data_dir or default_data_dir()),
        resolve_device(device, accelerated=True),
        bins,
    )
    if json:
        print_json(found)
    else:
        print("\n".join(as_text(found)))
