"""Tables as data sets: classes, the target, missing values, and a training and a test file."""

import itertools
import unicodedata

import numpy as np
import pytest

from marginctl.data.tabular.custom import (
    ReadOptions,
    read_table,
    read_tables,
    read_train_test_tables,
)
from marginctl.errors import RequestError
from tests.data.tabular.tables import PLAIN, column, every_line, summary_of, types


def test_a_plain_file(write):
    data = read_table(write(PLAIN), "class")
    assert data.x.shape == (20, 2)
    assert data.x[3].tolist() == [1.5, 3.0]
    assert data.classes == ("x", "y")
    assert data.y.tolist() == [i % 2 for i in range(20)]
    assert tuple(c.name for c in data.columns) == ("a", "b")
    assert data.name == "t.csv"
    assert data.summary.as_json() == {
        "kind": "table",
        "rows": 20,
        "rows_used": 20,
        "classes": [{"name": "x", "count": 10}, {"name": "y", "count": 10}],
        "columns": [
            {"name": name, "type": "numeric", "used": True, "missing": 0, "categories": []}
            for name in ("a", "b")
        ],
        "remarks": [],
    }


@pytest.mark.parametrize("word", ["None", "NA", "null", "n/a", "?", "unknown"])
def test_a_word_in_a_text_column_or_the_target_is_a_value(write, word):
    rows = "".join(
        f"{i},{('tea', word, '')[i % 3]},{('x', word, 'y')[i % 3]}\n" for i in range(5, 95, 3)
    ).replace(",,", ",,")
    rows = "".join(
        f"{i * 7 % 11},{('tea', word, '')[i % 3]},{('x', word, 'y')[i % 3]}\n" for i in range(30)
    )
    summary = summary_of(write("n,drink,class\n" + rows))
    assert summary.classes == dict.fromkeys(("x", word, "y"), 10)
    assert set(column(summary, "drink").categories) == {"tea", word}
    assert column(summary, "drink").missing == 10
    assert sum(f"'{word.lower()}'" in r.lower() and "missing" in r for r in summary.remarks) == 1
    assert any(r.startswith(f"target: '{word}' (10) may mean") for r in summary.remarks)


def test_missing_values_are_dropped_where_that_is_asked_for(write):
    rows = "".join(
        f"{'' if i % 4 == 0 else i % 9},{'' if i % 3 else i},{'xy'[i % 2]}\n" for i in range(40)
    )
    path = write("a,rare,class\n" + rows)
    assert summary_of(path).rows_used == 40
    data = read_table(path, "class", ReadOptions(missing="drop"))
    assert data.summary.rows_used == 30
    assert [c.name for c in data.columns] == ["a"]
    assert not np.isnan(data.x).any()
    assert data.row_numbers.tolist() == [i + 1 for i in range(40) if i % 4]
    assert "not used, because more than half is missing: rare" in data.summary.remarks
    assert "10 rows with a missing value were dropped" in data.summary.remarks


def test_a_row_without_a_class_is_dropped(write):
    data = read_table(write(PLAIN + "5,3,\n,,\n"), "class")
    assert (data.summary.rows, data.summary.rows_used) == (22, 20)
    assert "2 rows without a class were dropped" in data.summary.remarks


@pytest.mark.parametrize(
    "labels",
    [
        ("1E2", "100", "2E1", "20"),
        ("6221888200042590280", "6221888200042590281"),
        ("1_1", "11"),
        ("123e4", "1230e3"),
        ("1", "1.0", "01"),
        ("0x10", "16"),
        ("+5", "5"),
        (
            "red wine that is kept in the second cellar on the left, lot A",
            "red wine that is kept in the second cellar on the left, lot B",
        ),
        ("x" * 300 + "1", "x" * 300 + "2"),
        ("True", "TRUE", "true"),
        ("tea", "tea\u200b"),
        ("iced tea", "iced\xa0tea"),
        ("A", "\u0410"),
    ],
)
@pytest.mark.parametrize("quote", ["", '"'])
def test_labels_keep_their_spelling(write, labels, quote):
    if quote == "" and any("," in label for label in labels):
        pytest.skip("needs quotes")
    rows = "".join(f"{i * 7 % 11},{quote}{labels[i % len(labels)]}{quote}\n" for i in range(60))
    summary = summary_of(write("a,class\n" + rows))
    assert set(summary.classes) == set(labels)
    assert sum(summary.classes.values()) == 60


