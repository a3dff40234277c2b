"""The UCI data sets of ArcGrad's Table II: definitions as data, and their original files."""

import csv
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marginctl.data.paths import DATA_DIR_VARIABLE, MissingDataError, sklearn_file
from marginctl.errors import RequestError
from marginctl.utils import yaml
from marginctl.utils.text import did_you_mean, shorten

if TYPE_CHECKING:
    from marginctl.data.tabular.dataset import TabularDataset

Row = list[str]


@cache
def uci_definitions() -> dict[str, Any]:
    """Return the definition of each data set by name, in the order of Table II."""
    document: dict[str, Any] = yaml.read(Path(__file__).with_name("uci.yaml"))[0]
    return document


def check_uci_name(name: str) -> str:
    """Return the name of a UCI data set.

    Raises:
        RequestError: there is no such data set.
    """
    known = uci_definitions()
    if name not in known:
        raise RequestError(
            f"unknown data set '{shorten(name)}': expected one of {', '.join(known)}, or all."
            + did_you_mean(name, known)
        )
    return name


def missing_files(name: str, data_dir: Path) -> list[str]:
    """Return the original files of a data set that its folder lacks."""
    folder = data_dir / "uci" / name
    files = [file["file"] for file in uci_definitions()[name]["files"]]
    return [file for file in files if not (folder / file).is_file()]


def is_missing(name: str, data_dir: Path) -> bool:
    """Return whether files of a data set are missing and none are embedded."""
    return bool(missing_files(name, data_dir)) and "embedded" not in uci_definitions()[name]


def load_uci(name: str, data_dir: Path) -> "TabularDataset":
    """Return a data set from `<data_dir>/uci/<name>/`, or its embedded copy if it has one.

    Raises:
        MissingDataError: files are missing and none are embedded.
        RequestError: an unknown name, or files that differ from the published counts or digest.
    """
    definition = uci_definitions()[check_uci_name(name)]
    folder = data_dir / "uci" / name
    missing = missing_files(name, data_dir)
    if not missing:
        tables = [(f, _read(folder / f["file"], f)) for f in definition["files"]]
        source = str(folder)
    elif "embedded" in definition and len(missing) == len(definition["files"]):
        source = "the embedded copy"
        tables = [({"file": source}, EMBEDDED[definition["embedded"]]())]
    else:
        raise MissingDataError(
            f"data set '{name}': no file '{missing[0]}' in {folder}: run marginctl data fetch "
            f"{name}, or name the data folder with --data-dir or {DATA_DIR_VARIABLE}"
        )
    dataset = _parse(name, definition, tables, source)
    if dataset.digest != definition["digest"]:
        raise RequestError(
            f"data set '{name}': the content of {source} differs from the original files "
            f"(SHA-256): run marginctl data fetch {name}, or read your own with --csv"
        )
    return dataset


def _parse(
    name: str,
    definition: dict[str, Any],
    tables: list[tuple[dict[str, Any], list[Row]]],
    source: str,
) -> "TabularDataset":
    import numpy as np  # takes 0.1 s, which reading a recipe can do without

    from marginctl.data.tabular.dataset import Column, TabularDataset

    label = definition["label"]
    missing = set(definition.get("missing", ()))
    zero_means_missing = set(definition.get("zero_means_missing", ()))
    values = {word: str(number) for word, number in definition.get("values", {}).items()}
    spellings = definition.get("labels", {})
    x: list[list[float]] = []
    labels: list[str] = []
    features: list[str] = []
    for file, rows in tables:
        header: list[str] = file["columns"] if "columns" in file else definition["columns"]
        features = [c for c in header if c not in ("_", label)]
        for number, row in enumerate(rows, 1):
            place = f"data set '{name}': {file.get('file', source)}, data row {number}"
            if len(row) != len(header):
                raise RequestError(
                    f"{place}: {len(row)} columns, expected {len(header)}: the file is corrupt or "
                    f"another one: download it again ({source})"
                )
            cells = {c: v.strip() for c, v in zip(header, row, strict=True) if c != "_"}
            if missing & set(cells.values()):
                continue
            if any(_number(cells[c], c, place) == 0 for c in zero_means_missing):
                continue
            x.append([_number(values.get(cells[c], cells[c]), c, place) for c in features])
            labels.append(spellings.get(cells[label], cells[label]))
    classes = tuple(sorted(set(labels)))
    counts = {"classes": len(classes), "features": len(features), "instances": len(x)}
    for what, expected in definition["published"].items():
        if counts[what] != expected:
            raise RequestError(
                f"data set '{name}': {counts[what]} {what} in {source}, expected {expected} "
                "(ArcGrad, Table II): the file is corrupt or another one: download it again"
            )
    index = {c: i for i, c in enumerate(classes)}
    y = np.array([index[c] for c in labels], np.int64)
    columns = tuple(Column(feature) for feature in features)
    return TabularDataset(name, np.array(x, np.float64), y, classes, columns)


