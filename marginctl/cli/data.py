"""marginctl data: list, fetch, verify and inspect."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from marginctl.cli import common_options
from marginctl.cli.common_options import argument, flag, option, print_json
from marginctl.errors import MarginctlError, RequestError

app = typer.Typer(
    help="The data sets of the papers, and what is read from your own data.", no_args_is_help=True
)

UNUSABLE = ("absent", "corrupt")  # states of a data set
Names = Annotated[
    list[str] | None, argument("NAME", "Data sets, or uci or images for all of a kind.")
]


def _select(names: list[str] | None) -> list[str]:
    from marginctl.data.images.registry import IMAGE_SETS
    from marginctl.data.tabular.uci import uci_definitions

    groups = {"uci": list(uci_definitions()), "images": list(IMAGE_SETS)}
    return [n for name in names or ["uci"] for n in groups.get(name, [name])]


@app.command("list")
def list_(data_dir: common_options.DataDir = None, json: common_options.Json = False) -> None:
    """List the data sets and their state."""
    from marginctl.data.paths import default_data_dir
    from marginctl.data.status import dataset_status
    from marginctl.reports.formats.output import print_rows

    folder = data_dir or default_data_dir()
    names = _select(["uci", "images"])
    rows = [asdict(dataset_status(name, folder, read=False)) for name in names]
    if json:
        print_json(rows)
    else:
        print_rows(rows, ["name", "classes", "instances", "split", "state"])


@app.command()
def fetch(
    names: Names = None,
    offline: Annotated[
        bool, flag("--offline", "Download nothing: say which files to put where.")
    ] = False,
    data_dir: common_options.DataDir = None,
    json: common_options.Json = False,
) -> None:
    """Download absent and corrupt data sets into the data folder, and check them.

    Images are downloaded by torchvision; Stanford Cars, ImageNet and CUB-200-2011 are not.
    """
    from marginctl.data.fetch import fetch_datasets
    from marginctl.data.images.registry import IMAGE_SETS
    from marginctl.data.paths import default_data_dir
    from marginctl.data.status import dataset_status

    if "images" in (names or []):
        raise RequestError("data fetch images: hundreds of gigabytes: name the sets one by one")
    folder = data_dir or default_data_dir()
    statuses = [dataset_status(name, folder) for name in _select(names)]
    needed = [s.name for s in statuses if s.state in UNUSABLE]
    reasons = {} if offline else fetch_datasets(needed, folder)
    statuses = [dataset_status(s.name, folder) if s.name in needed else s for s in statuses]
    failed = [] if offline else [s for s in statuses if s.state in UNUSABLE]
    if json:
        print_json([asdict(status) for status in statuses])
    else:
        for status in statuses:
            terms = f" (terms of use: {status.terms})" if status.terms else ""
            print(f"{status.name}: {'failed' if status in failed else status.state}{terms}")
    if offline and needed:
        raise RequestError(*(str(s.detail) for s in statuses if s.name in needed))
    if failed:
        lines = [
            f"data set '{s.name}': cannot be downloaded: {reasons[s.name]}"
            if s.name in reasons
            else str(s.detail)
            for s in failed
        ]
        if any(status.name not in IMAGE_SETS for status in failed):
            lines.append(f"download the original files by hand into {folder / 'uci'}/NAME/")
        raise MarginctlError(*lines)


@app.command()
def verify(
    names: Names = None, data_dir: common_options.DataDir = None, json: common_options.Json = False
) -> None:
    """Read every data set in the data folder and compare counts and digests."""
    from marginctl.data.paths import default_data_dir
    from marginctl.data.status import dataset_status

    folder = data_dir or default_data_dir()
    statuses = [dataset_status(name, folder) for name in _select(names)]
    if json:
        print_json([asdict(status) for status in statuses])
    else:
        for status in statuses:
            print(f"{status.name}: {status.state}")
    required = set(names or []) - {"uci", "images"}
    failed = [
        s for s in statuses if s.state == "corrupt" or (s.state == "absent" and s.name in required)
    ]
    if failed:
        raise RequestError(*(str(status.detail) for status in failed))


@app.command()
def inspect(
    path: Annotated[Path, argument("PATH", "A table, an image folder or list, or outputs.")],
    target: Annotated[str | None, option("COLUMN", "Label column of a table.")] = None,
    no_header: common_options.NoHeader = False,
    json: common_options.Json = False,
) -> None:
    """Show what is read from your data: rows, classes, columns, missing values, duplicates.

    A folder or a list is read as images, also as folder:PATH or list:PATH; an .npz file, and a CSV
    file of logits or probabilities, as the outputs of a classifier; any other file as a table.
    """
    from marginctl.calibration.read_outputs import looks_like_outputs, read_outputs
    from marginctl.data.images.registry import FOLDER_PREFIX, LIST_PREFIX
    from marginctl.data.images.summary import inspect_images, looks_like_images
    from marginctl.reports import data_summary
    from marginctl.reports.formats.output import print_sentences

    for prefix in (FOLDER_PREFIX, LIST_PREFIX):
        path = Path(str(path).removeprefix(prefix))
    if target is None and looks_like_images(path):
        images = inspect_images(path)
        document, lines = asdict(images), data_summary.image_lines(images)
    elif target is None and looks_like_outputs(path):
        outputs = read_outputs(path)
        document, lines = outputs.summary(), data_summary.outputs_lines(outputs)
    else:
        from marginctl.data.tabular.custom import ReadOptions, inspect_table

        table = inspect_table(path, target, ReadOptions(header=not no_header))
        document, lines = table.as_json(), data_summary.table_lines(table)
    if json:
        print_json(document)
        return
    print_sentences(lines)
    if target is not None:
        header = ["--no-header"] if no_header else []
        common_options.print_next_step("uci-cv --csv", path, "--target", target, *header)