@pytest.mark.parametrize("labels", [("1E2", "100"), ("X", "x"), ("tea", "tea\u200b"), ("1", "1.0")])
def test_labels_that_look_alike_are_reported(write, labels):
    rows = "".join(f"{i * 7 % 11},{labels[i % 2]}\n" for i in range(60))
    (remark,) = [r for r in summary_of(write("a,class\n" + rows)).remarks if "distinct" in r]
    assert remark.startswith("classes that ")


@pytest.mark.parametrize("word", ["caf\u00e9", "na\u00efve", "M\u00fcller", "\u00c5ngstr\u00f6m"])
def test_composed_and_decomposed_letters_are_one(write, word):
    spelled = [unicodedata.normalize(form, word) for form in ("NFC", "NFD")]
    rows = "".join(f"{i * 7 % 11},{(*spelled, 'tea')[i % 3]}\n" for i in range(60))
    assert summary_of(write("a,class\n" + rows)).classes == {spelled[0]: 40, "tea": 20}


def test_numeric_labels_are_ordered_as_numbers(write):
    text = "a,class\n" + "".join(f"{i},{(10, 9, 2)[i % 3]}\n" for i in range(30, 90, 2))
    assert read_table(write(text), "class").classes == ("2", "9", "10")


@pytest.mark.parametrize("word", ["nan", "NaN", "inf", "Infinity"])
@pytest.mark.parametrize("order", [*itertools.permutations(range(4))])
def test_the_order_of_classes_does_not_depend_on_the_order_of_rows(write, word, order):
    labels = [("10", "9", word, "a")[i] for i in order]
    text = "n,class\n" + "".join(f"{i * 7 % 11},{labels[i % 4]}\n" for i in range(40))
    assert read_table(write(text), "class").classes == ("9", "10", *sorted([word, "a"]))


def test_a_class_of_one_row_is_used(write):
    assert summary_of(write(PLAIN + "3,3,z\n")).classes == {"x": 10, "y": 10, "z": 1}


def test_repeated_rows_are_counted(write):
    for added, words in (("0.0,0,x\n", "1 row repeats"), ("0.0,0,x\n0.5,1,y\n", "2 rows repeat")):
        remarks = summary_of(write(PLAIN + added)).remarks
        (line,) = (r for r in remarks if r.startswith(f"{words} an earlier row: "))
        assert "remove the copies" in line


@pytest.mark.parametrize(("first", "second"), [("1.1", "1.10"), ("007", "7")])
def test_groups_that_are_equal_as_numbers_are_distinct(write, first, second):
    rows = [f"{i % 7},{(first, second, '8')[i % 3]},{'ab'[i % 2]}" for i in range(30)]
    summary = summary_of(write("\n".join(["x,family,class", *rows])), groups="family")
    assert any(r.startswith("3 groups of rows by column 'family'") for r in summary.remarks)


def test_rows_that_differ_in_their_id_alone_are_counted(write):
    rows = [f"P{i:03d},{i % 15},{i % 5},{'ab'[i % 2]}" for i in range(30)]
    table = write("\n".join(["patient,x,z,class", *rows]))
    repeated = [r for r in summary_of(table).remarks if "repeat an earlier row" in r]
    assert not repeated  # x and y repeat every 30 rows
    rows += [f"P{i + 30:03d},{i % 15},{i % 5},{'ab'[i % 2]}" for i in range(4)]
    table = write("\n".join(["patient,x,z,class", *rows]))
    assert any(r.startswith("4 rows repeat an earlier row") for r in summary_of(table).remarks)


