"""Documents are read as the standard library reads them, and refused with a reason."""

import json
import math
import random
import struct

import pytest

from marginctl.runs.safe_read import (
    CorruptFileError,
    MissingFileError,
    parse_document,
    read_bytes,
    read_text,
)


def test_every_float_is_read_to_its_last_bit():
    draw = random.Random(0)
    values = [struct.unpack("d", struct.pack("Q", draw.getrandbits(64)))[0] for _ in range(20_000)]
    values = [v for v in values if math.isfinite(v)] + [100 * draw.random() for _ in range(20_000)]
    assert parse_document(json.dumps({"values": values}))["values"] == values


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
def test_what_the_json_module_reads_is_read(document):
    assert parse_document(json.dumps(document)) == document


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1,\nb}', "is corrupt (invalid JSON: line 2, column 1: "),
        ('{"a": -Infinity}', "is corrupt (-Infinity, which is not JSON)"),
        ("[" * 100_000, "is corrupt (nested too deeply)"),
        ('"text"', "is corrupt ('text': expected an object)"),
        (
            '{"schema": 2}',
            "has schema = '2': expected 1: it was written by another version of marginctl",
        ),
    ],
)
def test_invalid_documents_are_refused_with_the_reason(text, reason):
    with pytest.raises(CorruptFileError) as raised:
        parse_document(text)
    assert str(raised.value).startswith(reason)


def test_missing_and_too_large_files(tmp_path):
    with pytest.raises(MissingFileError, match="is missing"):
        read_text(tmp_path / "none")
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(40 * 2**20)
    with pytest.raises(CorruptFileError, match="is too large"):
        read_bytes(path)
