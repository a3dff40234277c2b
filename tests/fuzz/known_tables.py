"""Tables whose content is known, in the forms in which programs and people write them."""

import bz2
import datetime
import gzip
import io
import lzma
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np

from marginctl.data.tabular.custom import ReadOptions, read_table
from marginctl.errors import RequestError

NA_WORDS = ["", "", "NA", "N/A", "#N/A", "NaN", "null", "?"]
# decimal mark and mark between thousands
LOCALES = [(".", ""), (".", ","), (",", ""), (",", "."), (".", "'"), (",", "\xa0"), (",", " ")]
SIGNS = [("", ""), ("", ""), ("", "%"), ("", " %"), ("$", ""), ("", " €"), ("EUR ", ""), ("£", "")]
DATES = ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%y", "%Y/%m/%d", "%d %b %Y", "%b %d, %Y"]
DATES += ["%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y%m%d", "%d-%b-%y", "%B %Y", "%H:%M:%S"]
BOOLEANS = [("true", "false"), ("yes", "no"), ("y", "n"), ("on", "off")]
WORDS = [["red", "green", "blue"], ["north", "south"], ["grün", "weiß", "rot", "blau"]]
WORDS += [
    ["none", "mild", "severe"],
    ["NA", "EU", "AS"],
    ["unknown", "low", "high"],
    ["a", "A", "b"],
]
WORDS += [["São Paulo", "Zürich"], ["1-5 years", "> 5 years"], ['5" pipe', "a, b", "c; d"]]
LABELS = [*WORDS, ["1E2", "100", "1E3"], ["0123", "123", "0124"], ["True", "False"], ["0", "1"]]
LABELS += [["None", "Insomnia", "Apnea"], ["yes", "Yes", "no"], ["cafe\u0301", "café", "the"]]
LABELS += [["1", "2", "3"], ["1_1", "11"], ["1.0", "1"], ["x" * 70 + "a", "x" * 70 + "b"]]
LABELS += [["2026-01-01", "2026-02-01"], ["<=50K", ">50K"], ["nan", "inf"], ["-1", "+1"]]
NAMES = ["age", "größe", "body mass", "x,y", "a;b", "µ", "Temp (°C)", "speed", "color", "Höhe", "z"]
NAMES += ["100%", "is_open", "q|r", "city", "when", "note", "kind of", "code2", "v24", "f"]


@dataclass(frozen=True)
class Column:
    """A column: its cells as they are written, and what they mean.

    Attributes:
        type: as in the summary.
        values: numbers or categories, None where missing.
        remark: a text that a remark must hold.
    """

    name: str
    type: str
    cells: list[str]
    values: list[float | str | None]
    remark: str = ""


@dataclass
class KnownTable:
    """A table file and what it holds.

    Attributes:
        labels: the class of each row, None where the cell is empty.
        form: how it is written, for messages.
    """

    name: str
    content: bytes
    header: bool
    target: str
    labels: list[str | None]
    columns: list[Column]
    form: list[str] = field(default_factory=list)
    remark: str = ""


