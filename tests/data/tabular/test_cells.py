"""Tables as text: form, encoding, separators, header, quotes, and files that are no tables."""

import bz2
import contextlib
import gzip
import io
import lzma
import zipfile

import numpy as np
import pandas as pd
import pytest

from marginctl.data.tabular.cells import read_cells
from marginctl.data.tabular.custom import (
    ReadOptions,
    inspect_table,
    read_table,
)
from marginctl.errors import RequestError
from tests.data.tabular.tables import PLAIN, column, every_line, summary_of, workbook, zipped


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
    cells = read_cells(path, texts=["kind"])
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
    cells = read_cells(path, texts=["kind"])
    assert list(cells.frame) == ["a", "b", "kind"]
    assert cells.lines[0] == above.count("\n") + 2
    above = above.replace(",,", ",")
    path.write_text(f"{above}a,kind\n" + "".join(f"{i}.5,u\n" for i in range(9)))
    assert list(read_cells(path, texts=["kind"]).frame) == ["a", "kind"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_joined_files_repeat_the_header(tmp_path, separator, mark):
    path = tmp_path / "t.csv"
    text = f"a,b,kind\n{ROWS}".replace(",", separator)
    path.write_text(text + mark + text + mark + text)
    cells = read_cells(path, texts=["kind"])
    assert len(cells.frame) == 60
    assert cells.lines[20] == 23
    assert cells.frame["kind"].tolist() == ["u", "v"] * 30
    assert cells.remarks == ["2 repeated header lines left out"]


@pytest.mark.parametrize("line", ["|---|:--:|---|", "|:-|-:|-|", "|----|----|----|"])
def test_a_markdown_table(tmp_path, line):
    path = tmp_path / "t.md"
    rows = "".join(f"| {row.replace(',', ' | ')} |\n" for row in ROWS.splitlines())
    path.write_text(f"| a | b | kind |\n{line}\n{rows}")
    frame = read_cells(path, texts=["kind"]).frame
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
    cells = read_cells(path, texts=["kind"])
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


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", " ", "  \t "])
def test_separators(write, separator):
    plain = read_table(write(PLAIN), "class")
    other = read_table(write(PLAIN.replace(",", separator), "o.csv"), "class")
    assert np.array_equal(plain.x, other.x)


FORMS = {
    "byte-order mark": b"\xef\xbb\xbf" + PLAIN.encode(),
    "utf-16": PLAIN.encode("utf-16"),
    "utf-16-le without a mark": PLAIN.encode("utf-16-le"),
    "utf-16-be without a mark": PLAIN.encode("utf-16-be"),
    "crlf": PLAIN.replace("\n", "\r\n").encode(),
    "blank lines": PLAIN.replace("\n", "\n\n").encode(),
    "blanks": PLAIN.replace(",", " , ").encode(),
    "no last line end": PLAIN.rstrip("\n").encode(),
    "quotes": every_line(PLAIN, lambda i, r: ",".join(f'"{c}"' for c in r.split(","))).encode(),
    "gzip": gzip.compress(PLAIN.encode(), mtime=0),
    "bzip2": bz2.compress(PLAIN.encode()),
    "xz": lzma.compress(PLAIN.replace(",", ";").encode()),
    "zip": zipped(),
    "workbook": workbook(),
    "separator at each line's end": PLAIN.replace("\n", ",\n").encode(),
    "separator at each row's end": every_line(PLAIN, lambda i, r: r + "," * bool(i)).encode(),
    "two separators at each row's end": every_line(PLAIN, lambda i, r: r + ",," * bool(i)).encode(),
    "row names": every_line(PLAIN, lambda i, r: f'"r{i}",' * bool(i) + r).encode(),
    "quoted row names": every_line(
        PLAIN, lambda i, r: f'"{i}";' * bool(i) + r.replace(",", ";")
    ).encode(),
    "row names with tabs": every_line(
        PLAIN, lambda i, r: f"{i}\t" * bool(i) + r.replace(",", "\t")
    ).encode(),
    "sep=": ("sep=,\n" + PLAIN).encode(),
    "sep=;": ("sep=;\r\n" + PLAIN.replace(",", ";")).encode(),
    "a title": ("Measurements of 2021\n\n" + PLAIN).encode(),
    "comments": ("# made by hand\n# units: mm\n" + PLAIN).encode(),
    "arff": (
        "% a comment\n@relation r\n@attribute a numeric\n@attribute b numeric\n"
        "@attribute class {x,y}\n@data\n" + PLAIN.split("\n", 1)[1]
    ).encode(),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_table_in_other_forms(write, form):
    data = read_table(write(FORMS[form]), "class")
    plain = read_table(write(PLAIN, "plain.csv"), "class")
    assert np.array_equal(data.x, plain.x)
    assert np.array_equal(data.y, plain.y)
    assert data.classes == ("x", "y")
    assert [c.name for c in data.columns] == ["a", "b"]


def test_quoted_newlines_and_separators(write):
    rows = "".join(f'"left\nright, {i % 3}",{i},{"xy"[i % 2]}\n' for i in range(0, 60, 3))
    text = "text,n,class\n" + rows + '"left\nright, 1",1,x\n'
    summary = summary_of(write(text))
    assert column(summary, "text").categories == ("left\nright, 0", "left\nright, 1")
    assert summary.rows == 21


@pytest.mark.parametrize(
    ("quote", "line"),
    [
        ('3.0,6,"x\n', 8),
        ('"3.0,6,x\n', 8),
        ('3.0,"6,x\n', 8),
    ],
)
@pytest.mark.parametrize("closed", [False, True])
def test_a_quote_that_is_not_closed_is_refused_with_its_line(write, quote, line, closed):
    text = PLAIN.replace("3.0,6,x\n", quote)
    column = quote.split(",").index(next(c for c in quote.split(",") if '"' in c))
    if closed:
        cells = ["7.0", "0", "x"]
        cells[column] += '"'
        text = text.replace("7.0,0,x\n", ",".join(cells) + "\n")
    with pytest.raises(RequestError, match=rf"t\.csv:{line}: a quote opens"):
        read_table(write(text), "class")


@pytest.mark.parametrize(
    "rows",
    [
        "0.2,private,0.1,low\n0.5,private,1.2,high\n",
        "a,0.7,x\nb,0.5,y\nc,0.1,x\n",
        "x,1,u\nx,2,v\ny,3,u\n",
        "1.5;2,5;low\n2.5;3,5;high\n",
    ],
)
def test_a_header_that_looks_like_a_row_is_named(write, rows):
    path = write(rows * 10)
    target = rows.split("\n")[0].replace(";", ",").split(",")[-1]
    if ";" in rows:
        target = rows.split("\n")[0].split(";")[-1]
    remark = "line 1 looks like a row of data: give --no-header if it is one"
    with pytest.raises(RequestError, match="no-header"):
        read_table(path, "nope")
    assert remark in inspect_table(path, target).remarks
    width = rows.split("\n")[0].count(";" if ";" in rows else ",") + 1
    without = inspect_table(path, str(width), ReadOptions(header=False))
    assert without.rows == 10 * rows.count("\n")
    assert [c.name for c in without.columns] == [str(i) for i in range(1, width)]


@pytest.mark.parametrize("header", ["0,1,2", "1,2,3", "2019,2020,2021", "7,8,9"])
def test_a_header_of_numbers(write, header):
    target = header.split(",")[2]
    data = read_table(write(PLAIN.replace("a,b,class", header)), target)
    assert [c.name for c in data.columns] == header.split(",")[:2]
    assert data.num_rows == 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("\n \n", "the file is empty"),
        ('""', "the file is empty"),
        (
            "a,class\n" + "".join(f"{i},name {i}\n" for i in range(50)),
            "50 distinct values in 50 rows",
        ),
        ("a,b,class\n", "no rows below the header"),
        (PLAIN.replace("a,b", "a,a"), "t.csv:1: duplicate column 'a'"),
        (PLAIN.replace("1.5,3,y", "1.5,3"), "t.csv:5: 2 columns, expected 3"),
        (PLAIN.replace("1.5,3,y", "1.5,3,y,z"), "t.csv:5: 4 columns, expected 3"),
        (PLAIN.replace(",y\n", ",x\n"), "target 'class' has only class 'x' in the 20 rows"),
        (PLAIN.replace(",x\n", ",\n").replace(",y\n", ",\n"), "target 'class' has no class"),
        (PLAIN.replace("class", "klass"), "no column 'class' for --target: the columns are a, b"),
        ("class\nx\ny\n", "a single column ('class')"),
        (bytes(range(256)) * 50, "a binary file"),
        (b"a,b,class\n1,2,\x00x\n", "a binary file"),
        (
            "id,class\n" + "".join(f"{i},{'xy'[i % 2]}\n" for i in range(50)),
            "no column can be used as a feature: id (id)",
        ),
        ("<!DOCTYPE html><html></html>", "an HTML page"),
        ("  <html>\n<table></table></html>", "an HTML page"),
        ("+1 1:0.5 2:3\n-1 2:1\n", "LIBSVM format"),
        ('{"a": [1, 2]}', "a JSON file"),
        (b"PAR1" + bytes(50), "a Parquet file"),
        (b"\x89HDF\r\n", "an HDF5 file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (gzip.compress(PLAIN.encode(), mtime=0)[:50], "a corrupt gzip file"),
        (zipped("xl/workbook.xml"), "a workbook that cannot be read"),
        (zipped()[:-10], "a corrupt zip file"),
        (b"\xd0\xcf\x11\xe0" + bytes(600), "a workbook that cannot be read"),
        ("@relation r\n@attribute a string\n@data\nx\n", "an ARFF file that cannot be read"),
    ],
)
def test_an_unsuitable_file_is_one_line(write, content, message):
    with pytest.raises(RequestError) as caught:
        read_table(write(content), "class")
    assert len(caught.value.lines) == 1
    assert message in caught.value.lines[0]
    assert "t.csv" in caught.value.lines[0]
    assert caught.value.lines[0].isprintable()


def test_other_encodings_are_named(write):
    summary = summary_of(write(PLAIN.replace("x", "m\u00fcde").encode("latin-1")))
    assert set(summary.classes) == {"m\u00fcde", "y"}
    assert "the text was read as cp1252" in summary.remarks


def test_a_missing_file(tmp_path):
    with pytest.raises(RequestError, match="cannot be read: No such file"):
        read_table(tmp_path / "t.csv", "class")
    with pytest.raises(RequestError, match="cannot be read: Is a directory"):
        read_table(tmp_path, "class")


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_large_file_keeps_its_numbers(write, quote):
    stream = np.random.default_rng(0)
    x = stream.normal(size=(1000, 30)).round(6)
    y = stream.integers(5, size=1000)
    lines = [",".join([*(f"c{i}" for i in range(30)), f"{quote}class{quote}"])]
    lines += [",".join([*map(str, row), str(c)]) for row, c in zip(x.tolist(), y, strict=True)]
    data = read_table(write("\n".join(lines)), "class")
    assert np.array_equal(data.x, x)
    assert np.array_equal(data.y, y)


def test_a_comma_in_a_name_is_no_separator(write):
    rows = "".join(f'"{i}";{i},5;{i % 7};{"xy"[i % 2]}\n' for i in range(20))
    data = read_table(write('"size, cm";b;class\n' + rows), "class")
    assert [c.name for c in data.columns] == ["size, cm", "b"]
    assert data.x[3].tolist() == [3.5, 3]


@pytest.mark.parametrize("character", ["\x1d", "\x0b", "\x85", "\u2028"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_only_line_ends_end_a_line(write, character, end):
    text = PLAIN.replace(",x\n", f",x{character}z\n", 3).replace("\n", end)
    assert summary_of(write(text)).rows == 20


@pytest.mark.parametrize("columns", [(20, 0, 5), (3, 17, 6), (63, 145, 5)])
def test_a_row_of_whole_numbers_as_the_header_is_named(write, columns):
    first, second, label = columns
    rows = "".join(f"{first},{i * 3 % 17},{label + i % 2}\n" for i in range(1, 40))
    summary = summary_of(write(f"{first},{second},{label}\n" + rows), str(label))
    assert any("looks like a row of data" in remark for remark in summary.remarks)
