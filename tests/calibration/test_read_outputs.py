"""Files of outputs: both forms, both kinds, and one clear line for each thing that is wrong."""

import numpy as np
import pytest

from marginctl.calibration.outputs import FLOOR, create_outputs
from marginctl.calibration.read_outputs import read_outputs
from marginctl.errors import RequestError

LOGITS = np.array([[2.0, -1.0, 0.5], [0.25, 3.0, -2.0], [1.0, 0.0, 4.0]])
P = np.array([[0.5, 0.25, 0.25], [0, 1, 0], [0.1, 0.2, 0.7]])
Y = np.array([0, 1, 2])


def npz(folder, **arrays):
    np.savez(folder / "o.npz", **arrays)
    return folder / "o.npz"


def text(folder, content):
    path = folder / "o.csv"
    path.write_text(content)
    return path


def test_an_npz(tmp_path):
    found = read_outputs(npz(tmp_path, logits=LOGITS.astype("f4"), labels=Y.astype("u1"), more=Y))
    assert (found.kind, found.values.dtype, found.num_classes) == ("logits", np.float32, 3)
    np.testing.assert_array_equal(found.values, LOGITS)
    np.testing.assert_array_equal(found.labels, Y)
    half = read_outputs(npz(tmp_path, logits=LOGITS.astype("f2"), labels=Y))
    assert half.values.dtype == np.float64
    whole = read_outputs(npz(tmp_path, logits=np.array([[3, 1], [0, 9]]), labels=Y[:2]))
    np.testing.assert_array_equal(whole.values, [[3, 1], [0, 9]])


def test_probabilities(tmp_path):
    found = read_outputs(npz(tmp_path, probabilities=P, labels=Y))
    assert found.kind == "probabilities"
    np.testing.assert_allclose(np.exp(found.logits()), np.maximum(P, FLOOR), rtol=1e-12)
    given = P.astype("f4") * np.float32(0.999)
    before = given.copy()
    create_outputs("o", "probabilities", given, Y)
    np.testing.assert_array_equal(given, before)
    rounded = read_outputs(npz(tmp_path, probabilities=P * 0.999, labels=Y))
    np.testing.assert_allclose(rounded.values, P, rtol=1e-12)


