"""Awkward CSV files: the right table, or one clear line."""

import bz2
import gzip
import io
import itertools
import lzma
import unicodedata
import zipfile

import numpy as np
import pandas as pd
import pytest

from marginctl.data.tabular.custom import (
    ReadOptions,
    inspect_table,
    read_table,
    read_tables,
    read_train_test_tables,
)
from marginctl.errors import RequestError

PLAIN = "a,b,class\n" + "".join(f"{i * 0.5},{i % 7},{'xy'[i % 2]}\n" for i in range(20))


@pytest.fixture
def write(tmp_path):
    def write(content, name="t.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def summary_of(path, target="class", **options):
    return read_table(path, target, ReadOptions(**options)).summary


def types(summary):
    return {column.name: column.type for column in summary.columns}


def column(summary, name):
    return next(column for column in summary.columns if column.name == name)


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


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", " ", "  \t "])
def test_separators(write, separator):
    plain = read_table(write(PLAIN), "class")
    other = read_table(write(PLAIN.replace(",", separator), "o.csv"), "class")
    assert np.array_equal(plain.x, other.x)


def test_decimal_commas(write):
    text = PLAIN.replace(",", ";").replace(".", ",")
    data = read_table(write(text), "class")
    assert np.array_equal(data.x, read_table(write(PLAIN), "class").x)
    assert "column 'a': commas read as decimal points" in data.summary.remarks


def workbook():
    stream = io.BytesIO()
    rows = [line.split(",") for line in PLAIN.splitlines()]
    values = [[float(c) if i and j < 2 else c for j, c in enumerate(r)] for i, r in enumerate(rows)]
    pd.DataFrame(values).to_excel(stream, header=False, index=False)
    return stream.getvalue()


def zipped(name="t.csv"):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), PLAIN)
    return stream.getvalue()


def every_line(text, change):
    return "".join(change(i, line) + "\n" for i, line in enumerate(text.splitlines()))


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


NA = ["NA", "N/A", "#N/A", "NaN", "null", "?", ""]


@pytest.mark.parametrize("word", NA)
@pytest.mark.parametrize("share", [0.05, 0.2, 0.8])
def test_words_in_a_numeric_column_are_missing(write, word, share):
    count = int(40 * share)
    rows = "".join(f"{word if i < count else i / 8},{i % 7},{'xy'[i % 2]}\n" for i in range(40))
    data = read_table(write("a,b,class\n" + rows), "class")
    assert np.isnan(data.x[:, 0]).sum() == count
    assert data.x[count:, 0].tolist() == [i / 8 for i in range(count, 40)]
    assert column(data.summary, "a").missing == count
    assert data.summary.rows_used == 40
    assert any("missing" in remark for remark in data.summary.remarks)


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


def test_categories_dates_ids_constants_and_texts_are_recognised(write):
    header = "id,when,color,sure,same,note,size,class\n"
    rows = "".join(
        f"{i + 100},2026-01-{i % 28 + 1:02d},{('red', 'green', 'blue')[i % 3]},{'ny'[i % 2]},7,"
        f"text {i},{i % 11},{i % 2 + 1}\n"
        for i in range(40)
    )
    data = read_table(write(header + rows), "class")
    assert types(data.summary) == {
        "id": "id",
        "when": "date",
        "color": "categorical",
        "sure": "boolean",
        "same": "constant",
        "note": "text",
        "size": "numeric",
    }
    assert [c.name for c in data.columns] == ["color", "sure", "size"]
    assert data.columns[0].categories == ("blue", "green", "red")
    assert data.x[1].tolist() == [1, 1, 1]
    assert data.classes == ("1", "2")


def test_many_categories_are_used(write):
    rows = "".join(f"{i % 9},land{i * i % 61},{'xy'[i % 2]}\n" for i in range(300))
    summary = summary_of(write("n,country,class\n" + rows))
    assert column(summary, "country").type == "categorical"
    assert len(column(summary, "country").categories) == 31


def test_a_shuffled_index_without_a_name_is_not_a_feature(write):
    order = np.random.default_rng(0).permutation(30)
    rows = "".join(f"{i},{i * 7 % 11},{'xy'[int(i > 14)]}\n" for i in order)
    assert types(summary_of(write(",a,class\n" + rows)))["unnamed column 1"] == "id"


