"""marginctl bench."""

from typing import Annotated

import typer

from marginctl.cli import options
from marginctl.cli.options import integer, print_json

app = typer.Typer(help="Benchmarks, each against what one would use instead.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    pass


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
