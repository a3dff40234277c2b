"""Odd values, and changes of bytes, of text and of documents that many kinds of input share."""

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

WORDS = ["", " ", "a", "no", "on", "010", "1e-3", "0x10", "1_000", "null", "~", "nan", "inf"]
WORDS += ["-inf", "1e999", "-1", "0", "1", "2.5", "true", "2026-01-01", "=", ":", "a=b", "{}"]
WORDS += ["é", "日本", "\u202eabc", "\u2028", "\x1b[31mred", "a\nb", "\x00", "<script>", "$x^2$"]
WORDS += ["../..", "/", "a/b", "%s", "{x}", "x" * 300, "'", '"', "\\", "soft", "all", "digits"]
WORDS += ["\ud800", "arcgrad:scale=nan", "cosine:scale=1e400", "similarity=cosine;scale=fixed"]

ODD: list[Any] = [None, True, False, 0, 1, -1, 2, 10**6, 10**30, -(2**63), 0.5, -0.0, 1e-300, 1e300]
ODD += [float("nan"), float("inf"), -float("inf"), [], {}, [[]], [1, 2], ["soft"], {"a": 1}, [None]]
ODD += [{"kind": "fixed"}, {"": ""}, *WORDS]


def places(document: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value in a document."""
    return list(_places(document))


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(document, dict | list):
        for key in list(document) if isinstance(document, dict) else range(len(document)):
            yield document, key
            yield from _places(document[key])


def put_odd(stream: Random, document: Any) -> Any:
    """An odd value in one place."""
    if not (there := places(document)):
        return stream.choice(ODD)
    inner, key = stream.choice(there)
    inner[key] = copy.deepcopy(stream.choice(ODD))
    return document


def drop(stream: Random, document: Any) -> Any:
    if there := places(document):
        inner, key = stream.choice(there)
        del inner[key]
    return document


def misspell(stream: Random, document: Any) -> Any:
    """A key with a letter changed, or one more beside it."""
    there = [(inner, key) for inner, key in places(document) if isinstance(inner, dict) and key]
    if there:
        inner, key = stream.choice(there)
        text = str(key)
        at = stream.randrange(len(text))
        inner[text[:at] + stream.choice("xé-_ .:") + text[at + stream.randint(0, 1) :]] = (
            inner.pop(key) if stream.random() < 0.5 else copy.deepcopy(inner[key])
        )
    return document


def wrap(stream: Random, document: Any) -> Any:
    """A value inside a list or a mapping, perhaps many times, or out of its list."""
    if not (there := places(document)):
        return [document]
    inner, key = stream.choice(there)
    value = inner[key]
    if isinstance(value, list) and value and stream.random() < 0.5:
        inner[key] = value[0]
        return document
    for _ in range(stream.choice([1, 1, 2, 30, 200])):
        value = [value] if stream.random() < 0.5 else {stream.choice(["a", "kind", "grid"]): value}
    inner[key] = value
    return document


def swap(stream: Random, document: Any) -> Any:
    """A value where another one of the document stood."""
    if there := places(document):
        (inner, key), (other, name) = stream.choice(there), stream.choice(there)
        inner[key] = copy.deepcopy(other[name]) if _depth(other[name]) < 50 else None
    return document


def scale_number(stream: Random, document: Any) -> Any:
    there = [
        (inner, key)
        for inner, key in places(document)
        if isinstance(inner[key], int | float) and not isinstance(inner[key], bool)
    ]
    if there:
        inner, key = stream.choice(there)
        inner[key] = stream.choice([-1, 0, 0.5, 1e6, 1e18, 1e-12, 2]) * inner[key]
    return document


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


DOCUMENT = [put_odd, put_odd, put_odd, drop, misspell, wrap, swap, scale_number]


def flip(stream: Random, data: bytes) -> bytes:
    """Some bytes changed."""
    raw = bytearray(data)
    for _ in range(stream.choice([1, 1, 3, 20])):
        if raw:
            raw[stream.randrange(len(raw))] = stream.randrange(256)
    return bytes(raw)


def cut(stream: Random, data: bytes) -> bytes:
    return data[: stream.randint(0, len(data))]


def cut_out(stream: Random, data: bytes) -> bytes:
    at = stream.randint(0, len(data))
    return data[:at] + data[at + stream.randint(1, 200) :]


def insert(stream: Random, data: bytes) -> bytes:
    """Bytes that mean something somewhere, put anywhere."""
    odd = [b"\x00" * 8, b"\xff" * 8, b"\xef\xbb\xbf", b"\n", b"\r\n", b"\r", b'"', b",", b"\t"]
    odd += [b"\x1b[2J", b"\x85", "\u2028".encode(), b"nan", b"1e999", b"9" * 5000, b"a" * 140_000]
    at = stream.randint(0, len(data))
    return data[:at] + stream.choice(odd) + data[at:]


def repeat(stream: Random, data: bytes) -> bytes:
    at = stream.randint(0, len(data))
    return data[:at] + data[at : at + stream.randint(1, 500)] * 2 + data[at:]


def replace(stream: Random, data: bytes) -> bytes:
    """Something else altogether."""
    others = [
        b"",
        b" ",
        b"\n\n",
        b"\x00" * 100,
        b"PK\x03\x04",
        b"\x80\x04N.",
        b"{}",
        b"[]",
        b"null",
    ]
    others += [b"\x93NUMPY", b"\x1f\x8b\x08", bytes(range(256)), b"MZ" * 50, b"<html></html>"]
    return stream.choice(others)


BYTES = [flip, flip, cut, cut_out, insert, insert, repeat, replace]


def crlf(stream: Random, data: bytes) -> bytes:
    return data.replace(b"\n", stream.choice([b"\r\n", b"\r", b"\n\n", b"\x0b"]))


def mark(stream: Random, data: bytes) -> bytes:
    """A byte-order mark in front."""
    return b"\xef\xbb\xbf" * stream.randint(1, 2) + data


def recode(stream: Random, data: bytes) -> bytes:
    """Another encoding."""
    name = stream.choice(["utf-16", "utf-16-le", "utf-32", "cp1252", "utf-7"])
    return data.decode("utf-8", "replace").encode(name, "replace")


def swap_lines(stream: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    i, j = stream.randrange(len(lines)), stream.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


def drop_line(stream: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    del lines[stream.randrange(len(lines))]
    return b"\n".join(lines)


def double_line(stream: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at = stream.randrange(len(lines))
    return b"\n".join([*lines[: at + 1], *lines[at:]])


TEXT = [crlf, mark, recode, swap_lines, drop_line, double_line, insert, cut, replace]


def as_json(document: Any) -> bytes:
    """Of any document, as a program that is not careful would write it."""
    return json.dumps(document, default=str).encode()