def _number(text: str, column: str, place: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise RequestError(
            f"{place}: {column} = '{shorten(text)}', expected a number: download the file again"
        )
    return number


def _read(path: Path, file: dict[str, Any]) -> list[Row]:
    try:
        rows = list(READERS[file.get("format", "delimited")](path, file))
    except csv.Error as error:
        raise RequestError(f"{path}: not CSV: {error}: download it again") from None
    return [row for row in rows if any(cell.strip() for cell in row)]


def _delimited(path: Path, file: dict[str, Any]) -> Iterator[Row]:
    separator = file.get("separator", ",")
    lines = itertools.islice(_lines(path), file.get("skip", 0), None)
    return csv.reader(lines, delimiter=separator, skipinitialspace=True)


def _arff(path: Path, file: dict[str, Any]) -> Iterator[Row]:
    after = itertools.dropwhile(lambda line: line.strip().lower() != "@data", _lines(path))
    return csv.reader(itertools.islice(after, 1, None))


def _lines(path: Path) -> list[str]:
    return yaml.read_text(path, str(path)).removeprefix("\ufeff").splitlines()


def _excel(path: Path, file: dict[str, Any]) -> Iterator[Row]:
    from python_calamine import CalamineWorkbook

    try:
        book = CalamineWorkbook.from_path(path)
        worksheets = [book.get_sheet_by_index(i) for i in file["sheets"]]
    except OSError as error:
        raise RequestError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception:  # of several kinds for a corrupt file
        raise RequestError(f"{path}: not the expected .xls file: download it again") from None
    for worksheet in worksheets:
        for row in worksheet.to_python(skip_empty_area=False)[file.get("skip", 0) :]:
            yield [str(value) for value in row]


READERS: dict[str, Callable[[Path, dict[str, Any]], Iterable[Row]]] = {
    "delimited": _delimited,
    "arff": _arff,
    "excel": _excel,
}


def _iris() -> list[Row]:
    """Return scikit-learn's iris, with rows 35 and 38 as in the UCI file."""
    header, *rows = list(csv.reader(_lines(sklearn_file("iris.csv"))))
    species = [f"Iris-{name}" for name in header[2:]]
    rows = [[*row[:4], species[int(row[4])]] for row in rows]
    for number in (35, 38):
        rows[number - 1][:4] = ["4.9", "3.1", "1.5", "0.1"]
    return rows


def _balance_scale() -> list[Row]:
    """Return every balance of two weights and distances from 1 to 5, and its heavier side."""
    rows = []
    for a, b, c, d in itertools.product(range(1, 6), repeat=4):
        tips = "B" if a * b == c * d else "L" if a * b > c * d else "R"
        rows.append([tips, str(a), str(b), str(c), str(d)])
    return rows


EMBEDDED: dict[str, Callable[[], list[Row]]] = {"iris": _iris, "balance-scale": _balance_scale}