def test_what_becomes_of_missing_values_is_said_by_type(write):
    text = "n,c,class\n" + "".join(
        f"{'' if i % 9 == 0 else i * 0.7},{'' if i % 5 == 0 else 'uvw'[i % 3]},{'xy'[i % 2]}\n"
        for i in range(40)
    )
    remarks = summary_of(write(text)).remarks
    assert (
        "missing numbers, imputed by the median of the training rows, of 40 rows: n (5)" in remarks
    )
    assert "missing values of categories, a category of their own, of 40 rows: c (8)" in remarks


@pytest.mark.parametrize(
    "target",
    [
        [f"{i * 1.1:.2f}" for i in range(50)],
        [f"{1900 + i % 60}" for i in range(200)],
        [f"{i * 1.1:.2f}".replace(".", ",") for i in range(50)],
        [f"${i * 10}" for i in range(50)],
    ],
)
def test_a_quantity_is_refused_as_a_target(write, target):
    text = "a;class\n" + "".join(f"{i * 7 % 11};{y}\n" for i, y in enumerate(target))
    with pytest.raises(RequestError, match="a quantity: expected classes: bin it first"):
        read_table(write(text), "class")


def test_many_numbered_classes(write):
    text = "a,class\n" + "".join(f"{i * 7 % 11},{i % 26}\n" for i in range(260))
    assert len(read_table(write(text), "class").classes) == 26


def test_training_rows_alone_decide_column_types(write):
    train = "color,n,k,class\n" + "".join(
        f"{'rg'[i % 2]},{i % 9},1,{'xy'[i % 2]}\n" for i in range(20)
    )
    test = "class,k,n,color\n" + "".join(
        f"{'xy'[i % 2]},{i},{i % 9},{'rgb'[i % 3]}\n" for i in range(9)
    )
    data = read_train_test_tables(write(train, "train.csv"), write(test, "test.csv"), "class")
    assert data.name == "train.csv+test.csv"
    assert data.fixed_test.tolist() == list(range(20, 29))
    assert types(data.summary) == {"color": "categorical", "n": "numeric", "k": "constant"}
    assert data.columns[0].categories == ("g", "r")
    assert data.x[20:22, 0].tolist() == [1, 0]
    assert np.isnan(data.x[22, 0])
    assert data.row_numbers[20:].tolist() == list(range(1, 10))
    assert "column 'color': 'b': only in test rows (3), read as missing" in data.summary.remarks
    assert (
        "missing values of categories, a category of their own, of 29 rows: color (3)"
        in data.summary.remarks
    )


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (PLAIN.replace("a,b", "a,c"), "other columns than"),
        (PLAIN + "1,1,z\n", "test.csv:22: class 'z' occurs in no training row"),
        (PLAIN.split("\n")[0] + "\n?,1,\n", "no test row can be used"),
        (
            every_line(PLAIN, lambda i, r: r.rpartition(",")[0]),
            r"test.csv: no column 'class', which .*train.csv has: the file has no labels",
        ),
    ],
)
def test_train_and_test_files_that_do_not_match(write, test, message):
    with pytest.raises(RequestError, match=message):
        read_train_test_tables(write(PLAIN, "train.csv"), write(test, "test.csv"), "class")


def test_rows_in_both_files_are_counted(write):
    data = read_train_test_tables(
        write(PLAIN, "train.csv"), write("".join(PLAIN.splitlines(True)[:9]), "test.csv"), "class"
    )
    assert any("of the test file are also in the training file" in r for r in data.summary.remarks)


def test_options(write):
    a, b = write(PLAIN, "a.csv"), write(PLAIN.replace("class", "label"), "b.csv")
    assert [d.name for d in read_tables([a, b], ["class", "label"])] == ["a.csv", "b.csv"]
    assert read_tables([], []) == []
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
            read_tables(files, targets, split)


@pytest.mark.parametrize("word", ["señal", "phở", "が"])
def test_a_target_in_another_unicode_form(write, word):
    nfc, nfd = (unicodedata.normalize(form, word) for form in ("NFC", "NFD"))
    for name, target in ((nfc, nfd), (nfd, nfc)):
        assert summary_of(write(PLAIN.replace("class", name)), target).classes == {"x": 10, "y": 10}
