"""Real tables: what is read equals an independent reading by Python's csv module."""

import csv
from collections import Counter

import pytest

from marginctl.data.tabular.custom import ReadOptions, inspect_table

# file, separator, lines above the rows, column of the label from 0, whether line 1 is a header
FILES = [
    ("balance-scale/balance-scale.data", ",", 0, 0, False),
    ("banknote-authentication/data_banknote_authentication.txt", ",", 0, 4, False),
    ("breast-cancer-wisconsin-prognostic/wpbc.data", ",", 0, 1, False),
    ("congressional-voting-records/house-votes-84.data", ",", 0, 0, False),
    ("forest-type-mapping/training.csv", ",", 1, 0, True),
    ("forest-type-mapping/testing.csv", ",", 1, 0, True),
    ("haberman/haberman.data", ",", 0, 3, False),
    ("hayes-roth/hayes-roth.data", ",", 0, 5, False),
    ("hayes-roth/hayes-roth.test", ",", 0, 4, False),
    ("iris/iris.data", ",", 0, 4, False),
    ("pima-indians-diabetes/pima-indians-diabetes.data", ",", 0, 8, False),
    ("teaching-assistant-evaluation/tae.data", ",", 0, 5, False),
    ("vertebral-column/column_3C.dat", " ", 0, 6, False),
    ("wholesale-customers/Wholesale customers data.csv", ",", 1, 0, True),
]


def is_number(text):
    try:
        return bool(float(text)) or True
    except ValueError:
        return False


@pytest.mark.parametrize(("file", "separator", "above", "label", "header"), FILES)
def test_text_files(data_dir, file, separator, above, label, header):
    path = data_dir / "uci" / file
    lines = path.read_text("utf-8-sig").splitlines()
    rows = [[c.strip() for c in row] for row in csv.reader(lines[above:], delimiter=separator)]
    rows = [row for row in rows if any(row)]
    names = lines[0].split(",") if header else [str(i + 1) for i in range(len(rows[0]))]
    summary = inspect_table(path, names[label], ReadOptions(header=header))
    assert (summary.rows, summary.rows_used) == (len(rows), len(rows))
    assert summary.classes == Counter(row[label] for row in rows)
    expected = {}
    for i, name in enumerate(names):
        values = [row[i] for row in rows]
        numbers = [v for v in values if is_number(v)]
        kind = "numeric" if len(numbers) > 0.9 * len(values) else "categorical"
        if len(set(values)) == 1:
            kind = "constant"
        missing = values.count("?") if kind == "numeric" else 0
        categories = sorted(set(values)) if kind == "categorical" else []
        expected[name.strip()] = (kind, missing, categories)
    del expected[names[label].strip()]
    read = {c.name: (c.type, c.missing, list(c.categories)) for c in summary.columns}
    assert read == expected


# counted by hand in the files
WORKBOOKS = {
    ("breast-tissue/BreastTissue.xls", "Class"): (
        106,
        {"car": 21, "fad": 15, "mas": 18, "gla": 16, "con": 14, "adi": 22},
        {"Case #": "id"},
    ),
    (
        "user-knowledge-modeling/Data_User_Modeling_Dataset_Hamdi Tolga KAHRAMAN.xls",
        " UNS",
    ): (
        258,
        {"very_low": 24, "Low": 83, "Middle": 88, "High": 63},
        {"Attribute Information:": "text"},
    ),
    ("vertebral-column/column_3C_weka.arff", "class"): (
        310,
        {"Hernia": 60, "Spondylolisthesis": 150, "Normal": 100},
        {},
    ),
    ("website-phishing/PhishingData.arff", "Result"): (1353, {"1": 548, "-1": 702, "0": 103}, {}),
}


@pytest.mark.parametrize("file", WORKBOOKS)
def test_workbooks_and_arff(data_dir, file):
    rows, classes, unused = WORKBOOKS[file]
    summary = inspect_table(data_dir / "uci" / file[0], file[1])
    assert (summary.rows, summary.rows_used) == (rows, rows)
    assert summary.classes == classes
    assert {c.name: c.type for c in summary.columns if not c.used} == unused
