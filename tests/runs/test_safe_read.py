"""Documents are read as the standard library reads them, and refused with a reason."""

import json
import math
import random
import struct

import pytest

from marginctl.runs.safe_read import AbsentError, DamageError, document_in, read_bytes, read_text


def test_every_float_is_read_to_its_last_bit():
    draw = random.Random(0)
    values = [struct.unpack("d", struct.pack("Q", draw.getrandbits(64)))[0] for _ in range(20_000)]
    values = [v for v in values if math.isfinite(v)] + [100 * draw.random() for _ in range(20_000)]
    assert document_in(json.dumps({"values": values}))["values"] == values


@pytest.mark.parametrize(
    "document",
    [
        {"a": 10**40},
        {"a": -0.0},
        {"a": "\ud800"},
        {"a": json.loads("[" * 300 + "]" * 300)},
        {"ü": None, "b": True},
    ],
    ids=lambda d: repr(d)[:20],
)
def test_what_json_reads_is_read(document):
    assert document_in(json.dumps(document)) == document


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1,\n}', "is damaged (no whole JSON: line 2, column 1: "),
        ('{"a": -Infinity}', "is damaged (-Infinity, which is no JSON)"),
        ("[" * 100_000, "is damaged (nested too deeply)"),
        ('"text"', "is damaged ('text': expected an object)"),
        ('{"schema": 2}', "has schema = '2': expected 1: another version of marginctl wrote it"),
    ],
)
def test_what_is_wrong_is_said(text, reason):
    with pytest.raises(DamageError) as raised:
        document_in(text)
    assert str(raised.value).startswith(reason)


def test_absent_is_no_damage_and_the_last_bytes_are_enough(tmp_path):
    with pytest.raises(AbsentError, match="is missing"):
        read_text(tmp_path / "none")
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(40 * 2**20)
        file.seek(0, 2)
        file.write(b"the end")
    with pytest.raises(DamageError, match="is too large"):
        read_bytes(path)
    assert read_bytes(path, last=7) == b"the end"
