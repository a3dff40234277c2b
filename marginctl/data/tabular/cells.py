"""The cells of a table file as text: format, encoding, separator, header and rows."""

import bz2
import csv
import gzip
import io
import lzma
import re
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from marginctl.data.paths import readable
from marginctl.data.tabular.numbers import CODE_DIGITS, may_be_grouped, to_number
from marginctl.errors import RequestError
from marginctl.utils.text import count_noun, file_name, one_line, printable, shorten

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "blank"}
COMPRESSED: dict[bytes, tuple[str, Callable[[bytes], bytes]]] = {
    b"\x1f\x8b": ("gzip", gzip.decompress),
    b"BZh": ("bzip2", bz2.decompress),
    b"\xfd7zXZ": ("xz", lzma.decompress),
}
NOT_TABLES = {
    b"\x28\xb5\x2f\xfd": "a zstd file: decompress it",
    b"\x89HDF": "an HDF5 file: save the table as CSV",
    b"\x93NUMPY": "a NumPy array: save the table as CSV",
    b"SQLite format 3": "an SQLite database: save the table as CSV",
    b"%PDF": "a PDF document: save the table as CSV",
    b"version https://git-lfs": "a Git LFS pointer, not the file: run git lfs pull",
}
HTML = re.compile(r"\s*<(!doctype|html|head|body|table|\?xml)", re.IGNORECASE)
ARFF = re.compile(r"(\s*(%.*)?\n)*\s*@relation\b", re.IGNORECASE)
LIBSVM = re.compile(r"\s*[-+]?\d+(\.\d+)?(\s+\d+:[-+.\deE]+)+\s*(\n|$)")
JSON = re.compile(r"\s*(\{\s*[\"}]|\[\s*[\[{\"\d-])")
# A text file holds few control characters other than line ends and tabs, and no NUL.
CONTROL = "".join(map(chr, (*range(1, 9), *range(14, 32))))


@dataclass
class Cells:
    """The cells of a table as stripped text, the empty text where there is none."""

    path: Path
    form: str  # a few words on the form, such as `comma-separated`
    # one column of text for each column of the file, named by its header; columns of plain numbers
    # may be numbers already
    frame: pd.DataFrame
    lines: NDArray[np.int64]  # (n,) the line of the file where each row starts, from 1
    remarks: list[str] = field(default_factory=list)  # sentences on what was guessed
    # of a joined table, the file that begins at each row, the last one first
    files: dict[int, Path] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return printable(file_name(self.path))

    def location(self, row: int) -> str:
        path = next((file for first, file in self.files.items() if row >= first), self.path)
        return f"{path}:{self.lines[row]}"


def read_cells(path: Path, *, header: bool = True, texts: Sequence[str] = ()) -> Cells:
    """Return the cells of a table file.

    Text in any usual form, plain or compressed by gzip, bzip2, xz or zip; Excel and OpenDocument
    workbooks and Parquet where pandas can read them; ARFF.

    Args:
        header: whether the first line names the columns; otherwise their names are 1, 2, ...
        texts: the columns to return as they are spelled; none for all columns.

    Raises:
        RequestError: the file is no such table.
    """
    content, form = read_content(path)
    if content.startswith(b"PK\x03\x04"):
        with _open_zip(path, content) as archive:
            names = [n for n in archive.namelist() if n[-1] != "/" and n[:9] != "__MACOSX/"]
            if "xl/workbook.xml" in names or "content.xml" in names:
                return _from_pandas(path, content, "a workbook", header)
            if len(names) != 1:
                raise RequestError(
                    f"{path}: a zip file of {count_noun(len(names), 'file')}: expected one table: "
                    "unpack it and name one of them"
                )
            try:
                content, form = archive.read(names[0]), "zip"
            except Exception as error:  # a corrupt file can make the reader raise anything
                raise RequestError(f"{path}: a corrupt zip file: {one_line(str(error))}") from None
    if content.startswith(b"\xd0\xcf\x11\xe0"):
        return _from_pandas(path, content, "a workbook", header)
    if content.startswith(b"PAR1"):
        return _from_pandas(path, content, "a Parquet file", True)
    for magic, problem in NOT_TABLES.items():
        if content.startswith(magic):
            raise RequestError(f"{path}: {problem}")
    content_text, encoding = _decode(path, content)
    if not content_text.strip():
        raise RequestError(f"{path}: the file is empty: expected a header and rows")
    if HTML.match(content_text):
        raise RequestError(f"{path}: an HTML page, not a table: download the file itself")
    if LIBSVM.match(content_text):
        raise RequestError(f"{path}: a file in LIBSVM format: save the table as CSV")
    if JSON.match(content_text):
        raise RequestError(f"{path}: a JSON file: save the table as CSV")
    if ARFF.match(content_text):
        cells = _read_arff(path, content_text)
    else:
        cells = _read_text(path, content_text, header, texts)
    cells.form += f", {form}" if form else ""
    if encoding not in ("utf-8-sig", "utf-8"):
        cells.remarks.append(f"the text was read as {encoding}")
    return cells