def test_a_csv_in_any_order_and_with_any_separator(tmp_path):
    for separator in ",;\t":
        lines = [["label", "logit_1", "logit_0", "logit_2"]]
        lines += [[y, f[1], f[0], f[2]] for f, y in zip(LOGITS, Y, strict=True)]
        path = text(tmp_path, "\n".join(separator.join(map(str, line)) for line in lines))
        found = read_outputs(path)
        np.testing.assert_array_equal(found.values, LOGITS)
        np.testing.assert_array_equal(found.labels, Y)
    path = text(tmp_path, "prob_0,prob_1,label\n0.25,0.75,1\n1,0,0.0\n")
    assert read_outputs(path).kind == "probabilities"


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
        ({"logits": LOGITS, "labels": [0, 1, 3]}, "labels: 3, expected 0 to 2"),
        ({"logits": LOGITS, "labels": [0, 1, -1]}, "labels: -1, expected 0 to 2"),
        ({"logits": LOGITS, "labels": [0.0, 1, 2]}, "labels: dtype float64, expected an integer"),
        ({"logits": LOGITS, "labels": [0, 1]}, "labels: 2 of them, expected one for each of 3"),
        ({"logits": LOGITS, "labels": [1, 1, 1]}, "all 3 labels are 1: expected samples of two"),
        ({"logits": LOGITS[:, :1], "labels": [0, 0, 0]}, "logits of one class: expected columns"),
        ({"logits": LOGITS[0], "labels": Y}, "logits: shape (3,), expected (N, C)"),
        ({"logits": LOGITS[:0], "labels": Y[:0]}, "logits: no sample"),
        ({"logits": LOGITS.astype(str), "labels": Y}, "logits: dtype <U32, expected real numbers"),
        ({"logits": P, "labels": Y}, "these are probabilities: name them so (key probabilities"),
        ({"logits": P.astype("f4"), "labels": Y}, "every row lies in 0 to 1 and sums to 1"),
        ({"probabilities": LOGITS, "labels": Y}, "probabilities: expected 0 to 1 (logits go"),
        ({"probabilities": P * 0.9, "labels": Y}, "probabilities: a row sums to 0.9, expected 1"),
        ({"probabilities": P * np.nan, "labels": Y}, "probabilities: expected 0 to 1"),
        ({"logits": LOGITS, "probabilities": P, "labels": Y}, "keys of logits and probabilities"),
        ({"scores": LOGITS, "labels": Y}, "keys: labels, scores: expected .npz with logits"),
        ({"logits": LOGITS, "targets": Y}, "keys: logits, targets: expected .npz with logits"),
        ({"logits": np.array([{}]), "labels": Y}, "not an .npz file of plain arrays"),
    ],
)
def test_what_is_wrong_in_an_npz(tmp_path, arrays, message):
    path = npz(tmp_path, **arrays)
    with pytest.raises(RequestError) as caught:
        read_outputs(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(caught.value.lines) == 1
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("logit_0,logit_1,label\n", "no rows below the header"),
        ("logit_0,logit_1,label\n1,2,0\n1,x,1\n", "o.csv:3: logit_1 = 'x': expected a number"),
        ("logit_0,logit_1,label\n1,2,0\n1,,1\n", "o.csv:3: logit_1 = '': expected a number"),
        ("logit_0,logit_1,label\n1,2,0\n1,nan,1\n", "logits: nan in row 1, class 1 (from 0)"),
        ("logit_0,logit_1,label\n1,2,0\n1,3,0.5\n", "o.csv:3: label = '0.5': expected a class"),
        ("logit_0,logit_1,label\n1,2,0\n1,3,nan\n", "o.csv:3: label = 'nan': expected a class"),
        ("logit_0,logit_1,label\n1,2,0\n1,3,1e99\n", "o.csv:3: label = '1e99': expected a class"),
        ("logit_0,logit_1,label\n1,2,0\n1,3,2\n", "labels: 2, expected 0 to 1"),
        ("logit_1,logit_2,label\n1,2,0\n1,3,2\n", "no column logit_0, but logit_2"),
        ("logit_0,logit_1,id,label\n1,2,5,0\n", "no column logit_2, but id"),
        ("logit_0,logit_1,class\n1,2,0\n", "columns: class, logit: expected .npz with"),
        ("logit_0,prob_1,label\n1,2,0\n", "has columns of logit and prob: expected one kind"),
        ("a,b\n1,2\n", "columns: a, b: expected .npz with"),
    ],
)
def test_what_is_wrong_in_a_csv(tmp_path, content, message):
    with pytest.raises(RequestError) as caught:
        read_outputs(text(tmp_path, content))
    assert message in str(caught.value)
    assert len(caught.value.lines) == 1


def test_files_that_are_none(tmp_path):
    with pytest.raises(RequestError, match=r"cannot be read: No such file"):
        read_outputs(tmp_path / "absent.npz")
    (tmp_path / "empty.npz").touch()
    with pytest.raises(RequestError, match=r"empty\.npz: the file is empty: expected \.npz"):
        read_outputs(tmp_path / "empty.npz")
    whole = npz(tmp_path, logits=LOGITS, labels=Y).read_bytes()
    for i, content in enumerate((whole[:-30], b"no archive", whole[:60], whole[60:])):
        (tmp_path / f"{i}.npz").write_bytes(content)
        with pytest.raises(RequestError, match=r"not an \.npz file of plain arrays, or corrupt"):
            read_outputs(tmp_path / f"{i}.npz")
    np.save(tmp_path / "one.npy", LOGITS)
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(RequestError, match=r"not an \.npz file of plain arrays"):
        read_outputs(tmp_path / "one.npz")
    with pytest.raises(RequestError, match=r"o\.txt: expected \.npz with logits or"):
        read_outputs(tmp_path / "o.txt")
