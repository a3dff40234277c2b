"""marginctl data: list, fetch and verify."""

from typing import Annotated

import typer

from marginctl.cli import options
from marginctl.cli.options import print_json

app = typer.Typer(help="The data sets of the papers.", no_args_is_help=True)

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Data sets; uci or images for all of those."),
]


def _chosen(names: list[str] | None) -> list[str]:
    from marginctl.data.status import image_set_names
    from marginctl.data.tabular.uci import uci_definitions

    groups = {"uci": list(uci_definitions()), "images": image_set_names()}
    return [n for name in names or ["uci"] for n in groups.get(name, [name])]


@app.command("list")
def list_(data_dir: options.DataDir = None, json: options.Json = False) -> None:
    """List the data sets and what is there of them."""
    from marginctl.data.status import dataset_status
    from marginctl.data.tabular.uci import default_data_dir
    from marginctl.reports.formats.output import print_rows

    folder = data_dir or default_data_dir()
    rows = [dataset_status(name, folder, read=False).row() for name in _chosen(["uci", "images"])]
    if json:
        print_json(rows)
    else:
        print_rows(rows, ["name", "classes", "features", "instances", "state", "path"])


@app.command()
def fetch(
    names: Names = None, data_dir: options.DataDir = None, json: options.Json = False
) -> None:
    """Fetch what is absent or damaged into the data folder; every file is checked by digest."""
    from marginctl.data.fetch import fetch_missing
    from marginctl.data.status import dataset_status, image_set_names
    from marginctl.data.tabular.uci import default_data_dir
    from marginctl.errors import MarginctlError, RequestError

    folder = data_dir or default_data_dir()
    chosen = _chosen(names)
    images = [n for n in chosen if n in image_set_names()]
    if images:
        raise RequestError(
            f"data fetch: {', '.join(images)}: images are not fetched: torchvision.datasets does "
            f"it (download=True) for all but imagenet, with {folder} as its root"
        )
    needed = [n for n in chosen if dataset_status(n, folder).state in ("absent", "damaged")]
    reasons = fetch_missing(needed, folder)
    rows = [dataset_status(name, folder).row() for name in chosen]
    if json:
        print_json(rows)
    else:
        for row in rows:
            print(f"{row['name']}: {'not fetched' if row['name'] in reasons else row['state']}")
    if reasons:
        raise MarginctlError(
            *(f"data set '{name}': could not be fetched: {why}" for name, why in reasons.items()),
            f"put the original files of these into {folder / 'uci'}/NAME/ by hand",
        )


@app.command()
def verify(
    names: Names = None, data_dir: options.DataDir = None, json: options.Json = False
) -> None:
    """Read every data set that is there and compare counts and digest."""
    from marginctl.data.status import dataset_status
    from marginctl.data.tabular.uci import default_data_dir
    from marginctl.errors import RequestError

    found = [dataset_status(name, data_dir or default_data_dir()) for name in _chosen(names)]
    if json:
        print_json([s.row() for s in found])
    else:
        for s in found:
            print(f"{s.name}: {s.state}")
    named = set(names or []) - {"uci", "images"}
    bad = [s for s in found if s.state == "damaged" or (s.state == "absent" and s.name in named)]
    if bad:
        raise RequestError(*(str(s.detail) for s in bad))