def read_content(path: Path) -> tuple[bytes, str]:
    """Return a file's content, decompressed, and the kind of compression or the empty text."""
    with readable(path):
        content = path.read_bytes()
    for magic, (kind, decompress) in COMPRESSED.items():
        if content.startswith(magic):
            try:
                return decompress(content), kind
            except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
                raise RequestError(f"{path}: a corrupt {kind} file: {error}") from None
    return content, ""


def _open_zip(path: Path, content: bytes) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(io.BytesIO(content))
    except zipfile.BadZipFile as error:
        raise RequestError(f"{path}: a corrupt zip file or workbook: {error}") from None


def _decode(path: Path, content: bytes) -> tuple[str, str]:
    """Return the text and its encoding: by its mark, as UTF-8, or as Western European."""
    even, odd = content[:2000:2].count(0), content[1:2000:2].count(0)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ["utf-16"]
    elif max(even, odd) > 0.4 * len(content[:2000:2]) and min(even, odd) == 0:
        encodings = ["utf-16-le" if odd else "utf-16-be"]
    else:
        encodings = ["utf-8-sig", "cp1252"]
    for encoding in encodings:
        try:
            text = content.decode(encoding).replace("\ufeff", "")
        except UnicodeDecodeError:
            continue
        text = text.rstrip("\x1a")  # the mark of the end of a DOS file
        control = [character for character in CONTROL if character in text]  # faster than to count
        if "\0" in text or sum(map(text.count, control)) > len(text) / 20:
            break
        return text if text.isascii() else unicodedata.normalize("NFC", text), encoding
    raise RequestError(f"{path}: a binary file: expected a table, such as CSV in UTF-8")


def _from_pandas(path: Path, content: bytes, what: str, header: bool) -> Cells:
    """Return the cells of a workbook's largest worksheet or of a Parquet file."""
    remarks = []
    file = io.BytesIO(content)
    try:
        if what == "a Parquet file":
            frame = pd.read_parquet(file)
        else:
            tables = pd.read_excel(
                file, None, engine="calamine", header=None, dtype=object, na_filter=False
            )
            name, frame = max(tables.items(), key=lambda item: item[1].size)
            if len(tables) > 1:
                remarks.append(
                    f"of {len(tables)} worksheets, '{shorten(str(name))}' was read, the largest"
                )
    except ImportError as error:
        package = error.name or one_line(str(error))
        raise RequestError(
            f"{path}: {what}: pandas needs a package to read it ({package}): "
            "install that, or save the table as CSV"
        ) from None
    except Exception as error:  # a corrupt file can make the readers raise anything
        raise RequestError(f"{path}: {what} that cannot be read: {one_line(str(error))}") from None
    if not frame.size:
        raise RequestError(f"{path}: {what} without rows: expected a header and rows")
    frame = frame.astype(object).where(frame.notna(), "").map(lambda value: one_line(str(value)))
    text = frame.to_csv(header=what == "a Parquet file", index=False)
    cells = _read_text(path, text, header, (), ",")
    cells.form = what.removeprefix("a ")
    cells.remarks += remarks
    return cells


def _read_arff(path: Path, text: str) -> Cells:
    from scipy.io import arff

    try:
        # scipy keeps ASCII alone
        table, meta = arff.loadarff(io.StringIO(text.encode("ascii", "backslashreplace").decode()))
    except Exception as error:  # the reader raises anything for a malformed file
        problem = one_line(str(error))
        raise RequestError(f"{path}: an ARFF file that cannot be read: {problem}") from None
    frame = pd.DataFrame(table)
    for name, kind in zip(meta.names(), meta.types(), strict=True):
        column = frame[name]
        if kind == "numeric":
            frame[name] = [
                "" if np.isnan(v) else repr(v).removesuffix(".0") for v in column.tolist()
            ]
        elif kind == "date":
            frame[name] = ["" if pd.isna(v) else str(v) for v in column]
        else:
            escaped = "utf-8" if text.isascii() else "unicode_escape"
            frame[name] = ["" if v == b"?" else v.decode(escaped) for v in column]
    if not text.isascii():
        frame.columns = pd.Index([n.encode().decode("unicode_escape") for n in meta.names()])
    if not len(frame):
        raise RequestError(f"{path}: no rows below @data")
    first = next(
        i for i, line in enumerate(text.splitlines(), 1) if line.strip().lower() == "@data"
    )
    return Cells(path, "ARFF", frame, first + 1 + np.arange(len(frame)))


