"""Run stores with their records and checkpoints changed, for all commands that read them."""

import hashlib
import io
import json
import os
import shutil
import warnings
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from marginctl.cli import run
from marginctl.reports.figures.registry import FIGURES
from marginctl.runs.run_dir import digest
from tests.fuzz.draft import Case, Draft
from tests.fuzz.outputs import payload
from tests.fuzz.values import BYTES, DOCUMENT, as_json, places

SMALL = ["--data", "digits", "--set", "data.subset_size=60", "--device", "cpu", "--quiet"]
TRAIN = ["train", *SMALL, "--model", "mlp:width=4", "--epochs", "1"]
TRAIN += ["--objective", "soft", "--objective", "cosine-ls"]
UCI = ["uci-cv", "--dataset", "iris", "--objective", "soft", "--folds", "2", "--repeats", "1"]
UCI += ["--set", "protocol.epochs=1", "--workers", "1", "--quiet"]
COSIFY = ["cosify", *SMALL, "--from", "store/digits-mlp-width-4", "--blocks", "4", "--epochs", "1"]
PROBE = ["transfer", *SMALL, "--from", "store/digits-mlp-width-4", "--method", "probe"]
PROBE += ["--set", "probe.l2_penalties=[0.1]"]
STARTED = [TRAIN, UCI, PROBE]


def prepare(base: Path) -> None:
    """Trains what the stores hold: two networks, two folds, and linear probes."""
    here = Path.cwd()
    os.chdir(base)
    try:
        for arguments in STARTED:
            assert run([*arguments, "--out", "store"]) == 0
    finally:
        os.chdir(here)


def make(draft: Draft) -> Case:
    """A store with some files changed, and one command that reads it."""
    stream = draft.stream("base")
    store = draft.folder / "store"
    shutil.copytree(draft.base / "store", store)
    draft.changed(store, FILES, 3, least=1)
    trials = sorted(p.parent for p in (draft.base / "store").rglob("run.json"))
    trial = str(stream.choice(trials).relative_to(draft.base))
    checkpoints = sorted(p.relative_to(draft.folder) for p in store.rglob("*.pt"))
    table = str(stream.choice(["table", "markdown", "latex", "csv", "json"]))
    readers: list[list[str]] = [
        ["report", "store", "--format", table],
        ["report", "store", "--format", "json"],
        ["report", "store", "--format", "html", "--output", "page.html"],
        ["report", "store", "--figures", "figures", "--kind", stream.choice(list(FIGURES))],
        ["report", "--diff", "store", str(draft.base / "store"), "--format", "json"],
        ["report", "--list", "store", "--format", "json"],
        ["report", "store", "--explain", "iris/soft", "--format", "json"],
        ["eval", trial, "--json", "--device", "cpu"],
        ["calibrate", trial, "--json", "--quiet", "--repeats", "1", "--bootstrap", "0"],
        ["transfer", *SMALL, "--from", trial, "--dry-run", "--json", "--out", "new"],
        [*COSIFY, "--dry-run", "--json", "--out", "new"],
        [*TRAIN, "--json", "--out", "store"],
        [*UCI, "--json", "--out", "store"],
        [*PROBE, "--json", "--out", "store"],
    ]
    if checkpoints:
        readers.append(["eval", str(stream.choice(checkpoints)), "--json", "--device", "cpu"])
    arguments = stream.choice(readers)
    if arguments[0] == "calibrate":
        arguments += ["--method", "temperature", "--device", "cpu"]
    return Case(tuple(arguments), ("run.json", "result.json", "store", "checkpoint"))


def _file(stream: Random, store: Path, name: str) -> Path | None:
    there = sorted(p for p in store.rglob(name) if p.is_file())
    return stream.choice(there) if there else None


def _record(stream: Random, store: Path) -> Path:
    """One value of run.json, result.json or a line of metrics.jsonl."""
    path = _file(stream, store, stream.choice(["run.json", "result.json", "metrics.jsonl"]))
    if path is None:
        return store
    try:
        documents = [json.loads(line) for line in _documents(path)]
    except ValueError:  # changed before
        documents = []
    if not documents:
        return store
    at = stream.randrange(len(documents))
    documents[at] = _with_its_checksum(stream.choice(DOCUMENT)(stream, documents[at]))
    path.write_bytes(b"\n".join(map(as_json, documents)) + b"\n")
    return store