NUMBERS = {  # how 1204.5, 990 and 12480 are written in a file with this separator
    "plain": (",", ["1204.5", "990", "12480"], [1204.5, 990, 12480]),
    "comma groups": (",", ['"1,204.5"', "990", '"12,480"'], [1204.5, 990, 12480]),
    "comma groups, whole": (",", ['"1,204"', "990", '"12,480"'], [1204, 990, 12480]),
    "comma groups, tab": ("\t", ["1,204", "990", "12,480"], [1204, 990, 12480]),
    "comma groups, millions": (";", ["1,204,000", "990", "12,480"], [1204000, 990, 12480]),
    "comma groups, bar": ("|", ["1,204", "-990", "-12,480"], [1204, -990, -12480]),
    "point groups": (";", ["1.204,5", "990", "12.480"], [1204.5, 990, 12480]),
    "point groups, whole": (";", ["1.204", "990", "12.480"], [1204, 990, 12480]),
    "point groups, millions": (",", ["1.204.000", "990", "12.480"], [1204000, 990, 12480]),
    "blank groups": (";", ["1 204,5", "990", "12 480"], [1204.5, 990, 12480]),
    "narrow blank groups": (",", ["1\u202f204", "990", "12\u202f480"], [1204, 990, 12480]),
    "apostrophe groups": (",", ["1'204.5", "990", "12'480"], [1204.5, 990, 12480]),
    "decimal commas": (";", ["1204,5", "990", "0,25"], [1204.5, 990, 0.25]),
    "three decimals": (",", ["0.717", "1.342", "0.235"], [0.717, 1.342, 0.235]),
    "three decimals, commas": (";", ["0,717", "1,342", "0,235"], [0.717, 1.342, 0.235]),
    "percent": (",", ["63%", "5%", "12.5%"], [63, 5, 12.5]),
    "percent after a blank": (";", ["63 %", "5 %", "12,5 %"], [63, 5, 12.5]),
    "dollars": (",", ["$63", "$5", "$12.50"], [63, 5, 12.5]),
    "dollars in groups": (",", ['"$1,204"', "$5", '"$12,480"'], [1204, 5, 12480]),
    "euros": (";", ["1.204,50 €", "5,00 €", "12,50 €"], [1204.5, 5, 12.5]),
    "currency codes": (",", ["USD 63", "USD 5", "USD 12.50"], [63, 5, 12.5]),
    "minus sign": (",", ["\u22121.5", "2", "\u22123"], [-1.5, 2, -3]),
    "accounts": (",", ['"(1,204)"', "990", '"(12,480)"'], [-1204, 990, -12480]),
    "Indian groups": (";", ["12,34,567", "990", "12,480"], [1234567, 990, 12480]),
    "few above a thousand": (";", [*["3,50"] * 28, "12,25", "1.204,50"], [3.5, 3.5, 3.5]),
    "few with commas": ("|", [*["3.50"] * 28, "12.25", "1,204.50"], [3.5, 3.5, 3.5]),
    "exponents": (",", ["1e-3", "2.5E+2", "7"], [0.001, 250, 7]),
}


@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_as_people_write_them(write, form):
    separator, texts, expected = NUMBERS[form]
    rows = [[texts[i % len(texts)], str(i % 7), "xy"[i % 2]] for i in range(30)]
    text = "".join(separator.join(row) + "\n" for row in [["a", "b", "class"], *rows])
    data = read_table(write(text), "class")
    assert types(data.summary) == {"a": "numeric", "b": "numeric"}
    assert data.x[:3, 0].tolist() == pytest.approx(expected, rel=1e-12)
    assert not np.isnan(data.x).any()
    unusual = form not in ("plain", "three decimals", "exponents", "minus sign")
    assert any(r.startswith("column 'a'") for r in data.summary.remarks) == unusual


def test_the_tables_decimal_mark_decides_an_ambiguous_column(write):
    rows = "".join(f"1.{i * 7 % 900 + 100};{i},5;{'xy'[i % 2]}\n" for i in range(140))
    data = read_table(write("people;share;class\n" + rows), "class")
    assert data.x[0].tolist() == [1100, 0.5]
    rows = "".join(f'"1,{i * 7 % 900 + 100}",{i}.5,{"xy"[i % 2]}\n' for i in range(140))
    data = read_table(write("people,share,class\n" + rows), "class")
    assert data.x[0].tolist() == [1100, 0.5]


def test_an_ambiguous_column_is_named(write):
    rows = "".join(f"{i}.{i + 2}0,{i % 7},{'xy'[i % 2]}\n" for i in range(10, 50))
    summary = summary_of(write("a,b,class\n" + rows))
    assert "column 'a': 10.120 read with a decimal point, not as 10120" in summary.remarks


