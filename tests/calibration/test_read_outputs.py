"""Files of outputs: their forms, kinds and names, and one clear line for each wrong thing."""

import bz2
import gzip
import io
import lzma
import re
import zipfile

import numpy as np
import pandas as pd
import pytest

from marginctl.calibration.outputs import FLOOR, create_outputs
from marginctl.calibration.read_outputs import looks_like_outputs, read_outputs
from marginctl.errors import RequestError

LOGITS = np.array([[2.0, -1.0, 0.5], [0.25, 3.0, -2.0], [1.0, 0.0, 4.0]])
P = np.array([[0.5, 0.25, 0.25], [0, 1, 0], [0.1, 0.2, 0.7]])
Y = np.array([0, 1, 2])


def npz(folder, **arrays):
    np.savez(folder / "o.npz", **arrays)
    return folder / "o.npz"


def text(folder, content, name="o.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def error(path):
    with pytest.raises(RequestError) as caught:
        read_outputs(path)
    assert len(caught.value.lines) == 1
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_npz(tmp_path):
    outputs = read_outputs(npz(tmp_path, logits=LOGITS.astype("f4"), labels=Y.astype("u1"), more=Y))
    assert (outputs.kind, outputs.values.dtype, outputs.num_classes) == ("logits", np.float32, 3)
    np.testing.assert_array_equal(outputs.values, LOGITS)
    np.testing.assert_array_equal(outputs.labels, Y)
    assert outputs.remarks == ()
    half = read_outputs(npz(tmp_path, logits=LOGITS.astype("f2"), labels=Y))
    assert half.values.dtype == np.float64
    integers = read_outputs(npz(tmp_path, logits=np.array([[3, 1], [0, 9]]), labels=Y[:2]))
    np.testing.assert_array_equal(integers.values, [[3, 1], [0, 9]])


def test_probabilities(tmp_path):
    outputs = read_outputs(npz(tmp_path, probabilities=P, labels=Y))
    assert (outputs.kind, outputs.remarks) == ("probabilities", ())
    np.testing.assert_allclose(np.exp(outputs.logits()), np.maximum(P, FLOOR), rtol=1e-12)
    given = P.astype("f4") * np.float32(0.999)
    before = given.copy()
    create_outputs("o", "probabilities", given, Y)
    np.testing.assert_array_equal(given, before)
    rounded = read_outputs(npz(tmp_path, probabilities=P * 0.999, labels=Y))
    np.testing.assert_allclose(rounded.values, P, rtol=1e-12)


@pytest.mark.parametrize("digits", [1, 2, 3, 4])
@pytest.mark.parametrize("classes", [2, 10, 200])
def test_rounded_probabilities_are_normalized_with_a_remark(tmp_path, digits, classes):
    exact = np.random.default_rng(classes).dirichlet(np.full(classes, 0.3), 40)
    p = np.round(exact, digits)
    p = p[p.sum(axis=1) > 0]
    labels = np.arange(len(p)) % 2
    outputs = read_outputs(npz(tmp_path, probabilities=p, labels=labels))
    np.testing.assert_allclose(outputs.values, p / p.sum(axis=1, keepdims=True), rtol=1e-12)
    count = int((np.abs(p.sum(axis=1) - 1) > 1e-5).sum())
    remarks = [r for r in outputs.remarks if r.startswith("rounded probabilities")]
    assert bool(remarks) == bool(count)
    assert all(f"the sums of {count} of {len(p)} rows lie between" in r for r in remarks)


@pytest.mark.parametrize("digits", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("classes", [2, 10])
def test_a_row_that_rounding_does_not_explain_is_refused(tmp_path, digits, classes):
    p = np.round(np.random.default_rng(classes).dirichlet(np.ones(classes), 40), digits)
    p[3] = np.round([0.2] + [0] * (classes - 1), digits)
    path = npz(tmp_path, probabilities=p, labels=np.arange(40) % 2)
    assert "o.npz: probabilities: row 3 sums to 0.2, expected 1" in error(path)


@pytest.mark.parametrize("steps", [255, 256])
def test_quantized_probabilities_are_normalized(tmp_path, steps):
    p = np.round(np.random.default_rng(0).dirichlet(np.ones(100), 30) * steps) / steps
    (remark, _) = read_outputs(npz(tmp_path, probabilities=p, labels=np.arange(30) % 3)).remarks
    assert remark.startswith("rounded probabilities: the sums of ")


def test_a_row_of_zeros_is_refused(tmp_path):
    p = np.round(np.full((3, 200), 1 / 200), 1)
    p[:2, 0] = 1
    assert "row 2 sums to 0, expected 1" in error(npz(tmp_path, probabilities=p, labels=Y))


def test_a_csv_in_any_order_and_with_any_separator(tmp_path):
    for separator in ",;\t|":
        lines = [["label", "logit_1", "logit_0", "logit_2"]]
        lines += [[y, f[1], f[0], f[2]] for f, y in zip(LOGITS, Y, strict=True)]
        path = text(tmp_path, "\n".join(separator.join(map(str, line)) for line in lines))
        outputs = read_outputs(path)
        np.testing.assert_array_equal(outputs.values, LOGITS)
        np.testing.assert_array_equal(outputs.labels, Y)
        assert outputs.classes is None
    path = text(tmp_path, "prob_0,prob_1,label\n0.25,0.75,1\n1,0,0.0\n")
    assert read_outputs(path).kind == "probabilities"


def test_numbers_of_a_csv_are_those_of_python(tmp_path):
    values = (
        np.random.default_rng(0).normal(size=(50, 3)) * 10.0 ** np.arange(-150, 150, 6)[:, None]
    )
    frame = pd.DataFrame(values, columns=["logit_0", "logit_1", "logit_2"])
    frame["label"] = np.arange(50) % 3
    path = tmp_path / "o.csv"
    values = np.clip(values, -1e99, 1e99)
    frame[["logit_0", "logit_1", "logit_2"]] = values
    frame.to_csv(path, index=False)
    np.testing.assert_array_equal(read_outputs(path).values, values)


@pytest.mark.parametrize(
    ("content", "remark"),
    [
        (",logit_0,logit_1,label\n0,1.5,2,0\n1,3,4,1\n", "taken for row names"),
        ('"";"logit_0";"logit_1";"label"\n"1";1,5;2;0\n"2";3;4;1\n', "taken for row names"),
        ("\ufefflogit_0, logit_1, label\r\n1.5, 2, 0\r\n\r\n3, 4, 1\r\n\r\n", None),
        ("\nlogit_0\tlogit_1\tlabel\n1.5\t2\t0\n3\t4\t1", None),
        ("logit_0;logit_1;label\n1,5;2,0;0\n3,0;4;1\n", None),
        ("logit_0,logit_1,label\n1.5,2,0\n3,4,1\n".encode("utf-16"), "read as utf-16"),
    ],
)
def test_forms_of_a_csv(tmp_path, content, remark):
    outputs = read_outputs(text(tmp_path, content))
    np.testing.assert_array_equal(outputs.values, [[1.5, 2], [3, 4]])
    np.testing.assert_array_equal(outputs.labels, [0, 1])
    assert [remark in r for r in outputs.remarks] == ([True] if remark else [])


@pytest.mark.parametrize("name", ["o.csv", "o.csv.gz", "o.npz", "o.npz.gz", "o.bz2", "o.tsv"])
@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files(tmp_path, compress, name):
    if "npz" in name:
        arrays = io.BytesIO()
        np.savez(arrays, logits=LOGITS, labels=Y)
        content = arrays.getvalue()
    else:
        lines = ["logit_0,logit_1,logit_2,label"]
        lines += [",".join(map(str, [*f, y])) for f, y in zip(LOGITS, Y, strict=True)]
        content = "\n".join(lines).encode()
    path = text(tmp_path, compress(content), name)
    np.testing.assert_array_equal(read_outputs(path).values, LOGITS)
    text(tmp_path, compress(content)[:-9], name)
    assert f"{path}: a corrupt " in error(path)


NAMES = ("cat", "dog", ("a very long name of a class " * 5).strip())
NAMES_2 = (NAMES[2] + "that ends in one way", NAMES[2] + "that ends in another way", "É")


@pytest.mark.parametrize("names", [NAMES, NAMES_2, ("1", "2", "3"), ("new_york", "a b", "c;d,e")])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_classes_named_by_the_columns(tmp_path, names, order):
    frame = pd.DataFrame({f"logit_{n}": LOGITS[:, i] for i, n in enumerate(names)})
    frame["label"] = names
    frame = frame[[*(f"logit_{names[i]}" for i in order), "label"]]
    frame.to_csv(tmp_path / "o.csv", index=False)
    outputs = read_outputs(tmp_path / "o.csv")
    assert sorted(outputs.classes) == sorted(names)
    for i, name in enumerate(names):
        column = outputs.classes.index(name)
        assert outputs.labels[i] == column
        np.testing.assert_array_equal(outputs.values[:, column], LOGITS[:, i])


def test_names_in_another_unicode_form_are_the_same(tmp_path):
    outputs = read_outputs(text(tmp_path, "prob_e\u0301,prob_b,label\n0.2,0.8,\u00e9\n0.3,0.7,b\n"))
    assert outputs.classes == ("\u00e9", "b")
    np.testing.assert_array_equal(outputs.labels, [0, 1])


def test_numbers_as_labels_of_named_columns(tmp_path):
    outputs = read_outputs(text(tmp_path, "prob_dog,prob_cat,label\n0.2,0.8,1\n0.3,0.7,0\n"))
    assert outputs.classes == ("dog", "cat")
    np.testing.assert_array_equal(outputs.labels, [1, 0])
    (remark,) = outputs.remarks
    assert remark == "labels are numbers, columns have names: 0 is 'dog', 1 is 'cat'"


@pytest.mark.parametrize("labels", [Y, np.array(NAMES_2), np.array([n.encode() for n in NAMES_2])])
def test_classes_of_an_npz(tmp_path, labels):
    for classes in (np.array(NAMES_2), np.array([n.encode() for n in NAMES_2])):
        outputs = read_outputs(npz(tmp_path, logits=LOGITS, labels=labels, classes=classes))
        assert outputs.classes == NAMES_2
        np.testing.assert_array_equal(outputs.labels, Y)
        assert all("labels are numbers" in r for r in outputs.remarks)


def test_integers_as_classes_of_an_npz(tmp_path):
    path = npz(tmp_path, logits=LOGITS, labels=Y[::-1] + 1, classes=np.array([3, 1, 2]))
    outputs = read_outputs(path)
    assert outputs.classes == ("3", "1", "2")
    np.testing.assert_array_equal(outputs.labels, [0, 2, 1])


@pytest.mark.parametrize(
    ("content", "remark"),
    [
        ("logit_0,logit_1,logit_2,label\n1,2,3,0\n3,2,1,2\n", "1 of 3 classes have no sample: 1"),
        ("prob_a,prob_b,prob_c,label\n0.5,0.5,0,b\n0,1,0,a\n", "1 of 3 classes have no sample: c"),
        ("logit_1,logit_2,logit_3,logit_4,label\n1,2,3,0,1\n3,2,1,0,3\n", "2 of 4 .*: 2, 4"),
    ],
)
def test_classes_without_samples_are_named(tmp_path, content, remark):
    (line,) = read_outputs(text(tmp_path, content)).remarks
    assert re.fullmatch(remark, line)


def changed(row, column, value):
    values = LOGITS.copy()
    values[row, column] = value
    return values


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"logits": changed(1, 2, np.nan), "labels": Y}, "logits: nan in row 1, class 2 (from 0)"),
        ({"logits": changed(0, 1, -np.inf), "labels": Y}, "logits: -inf in row 0, class 1"),
        ({"logits": changed(0, 1, 1e200), "labels": Y}, "logits: 1e+200 in row 0, class 1"),
        ({"logits": LOGITS, "labels": [0, 1, 3]}, "labels: 3, expected 0 to 2 (row 2)"),
        ({"logits": LOGITS, "labels": [0, -1, 1]}, "labels: -1, expected 0 to 2 (row 1)"),
        ({"logits": LOGITS, "labels": [3, 1, 2]}, "labels: 3, expected 0 to 2 (row 0)"),
        ({"logits": LOGITS, "labels": [0.0, 1, 2]}, "labels: dtype float64, expected an integer"),
        ({"logits": LOGITS, "labels": [0, 1]}, "labels: 2 of them, expected one for each of 3"),
        ({"logits": LOGITS, "labels": [1, 1, 1]}, "all 3 labels are 1: expected samples of two"),
        ({"logits": LOGITS, "labels": ["a", "b", "c"]}, "labels: text: expected the key classes"),
        ({"logits": LOGITS[:, :1], "labels": [0, 0, 0]}, "logits of one class: expected columns"),
        ({"logits": LOGITS[0], "labels": Y}, "logits: shape (3,), expected (N, C)"),
        ({"logits": LOGITS[:0], "labels": Y[:0]}, "logits: no sample"),
        ({"logits": LOGITS.astype(str), "labels": Y}, "logits: dtype <U32, expected real numbers"),
        ({"logits": P, "labels": Y}, "these are probabilities: name them so (key probabilities"),
        ({"logits": P.astype("f4"), "labels": Y}, "every row lies in 0 to 1 and sums to 1"),
        ({"probabilities": LOGITS, "labels": Y}, "probabilities: 2.0 in row 0, class 0 (from 0): "),
        ({"probabilities": P * 0.9, "labels": Y}, "probabilities: row 0 sums to 0.9, expected 1"),
        ({"probabilities": P * np.nan, "labels": Y}, "probabilities: nan in row 0, class 0"),
        ({"logits": LOGITS, "probabilities": P, "labels": Y}, "keys of logits and probabilities"),
        ({"scores": LOGITS, "labels": Y}, "keys: labels, scores: expected .npz with logits"),
        ({"logits": LOGITS, "targets": Y}, "keys: logits, targets: expected .npz with logits"),
        ({"logits": np.array([{}]), "labels": Y}, "not an .npz file of plain arrays"),
        ({"logits": LOGITS, "labels": Y, "classes": NAMES[:2]}, "2 names, expected one for each"),
        ({"logits": LOGITS, "labels": Y, "classes": list("aba")}, "duplicate class 'a'"),
        (
            {"logits": LOGITS, "labels": ["dog", "cat", "cow"], "classes": ["cat", "dog", "cows"]},
            "row 2 (from 0): label = 'cow': expected a class, 'cat', 'dog', 'cows'. Did you mean",
        ),
    ],
)
def test_what_is_wrong_in_an_npz(tmp_path, arrays, message):
    path = npz(tmp_path, **arrays)
    line = error(path)
    assert message in line
    assert line.startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        (" \n\n", "the file is empty"),
        ("logit_0,logit_1,label\n", "no rows below the header"),
        ("logit_0,logit_1,label\n1,2,0\n1,x,1\n", "o.csv:3: logit_1 = 'x': expected a number"),
        ("logit_0,logit_1,label\n1,2,0\n\n1,x,1\n", "o.csv:4: logit_1 = 'x': expected a number"),
        ("logit_0,logit_1,label\n1,2,0\n1,,1\n", "o.csv:3: logit_1 = '': expected a number"),
        ("logit_0,logit_1,label\n1,2,0\n1,1_0,1\n", "o.csv:3: logit_1 = '1_0': expected a number"),
        ("logit_0,logit_1,label\n1,2,0\n1,nan,1\n", "o.csv:3: logit_1 = 'nan': expected a number"),
        ("logit_0,logit_1,label\n1,2,0\n1,inf,1\n", "logits: inf in line 3, class 1"),
        ("logit_0,logit_1,label\n1,2,0\n1,3,0.5\n", "o.csv:3: label = '0.5': expected a class"),
        ("logit_0,logit_1,label\n1,2,0\n1,3,nan\n", "o.csv:3: label = 'nan': expected a class"),
        ("logit_0,logit_1,label\n1,2,0\n1,3\n", "o.csv:3: 2 columns, expected 3: quote"),
        ("logit_0,logit_1,label\n1,2,0\n1,3,\n", "o.csv:3: label = '': expected a class"),
        ("logit_0,logit_1,label\n1,2,0\n1,3,1e99\n", "o.csv:3: label = '1e99': expected a class"),
        ("logit_0,logit_1,label\n1,2,0\n1,3,2\n", "o.csv:3: label = '2': expected a class, 0 to 1"),
        ("logit_a,logit_b,label\n1,2,a\n1,3,B\n", "o.csv:3: label = 'B': expected a class, 'a', "),
        ("logit_a,logit_b,label\n1,2,a\n1,3,1\n", "o.csv:3: label = '1': expected a class, 'a', "),
        (
            "logit_0,logit_2,label\n1,2,0\n1,3,2\n",
            "o.csv: no column logit_1: expected logit_0 to",
        ),
        ("logit_1,logit_2,label\n1,2,0\n1,3,2\n", "o.csv:2: label = '0': expected a class, 1 to 2"),
        (
            "logit_0,logit_1,id,label\n1,2,5,0\n",
            "o.csv: column 'id': expected no further",
        ),
        (
            "logit_0,logit_1,label,\n1,2,0,7\n",
            "o.csv: column 'unnamed column 4': expected no further",
        ),
        ("logit_0,logit_1,logit_1,label\n1,2,5,0\n", "o.csv:1: duplicate column 'logit_1'"),
        ("logit_0,logit_1,label\n1,2,0\n1,2,1,7\n", "o.csv:3: 4 columns, expected 3: quote"),
        ("logit_0,logit_1,class\n1,2,0\n", "columns: class, logit: expected .npz with"),
        ("logit_0,prob_1,label\n1,2,0\n", "has columns of logit and prob: expected one kind"),
        ("a,b\n1,2\n", "columns: a, b: expected .npz with"),
        ("prob_0,prob_1,label\n0.2,0.8,0\n\n0.3,0.4,1\n", "line 4 sums to 0.7, expected 1"),
        (
            'logit_0,logit_1,label\n1,2,0\n1,3,"1\n1,2,0\n',
            "o.csv:3: a quote opens here and is not closed",
        ),
        (b"\xff\x00\x81,2,3", "a binary file"),
        (b"a,b\x00c", "a binary file"),
    ],
)
def test_what_is_wrong_in_a_csv(tmp_path, content, message):
    assert message in error(text(tmp_path, content))