def _read_text(
    path: Path, text: str, header: bool, texts: Sequence[str], separator: str | None = None
) -> Cells:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = list(io.StringIO(text))  # str.splitlines would split at rare characters too
    declared = re.fullmatch(r"\"?sep=(.)\"?\s*", lines[0], re.IGNORECASE)
    separator = declared[1] if declared else separator or _separator(text)
    skipped = 1 if declared else 0
    remarks: list[str] = []
    fast = None
    plain = _unquoted(lines, separator) if texts else lines
    if texts and _is_plain(plain[skipped:], separator):
        first = plain[skipped].split(separator)
        spelled = [i for i, name in enumerate(first) if header and one_line(name) in texts]
        fast = _read_plain(plain, skipped + header, separator, spelled)
    shown = lines[skipped:] if fast is None else lines[skipped : skipped + 200]
    rows, numbers = _records(path, shown, separator)
    numbers = [number + skipped for number in numbers]
    if fast is not None:  # the first rows show the form of all
        numbers = list(range(skipped + 1, len(lines) + 1))
    width = Counter(map(len, rows[:200])).most_common(1)[0][0]
    # separators at the end of every row make no columns
    while width > 1 and not any(row[width - 1] for row in rows if len(row) >= width):
        width -= 1
    names, start = [str(i) for i in range(1, width + 1)], 1
    if header:
        # titles and comments above the header have fewer cells, or the others are empty; R leaves
        # out the row names' name
        above = next(
            (
                i
                for i, row in enumerate(rows)
                if len(row) >= max(2, width - 1)
                and (sum(map(bool, row)) > 1 or (width == 2 and any(row[1:])))
            ),
            0,
        )
        if above:
            remarks.append(
                f"line {numbers[above]} was read as the header: the lines above it have fewer cells"
            )
            rows, numbers = rows[above:], numbers[above:]
        names, start = rows.pop(0), numbers.pop(0)
        if len(names) == width + 1 and not names[-1]:
            names = names[:-1]
        if rows and all(re.fullmatch(":?-*:?", cell) for cell in rows[0]):  # of Markdown
            rows, numbers = rows[1:], numbers[1:]
        others = [(row, n) for row, n in zip(rows, numbers, strict=False) if row != names]
        if len(others) < len(rows) and not _looks_like_a_row(names, [row for row, _ in others]):
            lines_left_out = count_noun(len(rows) - len(others), "repeated header line")
            remarks.append(f"{lines_left_out} left out")
            rows, numbers = [row for row, _ in others], [number for _, number in others]
        if not rows:
            raise RequestError(f"{path}: no rows below the header")
    rows = _equal_widths(path, names, rows, numbers)
    if len(rows[0]) == len(names) + 1:
        remarks.append("the first column has no name in the header: row names, which are not used")
        rows = [row[1:] for row in rows]
    if len(names) < 2:
        raise RequestError(
            f"{path}:{start}: a single column ('{shorten(names[0])}'): expected several, separated "
            "by comma, semicolon, tab, bar or blanks"
        )
    if header and _looks_like_a_row(names, rows):
        remarks.append(f"line {start} looks like a row of data: give --no-header if it is one")
    frame = pd.DataFrame(rows, dtype=object)
    if fast is not None:
        if fast.iloc[:, len(names) :].astype(bool).any(axis=None):  # far below the first rows
            return _read_text(path, text, header, (), separator)
        head, frame = frame, fast[range(len(names))]
        spelled += [
            i
            for i, name in enumerate(names)
            if frame[i].dtype != object and (name in texts or _as_text(head[i], frame[i]))
        ]
        if any(frame[i].dtype != object for i in spelled):
            frame = _read_plain(plain, skipped + header, separator, spelled)[range(len(names))]
        for i in (i for i in frame if frame[i].dtype == object):
            frame[i] = frame[i].str.strip()
    # a separator at the end of every line makes a column without a name or a value
    unnamed = [i for i, name in enumerate(names) if not name and not frame[i].astype(bool).any()]
    frame.columns = pd.Index(_names(path, names, start))
    frame = frame.drop(columns=frame.columns[unnamed])
    form = f"{SEPARATORS.get(separator, separator)}-separated"
    return Cells(path, form, frame, np.array(numbers), remarks)


