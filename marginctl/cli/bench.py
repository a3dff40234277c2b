"""marginctl bench."""

from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import options
from marginctl.cli.options import integer, print_json
from marginctl.errors import MarginctlError, RequestError

app = typer.Typer(help="Benchmarks, each against what one would use instead.")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="The same as `bench networks --device`."),
    ] = None,
) -> None:
    if context.invoked_subcommand is None:
        if device is None:
            print(context.get_help())
            raise typer.Exit(2)
        networks(device=device)
    elif device is not None:
        raise RequestError(
            f"--device {device}: stands before '{context.invoked_subcommand}': put it behind"
        )


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
    from marginctl.devices import resolve_device
    from marginctl.models.names import check_images, parse_model
    from marginctl.reporting.bench import print_networks
    from marginctl.reporting.train_progress import TrainProgress
    from marginctl.reporting.train_table import rows_of

    for name in model or ():
        check_images(parse_model(name)[0], 3, 32)
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


@app.command("uci-cv")
def uci_cv(
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", metavar="NAME", help="A data set; repeatable.")
    ] = None,
    rounds: Annotated[
        int,
        typer.Option("--rounds", metavar="N", parser=integer(1), help="How often each is timed."),
    ] = 3,
    epochs: Annotated[
        int,
        typer.Option("--epochs", metavar="N", parser=integer(1), help="Fewer for a quick look."),
    ] = 100,
    data_dir: options.DataDir = None,
    json: options.Json = False,
) -> None:
    """Time 100 networks (64-64, batch 32, Adam) stacked, in scikit-learn, and in a torch loop.

    Takes about 11 minutes on 2 CPU cores for the two data sets of the default.
    """
    from marginctl.bench.uci_cv import run
    from marginctl.reporting.bench import print_ratios
    from marginctl.reporting.progress import say

    document = run(
        dataset or ["iris", "banknote-authentication"],
        data_dir=data_dir,
        rounds=rounds,
        epochs=epochs,
        say=lambda line: say([line]),
    )
    if json:
        print_json(document)
    else:
        print_ratios(document)


def _size(text: str) -> tuple[int, int, int]:
    """Reads `N,C,d`."""
    try:
        rows, classes, length = (int(number) for number in text.split(","))
    except ValueError:
        rows = classes = length = 0
    if rows < 1 or classes < 2 or length < 1:
        raise RequestError(f"--size {text}: expected N,C,d such as 256,1000,512, C at least 2")
    return rows, classes, length


@app.command("objectives")
def objectives(
    objective: Annotated[
        list[str] | None,
        typer.Option("--objective", metavar="NAME", help="An objective; repeatable. Else all."),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size", metavar="N,C,d", help="Batch, classes, length of a feature; repeatable."
        ),
    ] = None,
    pairs: Annotated[
        int,
        typer.Option("--pairs", metavar="N", parser=integer(1), help="How often each is timed."),
    ] = 15,
    networks: Annotated[
        bool, typer.Option(help="Also the share of cosine-ls in steps of ResNet-18 and ResNet-50.")
    ] = True,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Time objectives against cross-entropy, linear layer, forward and backward pass included.

    Takes about 5 minutes on 2 CPU cores. Times pytorch-metric-learning too, where it is installed.
    """
    from marginctl.objectives.names import available, parse

    sizes = [_size(text) for text in size or []]
    names = [str(parse(name)) for name in objective or available()]
    import torch

    from marginctl.bench.objectives import SIZES, run
    from marginctl.devices import resolve_device
    from marginctl.reporting.bench import print_costs
    from marginctl.reporting.progress import say

    document = run(
        names,
        sizes=sizes or SIZES,
        pairs=pairs,
        networks=networks,
        device=torch.device(resolve_device(device)),
        say=lambda line: say([line]),
    )
    if json:
        print_json(document)
    else:
        print_costs(document)


@app.command("train")
def train(
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="A backbone: NAME:option=value,...")
    ] = "layer13:width=0.25",
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", parser=integer(2), help="Images a step.")
    ] = 128,
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", parser=integer(1), help="Steps of an epoch.")
    ] = 10,
    pairs: Annotated[
        int,
        typer.Option("--pairs", metavar="N", parser=integer(1), help="How often each is timed."),
    ] = 20,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Time training steps against a bare torch loop, and against a DataLoader with PIL transforms.

    Same network, batch, precision and augmentation on images of noise in CIFAR-100's shape.
    """
    from marginctl.bench.train import run
    from marginctl.devices import resolve_device
    from marginctl.models.names import check_images, parse_model
    from marginctl.reporting.bench import print_overhead
    from marginctl.reporting.progress import say

    check_images(parse_model(model)[0], 3, 32)
    document = run(
        model,
        batch=batch,
        steps=steps,
        pairs=pairs,
        device=resolve_device(device, accelerated=True),
        precision="auto",
        say=lambda line: say([line]),
    )
    if json:
        print_json(document)
    else:
        print_overhead(document)


@app.command("kappa")
def kappa(
    rounds: Annotated[
        int,
        typer.Option("--rounds", metavar="N", parser=integer(1), help="How often each is timed."),
    ] = 6,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Time a training step and its search for kappa*, beside the temperature paper's Table 11.

    Shapes of CIFAR-10 with ResNet-18, of Food-101 and ImageNet with ResNet-50. Takes 3 to 5 minutes
    on 2 CPU cores, where a step of ResNet-50 is one of 8 images.
    """
    from marginctl.bench.kappa import run
    from marginctl.devices import resolve_device
    from marginctl.reporting.bench import print_kappa
    from marginctl.reporting.progress import say

    document = run(
        rounds=rounds,
        device=resolve_device(device, accelerated=True),
        say=lambda line: say([line]),
    )
    if json:
        print_json(document)
    else:
        print_kappa(document)


@app.command("probe")
def probe(
    rounds: Annotated[
        int,
        typer.Option("--rounds", metavar="N", parser=integer(1), help="How often each is timed."),
    ] = 3,
    size: Annotated[
        str,
        typer.Option("--size", metavar="N,C,d", help="Images, classes, length of a feature."),
    ] = "10000,100,1280",
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance", metavar="T", min=1e-10, max=1e-2, help="On the gradient, of all sides."
        ),
    ] = 1e-6,
    json: options.Json = False,
) -> None:
    """Time a linear probe against scikit-learn, and eight strengths in a sweep against cold fits.

    Features are made: as many as one would extract. All fits end at the same gradient tolerance.
    """
    from marginctl.bench.probe import run
    from marginctl.reporting.bench import print_probe
    from marginctl.reporting.progress import say

    rows, classes, length = _size(size)
    if rows < 2 * classes:
        raise RequestError(f"--size {size}: {rows} images of {classes} classes: expected 2 of each")
    document = run(
        rows=rows,
        length=length,
        classes=classes,
        rounds=rounds,
        tolerance=tolerance,
        say=lambda line: say([line]),
    )
    if json:
        print_json(document)
    else:
        print_probe(document)