DATES = [
    *("2021/01/04", "2021-1-4", "04-01-2021", "04.01.2021", "4.1.21", "01/04/2021", "1/4/21"),
    *("Jan 04, 2021", "January 4 2021", "4 January 2021", "04-Jan-21", "4. Januar 2021"),
    *("20210104", "2021-01", "2021/01", "01/2021", "Jan 2021", "2021-W01", "2021-Q1"),
    *("2021-01-04T09:30:00Z", "2021-01-04 09:30:00+01:00", "04.01.2021 09:30", "09:30:15"),
    *("Mon, 04 Jan 2021 09:30:00 GMT", "1/4/2021 9:30 PM", "2021-01-04 09:30:00.123"),
]


@pytest.mark.parametrize("date", DATES)
def test_dates(write, date):
    dates = [date, date.replace("01", "02", 1) if "01" in date else date.replace("4", "5", 1)]
    rows = "".join(f'"{dates[i % 2]}",{i % 7},{"xy"[i % 2]}\n' for i in range(20))
    assert types(summary_of(write("d,b,class\n" + rows)))["d"] == "date"


@pytest.mark.parametrize("text", ["12.5", "2021.5", "1-2", "10/12", "may", "555-1234", "1:2", "24"])
def test_what_is_no_date(write, text):
    texts = [text, text.replace("1", "3").replace("2", "5").replace("may", "june")]
    rows = "".join(f"{texts[i % 2]},{i % 7},{'xy'[i % 2]}\n" for i in range(20))
    assert types(summary_of(write("d,b,class\n" + rows)))["d"] in ("numeric", "categorical")


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


@pytest.mark.parametrize(
    "texts",
    [
        ("1E2", "100"),
        ("123e4", "1230e3"),
        ("1_1", "11"),
        ("6221888200042590280", "6221888200042590281"),
    ],
)
def test_codes_are_not_merged_as_numbers(write, texts):
    rows = "".join(f"{i * 7 % 11},{texts[i // 3 % 2]},{'xy'[i % 2]}\n" for i in range(60))
    assert column(summary_of(write("a,code,class\n" + rows)), "code").categories == tuple(
        sorted(texts)
    )


@pytest.mark.parametrize("word", ["caf\u00e9", "na\u00efve", "M\u00fcller", "\u00c5ngstr\u00f6m"])
def test_composed_and_decomposed_letters_are_one(write, word):
    spelled = [unicodedata.normalize(form, word) for form in ("NFC", "NFD")]
    rows = "".join(f"{i * 7 % 11},{(*spelled, 'tea')[i % 3]}\n" for i in range(60))
    assert summary_of(write("a,class\n" + rows)).classes == {spelled[0]: 40, "tea": 20}


def test_a_column_of_truth_values_in_any_case(write):
    words = ["No", "no", "Yes", "yes", "YES "]
    rows = "".join(f"{i * 7 % 11},{words[i % 5]},{'xy'[i % 2]}\n" for i in range(60))
    hot = column(summary_of(write("a,hot,class\n" + rows)), "hot")
    assert (hot.type, hot.categories) == ("boolean", ("no", "yes"))


def test_numeric_labels_are_ordered_as_numbers(write):
    text = "a,class\n" + "".join(f"{i},{(10, 9, 2)[i % 3]}\n" for i in range(30, 90, 2))
    assert read_table(write(text), "class").classes == ("2", "9", "10")


@pytest.mark.parametrize("word", ["nan", "NaN", "inf", "Infinity"])
@pytest.mark.parametrize("order", [*itertools.permutations(range(4))])
def test_the_order_of_classes_does_not_depend_on_the_order_of_rows(write, word, order):
    labels = [("10", "9", word, "a")[i] for i in order]
    text = "n,class\n" + "".join(f"{i * 7 % 11},{labels[i % 4]}\n" for i in range(40))
    assert read_table(write(text), "class").classes == ("9", "10", *sorted([word, "a"]))


COLUMNS = {  # values of two columns in turn, and what the first one means
    "a decimal point in the other column": (["990", "1.040", "850"], ["2.5", "0.75"], 1.04),
    "a decimal point in short": (["12", "1.125", "7"], ["3.5", "10.25", "0.5"], 1.125),
    "no decimal mark elsewhere": (["990", "1.040", "850"], ["2", "7", "3"], 1040),
    "codes beside decimals": (["100", "1E2", "2.5"], ["2", "7"], 100),
    "many digits": (["0.1", "0.12345678901234567891", "2.5"], ["2"], 0.12345678901234567891),
    "many digits, small": (["0.1", "6.9294956446009195e-15", "2"], ["2"], 6.9294956446009195e-15),
}