def _records(path: Path, lines: list[str], separator: str) -> tuple[list[list[str]], list[int]]:
    """Return the stripped cells of each record, without blank lines, and the line it starts at.

    Python's reader is used because pandas fills a record that is too short, without a word.
    """
    text = "".join(lines)
    if separator == " ":
        text = re.sub(r"[ \t]+", " ", text)
    # most files of numbers have neither, and stripping their cells would take a third of the time
    strip = not text.isascii() or any(c in text for c in ' "\t\v\f' if c != separator)
    source = io.StringIO(text, newline="")
    reader = csv.reader(source, delimiter=separator, skipinitialspace=True, strict=True)
    rows: list[list[str]] = []
    numbers: list[int] = []
    line = 0
    try:
        for row in reader:
            cells = [cell.strip() for cell in row] if strip else row
            if separator == " " and cells and not cells[-1]:
                cells.pop()
            if len(cells) > 1 or any(cells):
                rows.append(cells)
                numbers.append(line + 1)
            line = reader.line_num
    except csv.Error as error:
        unclosed = "unexpected end" in str(error) or "field limit" in str(error)
        where = _open_quote(lines, line) if unclosed else line + 1
        problem = "a quote opens here and is not closed" if unclosed else f"not CSV: {error}"
        raise RequestError(f"{path}:{where}: {problem}: correct this line") from None
    if not rows:
        raise RequestError(f"{path}: the file is empty: expected a header and rows")
    if '"' in text:
        _check_quotes(path, rows, numbers, separator)
    return rows, numbers


def _unquoted(lines: list[str], separator: str) -> list[str]:
    """Return the lines without the quotes of cells that need none."""
    edge = re.escape(separator)
    quoted = re.compile(rf'(?<![^{edge}])"([^"\n{edge}]*)"(?=[\n{edge}]|$)')
    return [quoted.sub(r"\1", line) if '"' in line else line for line in lines]


def _is_plain(lines: list[str], separator: str) -> bool:
    """Return whether each line is a row of equally many cells, without quotes.

    Neither may the header be repeated, a title be above it or a line of dashes below it.
    """
    if (
        separator == " "
        or len(lines) < 2
        or len(set(filter(str.strip, lines[0].split(separator)))) < 2
        or lines.count(lines[0]) > 1
        or not re.search(r"\w", lines[1])
        or any('"' in line for line in lines)
    ):
        return False
    return len({line.count(separator) for line in lines}) == 1


def _read_plain(lines: list[str], above: int, separator: str, texts: Sequence[int]) -> pd.DataFrame:
    """Return the rows of a plain file with columns 0, 1, ...: numbers, and the given ones as text.

    pandas does this five times as fast as Python's reader.
    """
    return pd.read_csv(
        io.StringIO("".join(lines)),
        sep=separator,
        header=None,
        skiprows=above,
        na_filter=False,
        quoting=csv.QUOTE_NONE,
        skip_blank_lines=False,
        low_memory=False,
        dtype=dict.fromkeys(texts, object),
    )


def _as_text(head: "pd.Series[str]", column: "pd.Series[float]") -> bool:
    """Return whether the spelling of a column matters: texts, odd numbers, codes: 1E2, 00042.

    Where the first rows have no point, one below may stand between thousands.
    """
    if column.dtype.kind not in "iuf" or not (np.abs(column) < 2**53).all():
        return True
    texts = head.tolist()
    if column.dtype.kind != "f":  # of one length in the first rows, and shorter without zeros
        lengths = {len(text) for text in texts}
        shortest = min(lengths)
        return max(lengths) == shortest >= CODE_DIGITS and 0 <= column.min() < 10 ** (shortest - 1)
    return bool((column % 1 == 0).all()) or "." not in "".join(texts) or may_be_grouped(texts)


def _open_quote(lines: list[str], above: int) -> int:
    """Return the line, below a number of lines, of the quote that is not closed."""
    opened, where = False, above + 1
    for number, line in enumerate(lines[above:], above + 1):
        for _ in range(line.count('"')):
            opened = not opened
            where = number if opened else where
    return where


