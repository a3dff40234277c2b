"""marginctl bench."""

from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import bench_cpu, options
from marginctl.cli.options import integer, print_json
from marginctl.errors import MarginctlError, RequestError

app = typer.Typer()


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="The same as `bench networks --device`."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="As little as shows that all of it works; in a minute."),
    ] = False,
    data_dir: options.DataDir = None,
    json: options.Json = False,
) -> None:
    """Benchmarks, each against what one would use instead.

    Without a COMMAND all of them, smaller, in 3 to 5 minutes on 2 CPU cores: one table of ratios.
    A COMMAND runs one of them at its full size.
    """
    before = context.invoked_subcommand
    if before is not None:
        given = {"--device": device, "--quick": quick, "--data-dir": data_dir, "--json": json}
        for option in (name for name, value in given.items() if value):
            if option == "--quick":
                raise RequestError(f"--quick: is of 'bench' alone, not of '{before}': leave it out")
            raise RequestError(f"{option}: stands before '{before}': put it behind")
    elif device is not None:
        if quick:
            raise RequestError("--quick: is not of --device, whose work is set by --minutes")
        networks(device=device, data_dir=data_dir, json=json)
    else:
        _all(quick, data_dir, json)


def _all(quick: bool, data_dir: Path | None, json: bool) -> None:
    from marginctl.bench import suite
    from marginctl.console.progress import log_lines
    from marginctl.reports.tables.bench_table import print_together

    document = suite.run(
        suite.QUICK if quick else suite.USUAL,
        quick=quick,
        data_dir=data_dir,
        say=lambda line: log_lines([line]),
    )
    if json:
        print_json(document)
    else:
        print_together(document)


@app.command("networks")
def networks(
    epochs: Annotated[
        int, typer.Option("--epochs", metavar="N", parser=integer(1), help="Of Table 2's rows.")
    ] = 50,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", parser=integer(1, 100), help="Of each row.")
    ] = 3,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples", metavar="N", parser=integer(100), help="Training images; else 50,000."
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="A backbone to time; repeatable. Else layer13, resnet18.",
        ),
    ] = None,
    timed: Annotated[
        int,
        typer.Option("--timed", metavar="N", parser=integer(1), help="Epochs of each that count."),
    ] = 3,
    minutes: Annotated[
        float,
        typer.Option(
            "--minutes",
            metavar="MINUTES",
            min=0,
            help="Time parts of long epochs; begin no training that would end later.",
        ),
    ] = 10.0,
    out: options.Out = Path("runs"),
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Time training on CIFAR-100 and train two rows of Large Margin's Table 2, on a GPU.

    Seconds an epoch, images a second and the share of the card's peak; then softmax and lm-softmax
    with the 13-layer network as the table has them. What there was no time for, the same command
    trains when it is given again: nothing is begun that would end after --minutes.
    """
    from marginctl.bench.networks import MODELS, run
    from marginctl.console.progress import TrainProgress
    from marginctl.models.registry import check_image_shape, parse_model
    from marginctl.reports.tables.bench_table import print_networks
    from marginctl.reports.tables.train_table import rows_of
    from marginctl.utils.device import resolve_device

    for name in model or ():
        check_image_shape(parse_model(name)[0], 3, 32)
    with TrainProgress(2 * seeds, quiet=False) as progress:
        document, results = run(
            device=resolve_device(device, accelerated=True),
            epochs=epochs,
            seeds=seeds,
            samples=samples,
            models=model or MODELS,
            timed_epochs=timed,
            minutes=minutes,
            data_dir=data_dir,
            out=out,
            progress=progress,
        )
    document["table"]["cells"] = [cell.as_json() for cell in rows_of(results)]
    if json:
        print_json(document)
    else:
        print_networks(document)
    if document["failed"]:
        raise MarginctlError(*document["failed"])


app.command("uci-cv")(bench_cpu.uci_cv)
app.command("objectives")(bench_cpu.objectives)
app.command("train")(bench_cpu.train)
app.command("kappa")(bench_cpu.kappa)
app.command("probe")(bench_cpu.probe)
