"""The benchmarks of marginctl bench that need no GPU, each by itself."""

from typing import Annotated

import typer

from marginctl.cli import options
from marginctl.cli.options import integer, print_json
from marginctl.errors import RequestError


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
    from marginctl.console.progress import log_lines
    from marginctl.reports.tables.bench_table import print_ratios

    document = run(
        dataset or ["iris", "banknote-authentication"],
        data_dir=data_dir,
        rounds=rounds,
        epochs=epochs,
        say=lambda line: log_lines([line]),
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
    from marginctl.objectives.parsing import available, parse

    sizes = [_size(text) for text in size or []]
    names = [str(parse(name)) for name in objective or available()]
    import torch

    from marginctl.bench.objectives import SIZES, run
    from marginctl.console.progress import log_lines
    from marginctl.reports.tables.bench_table import print_costs
    from marginctl.utils.device import resolve_device

    document = run(
        names,
        sizes=sizes or SIZES,
        pairs=pairs,
        networks=networks,
        device=torch.device(resolve_device(device)),
        say=lambda line: log_lines([line]),
    )
    if json:
        print_json(document)
    else:
        print_costs(document)


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
    from marginctl.console.progress import log_lines
    from marginctl.models.factory import check_image_shape
    from marginctl.models.registry import ModelSpec
    from marginctl.reports.tables.bench_table import print_overhead
    from marginctl.utils.device import resolve_device

    check_image_shape(ModelSpec.parse(model), 3, 32)
    document = run(
        model,
        batch=batch,
        steps=steps,
        pairs=pairs,
        device=resolve_device(device, accelerated=True),
        precision="auto",
        say=lambda line: log_lines([line]),
    )
    if json:
        print_json(document)
    else:
        print_overhead(document)


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
    from marginctl.console.progress import log_lines
    from marginctl.reports.tables.bench_table import print_kappa
    from marginctl.utils.device import resolve_device

    document = run(
        rounds=rounds,
        device=resolve_device(device, accelerated=True),
        say=lambda line: log_lines([line]),
    )
    if json:
        print_json(document)
    else:
        print_kappa(document)


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
    from marginctl.console.progress import log_lines
    from marginctl.reports.tables.bench_table import print_probe

    rows, classes, length = _size(size)
    if rows < 2 * classes:
        raise RequestError(f"--size {size}: {rows} images of {classes} classes: expected 2 of each")
    document = run(
        rows=rows,
        length=length,
        classes=classes,
        rounds=rounds,
        tolerance=tolerance,
        say=lambda line: log_lines([line]),
    )
    if json:
        print_json(document)
    else:
        print_probe(document)