def _check_quotes(path: Path, rows: list[list[str]], numbers: list[int], separator: str) -> None:
    """Refuse a cell that holds whole rows: two stray quotes hide the lines between them."""
    width = Counter(map(len, rows[:200])).most_common(1)[0][0]
    for row, number in zip(rows, numbers, strict=True):
        for column, cell in enumerate(row):
            if "\n" not in cell:
                continue
            first, *middle, last = cell.split("\n")
            counts = [part.count(separator) for part in (first, *middle, last)]
            before = sum(c.count("\n") for c in row[:column])
            expected = [width - 1 - column, *[width - 1] * len(middle), column]
            if counts == expected and (middle or width > 2):
                raise RequestError(
                    f"{path}:{number + before}: a quote opens in '{shorten(first)}' and closes "
                    f"{count_noun(len(middle) + 1, 'line')} below: the cell holds whole rows: "
                    "remove the quote, or close it on its line"
                )


def _equal_widths(
    path: Path, names: list[str], rows: list[list[str]], numbers: Sequence[int]
) -> list[list[str]]:
    """Return the rows with as many cells as names, or one more where they have row names."""
    width = len(names)
    if all(len(row) == width + 1 for row in rows):
        first = [row[0] for row in rows]
        if any(row[-1] for row in rows) and len(set(first)) == len(first):
            return rows
    trimmed = []
    for row, number in zip(rows, numbers, strict=False):
        if len(row) < width or any(row[width:]):
            raise RequestError(
                f"{path}:{number}: {len(row)} columns, expected {width}: quote values that contain "
                "the separator, and leave no cell out"
            )
        trimmed.append(row[:width])
    return trimmed


def _looks_like_a_row(names: list[str], rows: list[list[str]]) -> bool:
    """Return whether a header has decimal numbers, or values of its columns, among its names."""
    decimal = re.compile(r"[-+]?\d*[.,]\d+")
    if any(decimal.fullmatch(name) for name in names):
        return True
    numbers = [to_number(name) for name in names]
    if set(np.diff(numbers)) == {1}:  # numbered columns
        return False
    columns = zip(names, zip(*rows, strict=False), strict=False)
    return any(name and name in column for name, column in columns)


def unnamed(number: int) -> str:
    """Return the name of a column that has none in the header; columns are numbered from 1."""
    return f"unnamed column {number}"


def _names(path: Path, header: Sequence[str], line: int) -> list[str]:
    """Return column names: one line each, all different."""
    names = [one_line(name) for name in header]
    names = [name or unnamed(i) for i, name in enumerate(names, 1)]
    repeated = next((name for name, count in Counter(names).items() if count > 1), None)
    if repeated is not None:
        raise RequestError(
            f"{path}:{line}: duplicate column '{shorten(repeated)}': rename one, or give "
            "--no-header if the line is a row of data"
        )
    return names


def _separator(text: str) -> str:
    """Return the separator that gives the most columns, equally many in each record if possible."""
    head = text[:200_000]

    def widths(separator: str) -> list[int]:
        counts = []
        try:
            for row in csv.reader(io.StringIO(head, newline=""), delimiter=separator):
                if any(row):
                    counts.append(len(row))
                if len(counts) == 50:
                    break
        except csv.Error:
            return []
        return counts

    def fitness(separator: str) -> tuple[bool, bool, bool, int, bool]:
        counts = widths(separator)
        if not counts:
            return False, False, False, 0, False
        columns, count = Counter(counts[:-1] or counts).most_common(1)[0]
        equal = columns > 1 and count >= 0.8 * len(counts[:-1] or counts)
        # a title may be above the header, which may lack the name of the row names
        has_header = columns - max(counts[:3]) in (0, 1)
        # where another separator fits too, the commas are decimal ones
        return equal, has_header, equal and separator != ",", columns, counts[0] == columns

    best = max(",;\t|", key=fitness)
    commas = widths(",")
    if len(set(commas)) == 1 and commas[0] > 1 and widths(best)[0] == 1:
        return ","  # the header has no other separator: the cells do
    if fitness(best)[3] > 1:
        return best
    words = Counter(len(line.split()) for line in head.split("\n")[:50] if line.strip())
    columns, count = words.most_common(1)[0]
    return " " if columns > 1 and count >= 0.9 * words.total() else best
