"""marginctl bench."""

import typer

app = typer.Typer(help="Benchmarks, each against what one would use instead.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    pass
