"""Small real stores, made by the commands, for the tests of what reads them."""

import json
import shutil
from pathlib import Path
from typing import Any

from marginctl.cli import run as run_command
from marginctl.runs.run_dir import digest, file_digest

UCI = ["uci-cv", "--dataset", "iris", "--objective", "soft", "--objective", "arcgrad:scale=5"]
UCI += ["--folds", "3", "--repeats", "2", "--set", "protocol.epochs=2", "--workers", "1"]
TRAIN = ["train", "--data", "digits", "--model", "mlp", "--objective", "soft", "--no-tune"]
TRAIN += ["--objective", "cosine", "--epochs", "1"]


def make(store: Path) -> Path:
    """Two runs of uci-cv and two of train."""
    for arguments in (UCI, TRAIN):
        assert run_command([*arguments, "--quiet", "--out", str(store)]) == 0
    return store


def trial(store: Path, start: str) -> Path:
    """The folder of the trial whose name starts so."""
    (found,) = (p.parent for p in store.rglob("run.json") if p.parent.name.startswith(start))
    return found


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def change_run(folder: Path, **changes: Any) -> None:
    """Changes keys of run.json, whose digest is recorded again; `recipe__model` is a nested key.

    `...` removes a key.
    """
    path = folder / "run.json"
    path.write_text(json.dumps(_changed(json.loads(path.read_text()), changes)))
    if (folder / "result.json").exists():
        change_result(folder, **{"timing__sha256__run.json": file_digest(path)})


def change_result(folder: Path, **changes: Any) -> None:
    """Changes keys of result.json, with a checksum that fits."""
    path = folder / "result.json"
    record = json.loads(path.read_text())
    del record["sha256"]
    record = _changed(record, changes)
    path.write_text(json.dumps({**record, "sha256": digest(record)}))


def _changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    for key, value in changes.items():
        *outer, last = key.split("__")
        inner = document
        for name in outer:
            inner = inner.setdefault(name, {})
        if value is ...:
            del inner[last]
        else:
            inner[last] = value
    return document


def another(folder: Path, to: Path, started: str = "2999-01-01T00:00:00+0000", **same: Any) -> Path:
    """A copy that is a trial of its own, begun later; `same` is changed in run and result alike."""
    copied(folder, to)
    change_run(to, trial=to.name, timing={"started": started}, **same)
    change_result(to, trial=to.name, **same)
    return to