def test_files_that_are_none(tmp_path):
    assert "cannot be read: No such file" in error(tmp_path / "absent.npz")
    assert "empty.npz: the file is empty: expected .npz" in error(text(tmp_path, "", "empty.npz"))
    complete = npz(tmp_path, logits=LOGITS, labels=Y).read_bytes()
    for i, content in enumerate((complete[:-30], b"no archive", complete[:60], complete[60:])):
        assert "not an .npz file of plain arrays, or corrupt" in error(
            text(tmp_path, content, f"{i}.npz")
        )
    np.save(tmp_path / "one.npy", LOGITS)
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    assert "not an .npz file of plain arrays" in error(tmp_path / "one.npz")


def test_a_summary(tmp_path):
    file = text(tmp_path, "prob_b,prob_a,prob_c,label\n.33,.33,.33,a\n1,0,0,b\n")
    document = read_outputs(file).summary()
    remarks = document.pop("remarks")
    assert document == {"kind": "outputs", "rows": 2, "classes": 3, "form": "probabilities"}
    assert remarks == [
        "rounded probabilities: the sums of 1 of 2 rows lie between 0.99 and 1: every row was "
        "divided by its sum",
        "1 of 3 classes have no sample: c",
    ]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.npz", b"", True),
        ("a.npz.gz", b"", True),
        ("a.csv", "logit_0,logit_1,label\n1,2,0\n", True),
        ("a.csv.gz", gzip.compress(b"prob_cat;prob_dog;label\n1;0;cat\n", mtime=0), True),
        ("a.txt", ",logit_a,logit_b,label\n1,2,3,a\n", True),
        ("a.csv", "logit_0,age,label\n", False),
        ("a.csv", "logit_0,prob_1,label\n", False),
        ("a.csv", "logit_0,logit_1\n", False),
        ("a.csv", "", False),
        ("a.csv", b"\xff\x00\x01", False),
        ("a.png", b"\x89PNG\r\n", False),
    ],
)
def test_whether_a_file_looks_like_outputs(tmp_path, name, content, expected):
    assert looks_like_outputs(text(tmp_path, content, name)) is expected


