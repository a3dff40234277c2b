"""Recipes: the shipped ones with their keys, values and text changed."""

import re
from pathlib import Path
from random import Random
from typing import Any

import yaml

from marginctl.recipe.load import shipped_recipes
from marginctl.utils.yaml import read
from tests.fuzz.draft import Case, Draft
from tests.fuzz.values import DOCUMENT, TEXT, WORDS


def prepare(base: Path) -> None:
    """Nothing: the shipped recipes are there."""


def make(draft: Draft) -> Case:
    """A changed recipe, checked or planned, sometimes with --set."""
    stream = draft.stream("base")
    source = stream.choice(sorted(shipped_recipes().values()))
    content = source.read_bytes()
    if stream.random() < 0.65:
        document = draft.changed(read(source)[0], DOCUMENT)
        content = yaml.dump(document, sort_keys=False, allow_unicode=True).encode(
            "utf-8", "surrogatepass"
        )
    if stream.random() < 0.5:
        content = draft.changed(content, [*TRAPS, *TEXT], 2)
    path = draft.folder / "recipe.yaml"
    path.write_bytes(content)
    task = next(iter(re.findall(rb"^task: *([a-z-]+)", content, re.MULTILINE)), b"uci-cv").decode()
    sets = _overrides(stream)
    if stream.random() < 0.5 or task not in ("uci-cv", "train", "cosify", "transfer"):
        return Case(("recipes", "validate", "recipe.yaml", *sets))
    words = ("data", "model", "source_model")
    offline = ("--offline",) if task == "uci-cv" else ()
    arguments = (task, "recipe.yaml", *sets, "--dry-run", "--json", "--device", "cpu")
    return Case((*arguments, *offline, "--data-dir", str(draft.base / "data")), words)


def _overrides(stream: Random) -> list[str]:
    keys = ["protocol.lr", "protocol.epochs", "optim.lr", "data.name", "model", "grid", "seeds", ""]
    keys += [
        "objectives",
        "grid.data.subset_size",
        "train.epochs",
        "a.b.c",
        "protocol",
        "task",
        "paper",
    ]
    keys += [
        "data.subset_size",
        "data.image_size",
        "optim.schedule",
        "protocol.hidden",
        ".",
        "tune",
    ]
    sets = []
    for _ in range(stream.choice([0, 0, 0, 1, 2])):
        equals = stream.choice(["=", "=", "=", "", "=="])
        value = stream.choice([w for w in WORDS if "\x00" not in w] + VALUES)
        sets += ["--set", stream.choice(keys) + equals + value]
    return sets


VALUES = ["[1, 2", "[1,2]", "{a: 1}", "!!python/object:os.system x", "&a [*a]", "- a", "'", "* x"]
VALUES += ["[" * 3000, "9" * 5000, "1e-3", "{}", "? [a]: b", "[nan]", "[.nan]", ".inf", "-.inf"]


def _tagged(stream: Random, data: bytes) -> bytes:
    tags = [b"!!python/object/apply:os.system ['touch ran']", b"!!binary aGk=", b"!!set {a}"]
    tags += [
        b"!!int 'x'",
        b"!!float [1]",
        b"!!timestamp 2026-01-01",
        b"! x",
        b"!!null x",
        b"!!omap x",
    ]
    tags += [b"!!python/name:os.system", b"!!merge x", b"!a!b c", b"!!bool maybe", b"!!str 1"]
    return _at_a_value(stream, data, stream.choice(tags))


def _trap(stream: Random, data: bytes) -> bytes:
    traps = [
        b"no",
        b"1e-3",
        b"010",
        b"0o17",
        b"1:30",
        b"~",
        b"2026-01-01",
        b"*a",
        b"&a 1",
        b"|",
        b">",
    ]
    traps += [b"<<", b"[", b"{", b"- a", b"\t1", b"@x", b"`x", b"%x", b"'a", b'"\\x1b[0m"', b"1__0"]
    traps += [b"9" * 5000, b"-.inf", b".nan", b"1e999", b'"\\ud800"', b"? a", b"=", b"0x1F", b"{a}"]
    return _at_a_value(stream, data, stream.choice(traps))


def _at_a_value(stream: Random, data: bytes, new: bytes) -> bytes:
    lines = data.split(b"\n")
    at = [i for i, line in enumerate(lines) if b": " in line]
    if at:
        i = stream.choice(at)
        lines[i] = lines[i].split(b": ")[0] + b": " + new
    return b"\n".join(lines)


def _tabs(stream: Random, data: bytes) -> bytes:
    return data.replace(b"  ", b"\t", stream.choice([1, -1]))


def _bomb(stream: Random, data: bytes) -> bytes:
    """Anchors of anchors: ten to the tenth values when they are written out."""
    lines = [b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for i in range(1, 10):
        lines.append(b"a%d: &a%d [%s]" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 10)))
    return data + b"\n" + b"\n".join(lines)


def _loop(stream: Random, data: bytes) -> bytes:
    return data + stream.choice([b"\ngrid: &g {data.name: *g}", b"\nseeds: &s [*s]", b"\n&a [*a]"])


def _deep(stream: Random, data: bytes) -> bytes:
    opening = stream.choice([b"[", b"{a: ", b"- ", b"? "])
    return data + b"\nobjectives: " + opening * stream.choice([50, 900, 20_000])


def _more_documents(stream: Random, data: bytes) -> bytes:
    return data + stream.choice(
        [b"\n---\na: 1\n", b"\n...\n", b"\n--- !x\n", b"\n%YAML 9.9\n---\n"]
    )


def _keys_that_are_none(stream: Random, data: bytes) -> bytes:
    odd = [b"\n[a, b]: 1\n", b"\n? {a: 1}\n: 2\n", b"\n1: 2\n", b"\n~: 2\n", b"\n<<: {a: 1}\n"]
    return data + stream.choice([*odd, b"\n'': 1\n", b"\ntask: train\n", b'\n"a\\nb": 1\n'])


TRAPS: list[Any] = [_tagged, _trap, _trap, _tabs, _bomb, _loop, _deep, _more_documents]
TRAPS += [_keys_that_are_none]
