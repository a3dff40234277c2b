"""Files of outputs for `calibrate`: arrays of odd shapes, kinds and values, archives and CSVs."""

import csv
import io
import os
import pickle
import struct
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.draft import Case, Draft
from tests.fuzz.values import BYTES, TEXT, WORDS, as_json

Arrays = dict[str, Any]
METHODS = ["none", "temperature", "vector", "isotonic", "histogram"]


def prepare(base: Path) -> None:
    """Nothing: each case makes its files."""


def make(draft: Draft) -> Case:
    """An .npz, a CSV or a map, measured with one method."""
    stream = draft.stream("base")
    arrays = draft.changed(_arrays(stream), ARRAYS, 3)
    kind = stream.choice(["o.npz", "o.npz", "o.csv"])
    data = _npz(arrays) if kind == "o.npz" else _csv(arrays)
    if stream.random() < 0.35:
        data = draft.changed(data, BYTES if kind == "o.npz" else [*TEXT, *BYTES], 2)
    (draft.folder / kind).write_bytes(data)
    arguments = ["calibrate", kind, "--method", stream.choice(METHODS), "--repeats", "1"]
    if stream.random() < 0.15:
        (draft.folder / "first.npz").write_bytes(_npz(_arrays(stream)))
        arguments = [*arguments[:4], "--calibration", "first.npz"]
    arguments += ["--bootstrap", stream.choice(["0", "3"]), "--bins", stream.choice(["1", "15"])]
    return Case((*arguments, "--json", "--quiet"), ("logits", "labels", "probabilities"))


def _arrays(stream: Random) -> Arrays:
    random = np.random.default_rng(stream.randrange(2**32))
    n, c = stream.choice([1, 5, 40, 60]), stream.choice([1, 2, 3, 10])
    logits = random.normal(size=(n, c)).astype(stream.choice([np.float32, np.float64]))
    labels = random.integers(0, c, n)
    if stream.random() < 0.3:
        exp = np.exp(logits)
        return {"probabilities": exp / exp.sum(1, keepdims=True), "labels": labels}
    return {"logits": logits, "labels": labels}


def _npz(arrays: Arrays) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def _csv(arrays: Arrays) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns: list[tuple[str, Any]] = []
    for name, value in arrays.items():
        word = {"logits": "logit", "probabilities": "prob", "labels": "label"}.get(name, name)
        table = np.atleast_1d(np.asarray(value, object))
        if table.ndim > 1:
            flat = table.reshape(len(table), -1) if table.size else table.reshape(len(table), 0)
            columns += [(f"{word}_{i}", flat[:, i]) for i in range(flat.shape[1])]
        else:
            columns.append((word, table))
    writer.writerow([name for name, _ in columns])
    for i in range(max((len(values) for _, values in columns), default=0)):
        writer.writerow([values[i] if i < len(values) else "" for _, values in columns])
    return text.getvalue().encode("utf-8", "surrogatepass")


class _Payload:
    """A pickle of it makes a file named `ran` where it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ran",)


def payload() -> bytes:
    """A pickle that would make a file named `ran`."""
    return pickle.dumps(_Payload())


def _one(stream: Random, arrays: Arrays) -> str:
    return stream.choice(sorted(arrays) or ["logits"])


def _odd_values(stream: Random, arrays: Arrays) -> Arrays:
    odd = [np.nan, np.inf, -np.inf, 1e308, 1e200, -1, 2, 1e-320, 0.5, 10**9, -0.0]
    name = _one(stream, arrays)
    try:
        table = np.array(arrays.get(name, np.zeros((4, 2)))).real.astype(np.float64)
    except (TypeError, ValueError):  # changed before
        return arrays
    for _ in range(stream.choice([1, 1, 5])):
        if table.size:
            table.reshape(-1)[stream.randrange(table.size)] = stream.choice(odd)
    return arrays | {name: table}


def _constant(stream: Random, arrays: Arrays) -> Arrays:
    name = _one(stream, arrays)
    value = stream.choice([0, 1, 0.5, np.nan, 1e99, -1])
    return arrays | {name: np.full(np.shape(arrays.get(name, 1)), value)}


def _kind_of_number(stream: Random, arrays: Arrays) -> Arrays:
    name = _one(stream, arrays)
    kinds: list[Any] = [
        np.int8,
        np.uint64,
        np.float16,
        np.longdouble,
        np.complex64,
        bool,
        str,
        "S3",
    ]
    kinds += ["M8[s]", "m8[s]", object, ">f8", ">i4", [("a", "f8")]]
    with np.errstate(all="ignore"):
        try:
            return arrays | {name: np.asarray(arrays.get(name, 1)).astype(stream.choice(kinds))}
        except (TypeError, ValueError):
            return arrays


def _objects(stream: Random, arrays: Arrays) -> Arrays:
    values: list[Any] = [_Payload(), {"a": 1}, [[1], [2, 3]], None, "text", [_Payload()] * 5]
    made = np.empty(1, object)
    made[0] = stream.choice(values)
    return arrays | {_one(stream, arrays): made}


def _shape(stream: Random, arrays: Arrays) -> Arrays:
    name = _one(stream, arrays)
    value = np.atleast_1d(arrays.get(name, 1))
    made = [
        value.T,
        value[None],
        value[..., None],
        value.reshape(-1),
        value[:1],
        value[:0],
        value[:-1],
    ]
    made += [np.zeros((0, 3)), np.zeros((3, 0)), np.float64(1), np.zeros((2, 2, 2)), np.eye(300)]
    return arrays | {name: stream.choice(made)}


def _names(stream: Random, arrays: Arrays) -> Arrays:
    name = _one(stream, arrays)
    others = [
        "logits",
        "probabilities",
        "labels",
        "y",
        "a/b",
        "logit_0",
        "../x",
        "\x1b[31m",
        "label",
    ]
    value = arrays.get(name, np.zeros(2))
    if stream.random() < 0.6:
        arrays = {k: v for k, v in arrays.items() if k != name}
    return arrays | {stream.choice([*others, *filter(None, WORDS[:20])]).replace("\x00", ""): value}


ARRAYS = [_odd_values, _odd_values, _constant, _kind_of_number, _objects, _shape, _names]


def _archive(stream: Random, data: bytes) -> bytes:
    """A zip archive whose members are no arrays, lie, or are far larger than they say."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("logits.npy", "labels.npy"):
            shape = stream.choice(
                ["(9,)", "(99999999999, 9)", "(-1, 2)", "(2**99,)", "9", "(3, 2)"]
            )
            head = f"{{'descr': '{stream.choice(['<f8', '|O', '<i8', 'x', '<U9999'])}', "
            head += (
                f"'fortran_order': {stream.choice(['False', 'True', '1'])}, 'shape': {shape}, }}\n"
            )
            body = struct.pack("<H", len(head)) + head.encode()
            tail = stream.choice([b"", b"\0" * 72, payload(), b"\0" * 10_000_000])
            archive.writestr(name, b"\x93NUMPY\x01\x00" + body + tail)
    return content.getvalue()


def _not_arrays(stream: Random, data: bytes) -> bytes:
    content = io.BytesIO()
    np.save(content, np.zeros((3, 2)))
    return stream.choice([payload(), content.getvalue(), as_json({"logits": [[1]]}), b"PK\x05\x06"])


BYTES = [*BYTES, _archive, _archive, _not_arrays]
