"""The form of a text file: its separator and its line ends."""

import bz2
import contextlib
import gzip
import io
import lzma
import zipfile

import pytest

from marginctl.data.tabular.cells import read_cells
from marginctl.errors import RequestError


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("size;x,y;kind", '"{i}";2,5;{i};a'),  # row names without a name
        ("size\tx,y\tkind", "2,5\t{i}\ta\t"),  # a separator too many
        ("size|x,y|kind", "2,5|{i}|a"),
        ("size;weight;kind", "2,5;3,5{i};a"),
        ("Measured in May\nsize;x,y;kind", "2,5;{i};a"),
        ("# version 2\nsize|weight|kind", "2,5|3,5|a"),
    ],
)
def test_decimal_commas_are_no_separators(tmp_path, header, row):
    path = tmp_path / "t.csv"
    path.write_text("\n".join([header, *(row.format(i=i) for i in range(30))]))
    cells = read_cells(path)
    assert list(cells.frame)[-1] == "kind"
    assert cells.frame["size"].tolist() == ["2,5"] * 30


@pytest.mark.parametrize("row", ["5,95 €;$997,28;1.0", "1,5;2,5;3,5;4,5", "1,5\t2,5", "1,5|2"])
def test_decimal_commas_without_a_header(tmp_path, row):
    path = tmp_path / "t.csv"
    path.write_text(f"{row}\n" * 30)
    cells = read_cells(path, header=False)
    assert cells.frame.iloc[0, 0] == row.replace("\t", ";").replace("|", ";").split(";")[0]


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
@pytest.mark.parametrize("separator", ",;|")
def test_an_empty_cell_after_a_line_end(tmp_path, separator, end):
    path = tmp_path / "t.csv"
    lines = ["x,kind", *[",a", "2,b"] * 20]
    path.write_text(end.join(lines).replace(",", separator), newline="")
    cells = read_cells(path, text="kind")
    assert cells.frame["x"].tolist() == ["", "2"] * 20
    assert cells.frame["kind"].tolist() == ["a", "b"] * 20


def packed_by_zip(content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.csv", content)
    return buffer.getvalue()


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, packed_by_zip])
def test_a_damaged_compressed_file_is_refused(tmp_path, pack):
    """Cut or changed anywhere: never other content, and never another error."""
    path = tmp_path / "t.csv.packed"
    text = "x,kind\n" + "".join(f"{i * i},{'ab'[i % 2]}\n" for i in range(40))
    whole = pack(text.encode())
    path.write_bytes(whole)
    frame = read_cells(path).frame
    for at in range(8, len(whole), 5):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]):
            path.write_bytes(damaged)
            with contextlib.suppress(RequestError):
                assert read_cells(path).frame.equals(frame)
