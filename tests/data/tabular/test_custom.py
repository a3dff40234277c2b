"""Awkward CSV files: the right table, or one clear line."""

import numpy as np
import pytest

from marginctl.data.tabular.custom import read_csv, read_csv_files, read_train_test_csv
from marginctl.errors import RequestError

PLAIN = "a,b,class\n" + "".join(f"{i * 0.5},{i % 7},{'xy'[i % 2]}\n" for i in range(20))


@pytest.fixture
def write(tmp_path):
    def write(content, name="t.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_a_plain_file(write):
    data, summary = read_csv(write(PLAIN), "class")
    assert data.x.shape == (20, 2)
    assert data.x[3].tolist() == [1.5, 3.0]
    assert data.classes == ("x", "y")
    assert data.y.tolist() == [i % 2 for i in range(20)]
    assert tuple(c.name for c in data.columns) == ("a", "b")
    assert data.name == "t.csv"
    assert summary.lines() == [
        "t.csv: 20 rows, comma-separated: 20 used",
        "  2 classes: x (10), y (10)",
        "  2 numeric columns: a, b",
    ]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(write, separator):
    plain = read_csv(write(PLAIN), "class")[0]
    other = read_csv(write(PLAIN.replace(",", separator), "o.csv"), "class")[0]
    assert np.array_equal(plain.x, other.x)


def test_decimal_commas(write):
    text = PLAIN.replace(",", ";").replace(".", ",")
    data, _ = read_csv(write(text), "class")
    assert np.array_equal(data.x, read_csv(write(PLAIN), "class")[0].x)


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + PLAIN.encode(),
        PLAIN.encode("utf-16"),
        PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace("\n", "\n\n").encode(),
        PLAIN.replace(",", " , ").encode(),
        PLAIN.rstrip("\n").encode(),
        "".join(
            f'"{a}","{b}","{c}"\n' for a, b, c in (line.split(",") for line in PLAIN.splitlines())
        ).encode(),
    ],
    ids=["bom", "utf-16", "crlf", "blank lines", "blanks", "no last line end", "quotes"],
)
def test_the_same_table_in_other_formats(write, content):
    data, _ = read_csv(write(content), "class")
    assert np.array_equal(data.x, read_csv(write(PLAIN), "class")[0].x)
    assert data.classes == ("x", "y")


def test_quoted_newlines_and_separators(write):
    rows = "".join(f'"left\nright, {i % 3}",{i},{"xy"[i % 2]}\n' for i in range(0, 60, 3))
    data, summary = read_csv(write("text,n,class\n" + rows + '"left\nright, 1",1,x\n'), "class")
    assert summary.categorical == {"text": ["left\nright, 0", "left\nright, 1"]}
    assert data.x.shape == (21, 2)


@pytest.mark.parametrize("word", ["", "?", "NA", "N/A", "nan", "NULL", " ", "-"])
def test_missing_values_drop_their_row(write, word):
    text = PLAIN.replace("1.5,3,y", f"{word},3,y")
    data, summary = read_csv(write(text), "class")
    assert len(data.y) == 19
    assert summary.dropped == {"a missing value": 1}
    assert data.row_numbers.tolist() == [i for i in range(1, 21) if i != 4]


def test_a_missing_class_drops_its_row_and_a_mostly_missing_column_is_not_used(write):
    text = "a,rare,class\n" + "".join(
        f"{i % 9},{'' if i % 3 else i},{'xy'[i % 2]}\n" for i in range(20)
    )
    text += "5,3,?\n"
    data, summary = read_csv(write(text), "class")
    assert summary.dropped == {"no class": 1}
    assert summary.ignored == {"rare": "13 of 20 missing"}
    assert len(data.y) == 20