@pytest.mark.parametrize(
    "names",
    [("01", "1", "2"), ("6221888200042590280", "6221888200042590281", "1"), ("007", "7", "07")],
)
def test_codes_as_names_of_classes_keep_their_spelling(tmp_path, names):
    rows = "".join(f"1,2,3,{names[i % 3]}\n" for i in range(6))
    header = ",".join(f"logit_{name}" for name in names)
    outputs = read_outputs(text(tmp_path, f"{header},label\n{rows}"))
    assert outputs.classes == names
    np.testing.assert_array_equal(outputs.labels, [0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    ("separator", "cells"),
    [(",", ('"1,204"', "-35")), (";", ("1,204", "-35")), (";", ("1.204,0", "-35,0"))],
)
def test_thousands_separators_are_read_with_a_remark(tmp_path, separator, cells):
    rows = "".join(separator.join([*cells, str(i % 2)]) + "\n" for i in range(8))
    header = separator.join(["logit_0", "logit_1", "label"])
    outputs = read_outputs(text(tmp_path, f"{header}\n{rows}"))
    assert outputs.values.tolist() == [[1204, -35]] * 8
    assert any("thousands" in remark for remark in outputs.remarks)


@pytest.mark.parametrize("digits", [1, 2, 3])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_rounded_probabilities_that_are_called_logits_are_refused(tmp_path, digits, classes):
    p = np.random.default_rng(0).dirichlet(np.ones(classes), 40)
    p = np.round(p[np.abs(np.round(p, digits).sum(axis=1) - 1) < 0.105], digits)
    path = npz(tmp_path, logits=p, labels=np.arange(len(p)) % 2)
    assert "these are probabilities" in error(path)


def zipped(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("o.csv"), content)
    return file.getvalue()


def workbook(content):
    file = io.BytesIO()
    pd.read_csv(io.StringIO(content)).to_excel(file, index=False)
    return file.getvalue()


@pytest.mark.parametrize(("name", "pack"), [("o.zip", zipped), ("o.xlsx", workbook)])
def test_what_looks_like_outputs_is_read(tmp_path, name, pack):
    path = text(tmp_path, pack("logit_cat,logit_dog,label\n1,2.5,dog\n3,1,cat\n"), name)
    assert looks_like_outputs(path)
    assert read_outputs(path).values.tolist() == [[1, 2.5], [3, 1]]


@pytest.mark.parametrize(("one", "other"), [("1", "01"), ("007", "7"), ("10", "010")])
def test_class_names_that_are_equal_as_numbers(tmp_path, one, other):
    content = f"logit_{one},logit_{other},label\n1,2,{one}\n3,1,{other}\n1,3,{one}\n"
    outputs = read_outputs(text(tmp_path, content))
    assert (outputs.classes, outputs.labels.tolist()) == ((one, other), [0, 1, 0])
