"""The form of a text file: its separator and its line ends."""

import bz2
import contextlib
import gzip
import io
import lzma
import zipfile

import pandas as pd
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
        archive.writestr(zipfile.ZipInfo("t.csv"), content)
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


ROWS = "".join(f"{i}.5,{i % 4},{'uv'[i % 2]}\n" for i in range(20))


@pytest.mark.parametrize(
    "above",
    [
        "Report of May,,\n",
        "Report of May,,\nPrinted 2021-05-03,,\n,,\n",
        "# version 2\n",
        "Umfrage 2021\n\n,,\n",
    ],
)
def test_titles_above_the_header(tmp_path, above):
    """Spreadsheets write them with the separators of the other cells."""
    path = tmp_path / "t.csv"
    path.write_text(f"{above}a,b,kind\n{ROWS}")
    cells = read_cells(path, text="kind")
    assert list(cells.frame) == ["a", "b", "kind"]
    assert cells.lines[0] == above.count("\n") + 2
    above = above.replace(",,", ",")
    path.write_text(f"{above}a,kind\n" + "".join(f"{i}.5,u\n" for i in range(9)))
    assert list(read_cells(path, text="kind").frame) == ["a", "kind"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_joined_files_repeat_the_header(tmp_path, separator, mark):
    path = tmp_path / "t.csv"
    text = f"a,b,kind\n{ROWS}".replace(",", separator)
    path.write_text(text + mark + text + mark + text)
    cells = read_cells(path, text="kind")
    assert len(cells.frame) == 60
    assert cells.lines[20] == 23
    assert cells.frame["kind"].tolist() == ["u", "v"] * 30
    assert cells.remarks == ["2 repeated header lines left out"]


@pytest.mark.parametrize("line", ["|---|:--:|---|", "|:-|-:|-|", "|----|----|----|"])
def test_a_markdown_table(tmp_path, line):
    path = tmp_path / "t.md"
    rows = "".join(f"| {row.replace(',', ' | ')} |\n" for row in ROWS.splitlines())
    path.write_text(f"| a | b | kind |\n{line}\n{rows}")
    frame = read_cells(path, text="kind").frame
    assert len(frame) == 20
    assert frame["kind"].tolist() == ["u", "v"] * 10


@pytest.mark.parametrize("cell", ["x;y;z{i}", "p\tq{i}", "u|v|w{i}", "m;n"])
@pytest.mark.parametrize("header", ["tags,kind", "tags,size,kind"])
def test_cells_that_hold_other_separators_than_the_header(tmp_path, cell, header):
    path = tmp_path / "t.csv"
    size = ",2.5" * (header.count(",") - 1)
    rows = [f"{cell.format(i=i % 3)}{size},{'uv'[i % 2]}" for i in range(30)]
    path.write_text("\n".join([header, *rows]))
    frame = read_cells(path).frame
    assert list(frame) == header.split(",")
    assert frame["tags"][1] == cell.format(i=1)


@pytest.mark.parametrize("header", ["[id],weight [g],kind", "{id},w,kind", "[mm],[kg],kind"])
def test_a_header_with_brackets_is_no_json(tmp_path, header):
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n{ROWS}")
    assert list(read_cells(path).frame) == header.split(",")


def test_the_end_mark_of_a_dos_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"a,b,kind\n{ROWS}\x1a")
    assert len(read_cells(path).frame) == 20


@pytest.mark.parametrize("other", ["__MACOSX/._t.csv", "data/", "__MACOSX/data/._t.csv"])
def test_a_zip_file_of_a_mac_or_with_a_folder(tmp_path, other):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(other, b"")
        archive.writestr("data/t.csv", f"a,b,kind\n{ROWS}")
    path = tmp_path / "t.zip"
    path.write_bytes(buffer.getvalue())
    assert len(read_cells(path).frame) == 20


@pytest.mark.parametrize("words", [("müde", "wach"), ("спит", "nein"), ("が", "b")])
def test_an_arff_file_in_any_language(tmp_path, words):
    path = tmp_path / "t.arff"
    head = "@relation r\n@attribute größe numeric\n@attribute when date 'yyyy-MM-dd'\n"
    rows = "".join(f"{i},'2021-01-{i + 1:02}',{words[i % 2]}\n" for i in range(20))
    path.write_text(f"{head}@attribute kind {{{words[0]},{words[1]}}}\n@data\n{rows}")
    frame = read_cells(path).frame
    assert list(frame) == ["größe", "when", "kind"]
    assert frame["kind"].tolist() == list(words) * 10
    assert frame["when"][4].startswith("2021-01-05")


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("ends", ["", ",", ",,"])
@pytest.mark.parametrize("row", [5, 201, 900])
def test_a_value_in_a_column_without_a_name_is_read(tmp_path, row, ends, quote):
    """Also far below the rows by which the form of a file is recognised."""
    lines = ["x,kind," + ends, *[f"{i},{quote}a{quote},{ends}" for i in range(1000)]]
    lines[row] += "note"
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines))
    cells = read_cells(path, text="kind")
    assert list(cells.frame) == ["x", "kind", f"unnamed column {3 + len(ends)}"]
    assert [str(v) for v in cells.frame["x"]] == [str(i) for i in range(1000)]
    assert cells.frame.iloc[:, 2].tolist() == [*[""] * (row - 1), "note", *[""] * (1000 - row)]


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c"])
def test_only_line_ends_count_as_lines(tmp_path, character):
    path = tmp_path / "t.csv"
    path.write_text(f'x,kind\n1{character}2,a\n3{character}4,b\n5,a\n6,"b\n7,a\n')
    with pytest.raises(RequestError, match=r"t\.csv:5: a quote opens here"):
        read_cells(path)


def test_a_compressed_workbook(tmp_path):
    content = io.BytesIO()
    pd.DataFrame({"x": [1.5, 2], "kind": ["a", "b"]}).to_excel(content, index=False)
    path = tmp_path / "t.xlsx.gz"
    path.write_bytes(gzip.compress(content.getvalue(), mtime=0))
    assert read_cells(path).frame.to_numpy().tolist() == [["1.5", "a"], ["2", "b"]]