def test_categories_dates_ids_constants_and_texts_are_recognised(write):
    header = "id,when,color,sure,same,note,size,class\n"
    rows = "".join(
        f"{i + 100},2026-01-{i % 28 + 1:02d},{('red', 'green', 'blue')[i % 3]},{'ny'[i % 2]},7,"
        f"text {i},{i % 11},{i % 2 + 1}\n"
        for i in range(40)
    )
    data, summary = read_csv(write(header + rows), "class")
    assert summary.ignored == {
        "id": "an id",
        "when": "dates",
        "same": "constant",
        "note": "text, 40 values such as 'text 0'",
    }
    assert summary.categorical == {"color": ["blue", "green", "red"], "sure": ["n", "y"]}
    assert summary.numeric == ["size"]
    assert tuple(c.name for c in data.columns) == (
        "color=blue",
        "color=green",
        "color=red",
        "sure=y",
        "size",
    )
    assert data.x[1].tolist() == [0, 1, 0, 1, 1]
    assert data.classes == ("1", "2")


def test_a_shuffled_index_without_a_name_is_not_a_feature(write):
    order = np.random.default_rng(0).permutation(30)
    rows = "".join(f"{i},{i * 7 % 11},{'xy'[int(i > 14)]}\n" for i in order)
    _, summary = read_csv(write(",a,class\n" + rows), "class")
    assert summary.ignored == {"unnamed column 1": "an id"}


def test_rows_without_a_value_are_counted(write):
    _, summary = read_csv(write(PLAIN + ",,\n,,\n"), "class")
    assert summary.rows == 22
    assert summary.dropped == {"no value at all": 2}


def test_decimal_commas_are_reported(write):
    text = PLAIN.replace(",", ";").replace(".", ",")
    assert "  commas read as decimal points in: a" in read_csv(write(text), "class")[1].lines()


def test_numeric_labels_are_ordered_as_numbers(write):
    text = "a,class\n" + "".join(f"{i},{(10, 9, 2)[i % 3]}\n" for i in range(30, 90, 2))
    assert read_csv(write(text), "class")[0].classes == ("2", "9", "10")


def test_equal_numbers_are_one_class(write):
    text = "a,class\n" + "".join(
        f"{i * 7 % 11},{('1', '1.0', '01', '2')[i % 4]}\n" for i in range(40)
    )
    assert read_csv(write(text), "class")[1].classes == {"1": 30, "2": 10}


def test_control_characters_are_removed_from_names(write):
    text = '"a\nb",\x1b[1mc,class\n' + PLAIN.split("\n", 1)[1].replace("1.5,3,y", "oops,3,y")
    with pytest.raises(RequestError, match="column 'a b' contains 'oops'"):
        read_csv(write(text), "class")
    long = PLAIN.replace("x", "x" * 500)
    assert all(len(c) <= 60 for c in read_csv(write(long), "class")[0].classes)


def test_labels_that_differ_only_in_case_are_reported(write):
    text = PLAIN.replace(",x\n", ",X\n", 1)
    data, summary = read_csv(write(text), "class")
    assert data.classes == ("X", "x", "y")
    assert summary.notes == ["classes that differ only in case are distinct: X, x"]


def test_a_class_of_one_row_is_used(write):
    data, summary = read_csv(write(PLAIN + "3,3,z\n"), "class")
    assert summary.classes == {"x": 10, "y": 10, "z": 1}
    assert len(data.classes) == 3


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
        (PLAIN.replace("1.5,3,y", "oops,3,y"), "t.csv:5: column 'a' contains 'oops' among numbers"),
        (PLAIN.replace("1.5,3,y", "inf,3,y"), "t.csv:5: column 'a' contains 'inf'"),
        (
            PLAIN.replace("1.5,3,y", "1e300,3,y"),
            "column 'a' contains '1e300': expected numbers below",
        ),
        (PLAIN.replace(",y\n", ",x\n"), "target 'class' has only class 'x' in the 20 rows"),
        (PLAIN.replace(",x\n", ",\n").replace(",y\n", ",?\n"), "target 'class' has no class"),
        (PLAIN.replace("class", "klass"), "no column 'class' for --target: the columns are a, b"),
        (PLAIN.split("\n", 1)[1], "no column 'class'"),
        ("1,2,3\n4,5,6\n", "the first line has only numbers: add a header"),
        ("class\nx\ny\n", "a single column ('class')"),
        (bytes(range(256)) * 50, "not UTF-8 text at byte 128"),
        (b"a,b,class\n1,2,\x00x\n", "a binary file"),
        (PLAIN.encode("latin-1").replace(b"x", b"\xfc"), "not UTF-8 text"),
        ("a,class\n" + "".join(f"{i},{i * 1.1}\n" for i in range(50)), "50 distinct numbers in 50"),
        (
            "id,class\n" + "".join(f"{i},{'xy'[i % 2]}\n" for i in range(50)),
            "no column can be used",
        ),
    ],
)
def test_an_unsuitable_file_is_one_line(write, content, message):
    with pytest.raises(RequestError) as caught:
        read_csv(write(content), "class")
    assert len(caught.value.lines) == 1
    assert message in caught.value.lines[0]
    assert "t.csv" in caught.value.lines[0]