def make_table(stream: Random) -> KnownTable:
    """Return a random table in a random form."""
    rows = stream.choice([24, 30, 60, 120, 300])
    header = stream.random() < 0.9
    locale = stream.choice(LOCALES)
    names = stream.sample(NAMES, stream.randint(1, 7))
    if stream.random() < 0.1:
        names = [str(i) for i in stream.sample(range(1, 30), len(names))]
    kinds = [_clear, *(stream.choice(KINDS) for _ in names[1:])]
    columns = [k(stream, n, rows, locale) for k, n in zip(kinds, names, strict=True)]
    stream.shuffle(columns)
    words = stream.choice(LABELS)
    cells = [stream.choice(words) for _ in range(rows)]
    cells[: len(words)] = words
    if stream.random() < 0.3:
        for i in stream.sample(range(len(words), rows // 2), stream.randint(1, rows // 6)):
            cells[i] = ""
    at = stream.randint(0, len(columns))
    target = "target" if header else str(at + 1)
    if not header:
        places = [i for i in range(1, len(columns) + 2) if i != at + 1]
        columns = [
            Column(str(i), c.type, c.cells, c.values, c.remark)
            for i, c in zip(places, columns, strict=True)
        ]
    labels = [unicodedata.normalize("NFC", cell) or None for cell in cells]
    table = KnownTable("table.csv", b"", header, target, labels, columns)
    written = [[c.name, *c.cells] if header else c.cells for c in columns]
    written.insert(at, [target, *cells] if header else cells)
    _write(stream, table, [list(row) for row in zip(*written, strict=True)])
    return table


def _numbers(
    stream: Random, name: str, rows: int, locale: tuple[str, str], decimals: int, size: float
) -> Column:
    point, group = locale
    before, after = stream.choice(SIGNS)
    missing = stream.uniform(0.02, 0.4) if stream.random() < 0.4 else 0
    marks = str.maketrans({",": group, ".": point})
    minus = stream.choice(["-", "-", "\u2212"])
    odd = stream.choice(["see note", "< 5", "n.d."]) if stream.random() < 0.1 else ""
    cells, values = [], list[float | str | None]()
    for _ in range(rows):
        number = round(abs(stream.gauss(0, size)) + 0.5, decimals)
        if not before and not after and stream.random() < 0.3:
            number = -number
        if stream.random() < missing:
            cells.append(stream.choice(NA_WORDS))
            values.append(None)
        else:
            written = f"{number:,.{decimals}f}".translate(marks).replace("-", minus)
            cells.append(before + written + after)
            values.append(float(f"{number:.{decimals}f}"))
    if odd:  # one cell that is no number is missing, and said
        cells[rows // 2], values[rows // 2] = odd, None
    return Column(name, "numeric", cells, values, odd)


def _scientific(stream: Random, name: str, rows: int, locale: tuple[str, str]) -> Column:
    exact = [stream.gauss(0, 1) * 10 ** stream.uniform(-9, 9) for _ in range(rows)]
    form = stream.choice(["{:.3e}", "{:.4E}", "{:+.2e}"])
    cells = [form.format(number).replace(".", locale[0]) for number in exact]
    return Column(name, "numeric", cells, [float(form.format(number)) for number in exact])


def _clear(stream: Random, name: str, rows: int, locale: tuple[str, str]) -> Column:
    """Numbers that show the decimal mark of the table."""
    return _numbers(stream, name, rows, locale, 2, stream.choice([3, 500, 50_000]))


def _any_numbers(stream: Random, name: str, rows: int, locale: tuple[str, str]) -> Column:
    size = stream.choice([3, 500, 50_000])
    return _numbers(stream, name, rows, locale, stream.choice([0, 0, 1, 2, 3, 4]), size)


def _categories(stream: Random, name: str, rows: int, locale: tuple[str, str]) -> Column:
    words = stream.choice(WORDS)
    if stream.random() < 0.2:
        words = [f"land {chr(97 + i)}" for i in range(20)][: rows // 4]
    cells = [*words, *(stream.choice(words) for _ in range(rows - len(words)))]
    stream.shuffle(cells)
    if stream.random() < 0.3:
        for i in stream.sample(range(rows), rows // 5):
            cells[i] = ""
    may_mean_missing = [w for w in ("none", "NA", "unknown") if w in cells]
    case = ["differ only in case"] if {"a", "A"} <= set(cells) else []
    remark = [*may_mean_missing, *case, ""][0]
    return Column(name, "categorical", cells, [cell or None for cell in cells], remark)


def _booleans(stream: Random, name: str, rows: int, locale: tuple[str, str]) -> Column:
    pair = stream.choice(BOOLEANS)
    change: Callable[[str], str] = stream.choice([str.lower, str.upper, str.title])
    values = [*pair, *(stream.choice(pair) for _ in range(rows - 2))]
    cells = [change(value) for value in values]
    if stream.random() < 0.3:
        for i in stream.sample(range(2, rows), 5):
            cells[i] = values[i] = ""
    return Column(name, "boolean", cells, [value or None for value in values])


def _dates(stream: Random, name: str, rows: int, locale: tuple[str, str]) -> Column:
    form = stream.choice(DATES)
    start = datetime.datetime(2001, 1, 1)
    cells = [
        (start + datetime.timedelta(minutes=stream.randrange(12_000_000))).strftime(form)
        for _ in range(rows)
    ]
    if stream.random() < 0.3:
        for i in stream.sample(range(rows), 5):
            cells[i] = ""
    return Column(name, "date", cells, [cell or None for cell in cells])


def _ids(stream: Random, name: str, rows: int, locale: tuple[str, str]) -> Column:
    first = stream.choice([0, 1, 4711])
    forms: list[Callable[[int], str]] = [str, "P-{:05}".format, lambda i: f"{i * 0x9E3779B9:016x}a"]
    form = stream.choice(forms)
    cells = [form(first + i) for i in range(rows)]
    return Column(name, "id", cells, [*cells])


def _texts(stream: Random, name: str, rows: int, locale: tuple[str, str]) -> Column:
    words = ["the", "pump", "was", "slow, then", "stopped;", 'the "new" one', "naïve", "again"]
    cells = [" ".join(stream.choice(words) for _ in range(7)) for _ in range(rows)]
    cells = [f"{cell} end{'!' * (i % 9)}" for i, cell in enumerate(cells)]
    return Column(name, "text", cells, [*cells])


def _constant(stream: Random, name: str, rows: int, locale: tuple[str, str]) -> Column:
    cells = [stream.choice(["7", "same", "2026", "n", "0"])] * rows
    return Column(name, "constant", cells, [*cells])


KINDS = [_any_numbers, _any_numbers, _any_numbers, _categories, _categories, _booleans, _dates]
KINDS += [_ids, _texts, _constant, _scientific]


def _write(stream: Random, table: KnownTable, rows: list[list[str]]) -> None:
    """Write the rows into the content of a table, in a random form."""
    separator = stream.choice(",,,;;\t|")
    quoted, padded = stream.random() < 0.3, separator != "\t" and stream.random() < 0.2
    line_end = stream.choice(["\n", "\n", "\r\n", "\r"])
    table.form = [f"separator {separator!r}", f"line end {line_end!r}"]

    def written(cell: str) -> str:
        if quoted or cell != cell.strip() or any(c in cell for c in f'"\n{separator}'):
            pad = " " if padded and stream.random() < 0.5 else ""
            return f'"{pad}' + cell.replace('"', '""') + f'{pad}"'
        return f"{stream.choice(['', ' ', '  '])}{cell} " if padded else cell

    lines = [separator.join(map(written, row)) for row in rows]
    chance, first = stream.random(), int(table.header)
    if chance < 0.1:
        table.form.append("trailing separators")
        lines = [line + separator for line in lines]
    elif chance < 0.2 and table.header:
        table.form.append("trailing separators below the header")
        lines[1:] = [line + separator for line in lines[1:]]
    elif chance < 0.3 and table.header:
        table.form.append("row names without a name")
        lines[1:] = [f'"{i}"{separator}{line}' for i, line in enumerate(lines[1:], 1)]
        table.remark = "row names"
    elif chance < 0.4 and table.header:
        table.form.append("a first column with an empty name")
        lines[0] = separator + lines[0]
        lines[1:] = [f"{i}{separator}{line}" for i, line in enumerate(lines[1:])]
        numbers = [str(i) for i in range(len(rows) - 1)]
        table.columns.insert(0, Column("unnamed column 1", "id", numbers, [*numbers]))
    if stream.random() < 0.2:
        table.form.append("blank lines")
        for _ in range(3):
            lines.insert(stream.randint(first, len(lines)), "")
    elif len(rows[0]) > 2 and table.header and stream.random() < 0.1:
        table.form.append("a title above the header")
        lines.insert(0, stream.choice(["Measured in May", "# version 2", "Table 1"]))
    if separator in ",;" and stream.random() < 0.1:
        table.form.append("a sep= line")
        lines.insert(0, f"sep={separator}")
    text = line_end.join(lines) + stream.choice(["", line_end, line_end * 2])
    table.content = _encode(stream, table, text)


def _encode(stream: Random, table: KnownTable, text: str) -> bytes:
    encodings = ["utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"]
    encoding = stream.choice(encodings)
    if encoding == "cp1252" and {"\u0301", "\u2212"} & set(text):
        encoding = "utf-8"
    content = text.encode(encoding)
    table.form.append(encoding)
    compression = stream.choice(["", "", "", "", "gz", "bz2", "xz", "zip"])
    if compression:
        table.form.append(compression)
        table.name += stream.choice([f".{compression}", ""])
    if compression == "gz":
        return gzip.compress(content)
    if compression == "bz2":
        return bz2.compress(content)
    if compression == "xz":
        return lzma.compress(content)
    if compression == "zip":
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("table.csv", content)
        return buffer.getvalue()
    return content


def differences(table: KnownTable, folder: Path) -> list[str]:
    """Return a line for each difference between a table and what is read of its file."""
    path = folder / table.name
    path.write_bytes(table.content)
    try:
        read = read_table(path, table.target, ReadOptions(header=table.header))
    except RequestError as error:
        return [f"refused: {error}"]
    summary = read.summary
    assert summary is not None
    used = [i for i, label in enumerate(table.labels) if label is not None]
    classes = Counter(label for label in table.labels if label is not None)
    pairs: list[tuple[str, object, object]] = [
        ("rows", len(table.labels), summary.rows),
        ("rows_used", len(used), summary.rows_used),
        ("classes", dict(classes), summary.classes),
        ("labels", [table.labels[i] for i in used], [read.classes[int(i)] for i in read.y]),
        ("columns", [c.name for c in table.columns], [c.name for c in summary.columns]),
    ]
    found = {column.name: column for column in summary.columns}
    places = {column.name: i for i, column in enumerate(read.columns)}
    remarks = "\n".join(summary.remarks).lower()
    for column in table.columns:
        if (other := found.get(column.name)) is None:
            continue
        values = [column.values[i] for i in used]
        trains = column.type in ("numeric", "categorical", "boolean")
        pairs.append((f"{column.name}: type", column.type, other.type))
        pairs.append((f"{column.name}: used", trains, other.used))
        pairs.append((f"{column.name}: missing", values.count(None), other.missing))
        if column.type in ("categorical", "boolean"):
            categories = sorted({str(v) for v in values if v is not None})
            pairs.append((f"{column.name}: categories", categories, list(other.categories)))
        if column.type == other.type == "numeric" and len(used) == read.num_rows:
            wanted = np.array([np.nan if v is None else v for v in values], np.float64)
            equal = np.isclose(read.x[:, places[column.name]], wanted, 1e-12, 0, equal_nan=True)
            wrong = [column.cells[used[i]] for i in np.flatnonzero(~equal)[:3]]
            pairs.append((f"{column.name}: cells read wrong", [], wrong))
        if column.remark.lower() not in remarks:
            pairs.append((f"{column.name}: remark", column.remark, remarks))
    if table.remark not in remarks:
        pairs.append(("remark", table.remark, remarks))
    return [f"{name}: expected {a!r}, got {b!r}" for name, a, b in pairs if a != b]


def mutated(table: KnownTable, stream: Random, folder: Path) -> list[str]:
    """Return what is wrong in how a damaged file is read: it may be refused, or be read.

    A compressed file has a checksum: it is refused, or its content is whole.
    """
    content = bytearray(table.content)
    if stream.random() < 0.5:
        del content[stream.randrange(len(content)) :]
    else:
        for _ in range(stream.choice([1, 3, 20])):
            content[stream.randrange(len(content))] ^= 1 << stream.randrange(8)
    table.content = bytes(content)
    try:
        wrong = differences(table, folder)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    is_packed = table.form[-1] in ("gz", "bz2", "xz", "zip")
    return wrong if is_packed and wrong and not wrong[0].startswith("refused") else []