@pytest.mark.parametrize("case", COLUMNS)
@pytest.mark.parametrize("empty", [False, True])
def test_a_number_is_the_same_with_quotes_and_without(write, case, empty):
    """Tables without a quote or an empty cell are read by pandas, others by Python's reader."""
    first, second, value = COLUMNS[case]
    rows = [[first[i % len(first)], second[i % len(second)], "xy"[i % 2]] for i in range(60)] + [
        ["", "", "x"]
    ] * empty
    plain, quoted = (
        read_table(write("a,b,class\n" + "".join(
            ",".join(f"{quote}{cell}{quote}" for cell in row) + "\n" for row in rows
        )), "class")
        for quote in ("", '"')
    )  # fmt: skip
    assert plain.x[1, 0] == quoted.x[1, 0] == value
    assert np.array_equal(plain.x, quoted.x, equal_nan=True)
    assert types(plain.summary) == types(quoted.summary)


@pytest.mark.parametrize("above", [150, 199, 200, 900])
@pytest.mark.parametrize(("text", "value"), [("1.040", 1040), ("12.480", 12480)])
def test_a_thousand_far_below_the_first_rows(write, above, text, value):
    """Until there, no number has a point."""
    cells = [str(i * 7 % 990) for i in range(above)] + [text, "990", text]
    rows = "".join(f"{cell};{i % 7},5;{'xy'[i % 2]}\n" for i, cell in enumerate(cells))
    assert read_table(write("a;b;class\n" + rows), "class").x[above, 0] == value


def test_a_class_of_one_row_is_used(write):
    assert summary_of(write(PLAIN + "3,3,z\n")).classes == {"x": 10, "y": 10, "z": 1}


def test_repeated_rows_are_counted(write):
    assert "2 rows repeat an earlier row" in summary_of(write(PLAIN + "0.0,0,x\n0.5,1,y\n")).remarks


@pytest.mark.parametrize("word", ["oops", "inf", "1e300", "--5"])
def test_odd_words_among_numbers_are_named_and_missing(write, word):
    data = read_table(write(PLAIN.replace("1.5,3,y", f"{word},3,y")), "class")
    assert np.isnan(data.x[3, 0])
    assert (
        f"column 'a': '{word}': no number up to 1e30, read as missing (1 in all)"
        in data.summary.remarks
    )


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


def test_an_index_beside_rows_without_a_class_is_an_id(write):
    rows = "".join(f"{i},{i * 7 % 11},{('x', 'y', '')[i % 7 % 3]}\n" for i in range(60))
    assert types(summary_of(write("count,a,class\n" + rows)))["count"] == "id"


def test_a_comma_in_a_name_is_no_separator(write):
    rows = "".join(f'"{i}";{i},5;{i % 7};{"xy"[i % 2]}\n' for i in range(20))
    data = read_table(write('"size, cm";b;class\n' + rows), "class")
    assert [c.name for c in data.columns] == ["size, cm", "b"]
    assert data.x[3].tolist() == [3.5, 3]


def test_odd_texts_beside_currencies(write):
    rows = "".join(f"EUR {i * 7 % 50},{i % 7},{'xy'[i % 2]}\n" for i in range(50)).replace(
        "EUR 13,", "free,"
    )
    data = read_table(write("price,b,class\n" + rows), "class")
    assert np.isnan(data.x[9, 0])
    assert data.x[10, 0] == 20


@pytest.mark.parametrize("character", ["\x1d", "\x0b", "\x85", "\u2028"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_only_line_ends_end_a_line(write, character, end):
    text = PLAIN.replace(",x\n", f",x{character}z\n", 3).replace("\n", end)
    assert summary_of(write(text)).rows == 20


@pytest.mark.parametrize("word", ["señal", "phở", "が"])
def test_a_target_in_another_unicode_form(write, word):
    nfc, nfd = (unicodedata.normalize(form, word) for form in ("NFC", "NFD"))
    for name, target in ((nfc, nfd), (nfd, nfc)):
        assert summary_of(write(PLAIN.replace("class", name)), target).classes == {"x": 10, "y": 10}


@pytest.mark.parametrize("columns", [(20, 0, 5), (3, 17, 6), (63, 145, 5)])
def test_a_row_of_whole_numbers_as_the_header_is_named(write, columns):
    first, second, label = columns
    rows = "".join(f"{first},{i * 3 % 17},{label + i % 2}\n" for i in range(1, 40))
    summary = summary_of(write(f"{first},{second},{label}\n" + rows), str(label))
    assert any("looks like a row of data" in remark for remark in summary.remarks)