def test_a_missing_file(tmp_path):
    with pytest.raises(RequestError, match="cannot be read: No such file"):
        read_csv(tmp_path / "t.csv", "class")
    with pytest.raises(RequestError, match="cannot be read: Is a directory"):
        read_csv(tmp_path, "class")


def test_a_large_file_keeps_its_numbers(write):
    stream = np.random.default_rng(0)
    x = stream.normal(size=(1000, 30)).round(6)
    y = stream.integers(5, size=1000)
    lines = [",".join([*(f"c{i}" for i in range(30)), "class"])]
    lines += [",".join([*map(str, row), str(c)]) for row, c in zip(x.tolist(), y, strict=True)]
    data, _ = read_csv(write("\n".join(lines)), "class")
    assert np.array_equal(data.x, x)
    assert np.array_equal(data.y, y)


def test_training_rows_alone_decide_column_types(write):
    train = "color,n,k,class\n" + "".join(
        f"{'rg'[i % 2]},{i % 9},1,{'xy'[i % 2]}\n" for i in range(20)
    )
    test = "class,k,n,color\n" + "".join(
        f"{'xy'[i % 2]},{i},{i % 9},{'rgb'[i % 3]}\n" for i in range(9)
    )
    data, summary = read_train_test_csv(write(train, "train.csv"), write(test, "test.csv"), "class")
    assert data.name == "train.csv+test.csv"
    assert data.fixed_test.tolist() == list(range(20, 29))
    assert summary.ignored == {"k": "constant"}
    assert tuple(c.name for c in data.columns) == ("color=g", "color=r", "n")
    assert data.x[20:23, :2].tolist() == [[0, 1], [1, 0], [0, 0]]
    assert data.row_numbers[20:].tolist() == list(range(1, 10))
    assert "column 'color': b only in test rows: no category" in summary.notes


def test_a_column_is_numeric_where_the_training_rows_are(write):
    test = PLAIN.replace("1.5,3,y", "low,3,y").replace("2.0,4,x", "low,4,x")
    with pytest.raises(RequestError, match=r"test\.csv:5: column 'a' contains 'low' among numbers"):
        read_train_test_csv(write(PLAIN, "train.csv"), write(test, "test.csv"), "class")


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (PLAIN.replace("a,b", "a,c"), "other columns than"),
        (PLAIN + "1,1,z\n", "test.csv:22: class 'z' occurs in no training row"),
        (PLAIN.split("\n")[0] + "\n?,1,x\n", "no test row can be used"),
    ],
)
def test_train_and_test_files_that_do_not_match(write, test, message):
    with pytest.raises(RequestError, match=message):
        read_train_test_csv(write(PLAIN, "train.csv"), write(test, "test.csv"), "class")


def test_options(write):
    a, b = write(PLAIN, "a.csv"), write(PLAIN.replace("class", "label"), "b.csv")
    assert [d.name for d, _ in read_csv_files([a, b], ["class", "label"])] == ["a.csv", "b.csv"]
    assert read_csv_files([], []) == []
    for files, targets, split, message in (
        ([a], [], (None, None), "--target is missing"),
        ([], ["class"], (None, None), "--target is given without --csv"),
        ([a, b], ["class"] * 3, (None, None), "--target is given 3 times for 2 files"),
        ([a, a], ["class"], (None, None), "two files are named 'a.csv'"),
        ([], ["class"], (a, None), "--test-csv is missing"),
        ([], ["class"], (a, a), "are the same"),
        ([a, b], ["class"], (None, None), "no column 'class'"),
    ):
        with pytest.raises(RequestError, match=message):
            read_csv_files(files, targets, split)