def _with_its_checksum(document: Any) -> Any:
    """A result as one who writes results would change it: what it holds is looked at."""
    if isinstance(document, dict) and "sha256" in document:
        try:
            rest = {key: value for key, value in document.items() if key != "sha256"}
            return rest | {"sha256": digest(rest)}
        except (TypeError, ValueError):  # NaN
            return document
    return document


def _documents(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    return text.splitlines() if path.suffix == ".jsonl" else [text]


def _names(stream: Random, store: Path) -> Path:
    """A text of a record in all places where it stands, by one that a page or a terminal obeys."""
    odd = ["<script>alert(1)</script>", "\x1b[2J", "javascript:alert(1)", "$\\frac{", "a|b", "%_&#"]
    odd += ["\u202e", "é" * 90, "\ud800", "\"'`"]
    path = _file(stream, store, "result.json")
    if path is None:
        return store
    try:
        inner = [(d, k) for d, k in places(json.loads(path.read_text("utf-8"))) if _text(d[k])]
    except ValueError:
        return store
    if inner:
        document, key = stream.choice(inner)
        old, new = json.dumps(document[key]), json.dumps(stream.choice(odd))
        for file in (path, path.with_name("run.json")):
            if file.is_file():
                text = file.read_bytes().decode("utf-8", "surrogateescape").replace(old, new)
                file.write_bytes(text.encode("utf-8", "surrogateescape"))
    return store


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) > 1


def _bytes(stream: Random, store: Path) -> Path:
    path = _file(stream, store, stream.choice(["*.json", "*.jsonl", "*.pt", "*.npy", "*.yaml"]))
    if path is not None:
        path.write_bytes(stream.choice(BYTES)(stream, path.read_bytes()))
    return store


def _another_kind(stream: Random, store: Path) -> Path:
    """No file, a folder, a pipe or a link in a file's place."""
    path = _file(stream, store, stream.choice(["*.json", "*.jsonl", "*.pt", "*.npy"]))
    if path is not None:
        path.unlink()
        ways = [path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to("none"), lambda: None]
        ways += [lambda: path.symlink_to(path.name), lambda: path.symlink_to("/dev/zero")]
        stream.choice(ways)()
    return store


def _checkpoint(stream: Random, store: Path) -> Path:
    """A checkpoint that holds something else, under a name that fits its content."""
    path = _file(stream, store, "*.pt")
    if path is None:
        return store
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = torch.load(path, weights_only=True)
    except Exception:  # changed before
        return store
    content = io.BytesIO()
    if stream.random() < 0.15:
        content.write(stream.choice([payload(), b"", b"\x80\x02N."]))
    else:
        torch.save(_state(stream, state), content)
    data = content.getvalue()
    name = path.name[:15] + hashlib.sha256(data).hexdigest()[:16] + ".pt"
    for old in path.parent.glob(path.name.split("-")[0] + "-*.pt"):
        old.unlink()
    (path.parent / (name if len(path.name) == 34 else path.name)).write_bytes(data)
    return store


def _state(stream: Random, state: Any) -> Any:
    tensors = [(d, k) for d, k in places(state) if isinstance(d[k], torch.Tensor)]
    way = stream.randrange(4)
    if way == 0 or not tensors:
        return stream.choice(DOCUMENT[:5])(stream, state)
    inner, key = stream.choice(tensors)
    value = inner[key]
    odd = [value[..., :1], value.double(), value.to(torch.int8), value * torch.nan, value * 1e38]
    odd += [torch.zeros(0), torch.zeros(2, 2, 2), value.unsqueeze(0), value.to_sparse()]
    odd += [value.to(torch.complex64), value.bool(), value.expand(3, *value.shape)]
    inner[key] = stream.choice([*odd, "text", None, 3, [1.0], {"a": value}])
    return state


def _features(stream: Random, store: Path) -> Path:
    """Kept features that hold other numbers or a pickle."""
    path = _file(stream, store, "*.npy")
    if path is not None:
        content = io.BytesIO()
        arrays: list[Any] = [
            np.zeros((3, 2)),
            np.array([None, {}], object),
            np.full((420, 4), np.nan),
        ]
        np.save(content, stream.choice(arrays), allow_pickle=True)
        path.write_bytes(stream.choice([content.getvalue(), payload()]))
    return store


FILES = [_record, _record, _record, _names, _bytes, _another_kind, _checkpoint, _checkpoint]
FILES += [_features]
