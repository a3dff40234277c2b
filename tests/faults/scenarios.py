"""The commands that `tests.faults.kills` kills: a fast recipe each, on data that is built in."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

OUT = ("--out", "out")
DIGITS = ("--data", "digits", "--device", "cpu", "--set", "data.subset_size=300")
OFTEN = ("--checkpoint-minutes", "0")
SEARCH = """
paper: arcgrad
table: I
task: uci-cv
datasets: [iris, balance-scale]
objectives: [soft, adacos, "arcgrad:scale=5"]
search:
  protocol: {lr: [1e-3, 1e-2, 3e-2], weight_decay: [0.0, 5e-4], epochs: [15]}
  rounds: [{repeats: 1, keep: 2}, {repeats: 2, keep: 1}]
"""


def without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        drop = ("seconds", "epoch_seconds", "timing")
        return {k: without_seconds(v) for k, v in value.items() if k not in drop}
    return [without_seconds(v) for v in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Scenario:
    """A command.

    Attributes:
        name: of it.
        arguments: of the command line, from the folder of inputs; what it writes goes into the
            current folder, runs below `out`.
        prepare: writes inputs, and gives the command lines that make the others.
        files: patterns of what it leaves beside records, which two runs have in common.
        outputs: those of them that a user named, directly in the current folder.
    """

    name: str
    arguments: Callable[[Path], list[str]]
    prepare: Callable[[Path], list[list[str]]] = lambda inputs: []
    files: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def printed(self, stdout: str) -> Any:
        """What a command has printed, without what may differ."""
        if "{" not in stdout:
            return stdout
        return without_seconds(json.loads(stdout))


def _train(inputs: Path) -> list[str]:
    own = ["train", *DIGITS, "--model", "mnist-cnn:feature_dim=16", "--objective", "adacos"]
    return [*own, "--seeds", "2", "--epochs", "6", "--json", "--workers", "1", *OFTEN, *OUT]


def _train_side_by_side(inputs: Path) -> list[str]:
    return ["2" if argument == "1" else argument for argument in _train(inputs)]


def _cross_validate(inputs: Path) -> list[str]:
    own = ["uci-cv", "--dataset", "iris", "--repeats", "3", "--set", "protocol.epochs=60"]
    own += ["--objective", "soft", "--objective", "adacos", "--objective", "center"]
    own += ["--predictions", "predictions.csv", "--workers", "1"]
    return [*own, "--json", *OUT]


def _to_search(inputs: Path) -> list[list[str]]:
    (inputs / "near.yaml").write_text(SEARCH)
    return []


def _search(inputs: Path) -> list[str]:
    own = ["uci-cv", "--search", str(inputs / "near.yaml"), "--json", "--workers", "1"]
    return [*own, *OUT]


def _network(inputs: Path) -> list[list[str]]:
    """A softmax network, for what goes on from one."""
    own = ["train", *DIGITS, "--model", "mnist-cnn:feature_dim=8", "--objective", "soft"]
    return [[*own, "--epochs", "2", "--seed", "0", "--out", str(inputs / "start"), "--quiet"]]


def _transfer(inputs: Path) -> list[str]:
    own = ["transfer", "--from", str(inputs / "start"), *DIGITS, "--json", *OFTEN, *OUT]
    own += ["--method", "probe", "--method", "fine-tune", "--epochs", "3"]
    return [*own, "--seeds", "2", "--predictions", "predictions.csv", "--workers", "1"]


def _cosify(inputs: Path) -> list[str]:
    (folder,) = (inputs / "start").glob("*")
    own = ["cosify", "--from", str(folder), "--device", "cpu", "--json", *OFTEN, *OUT]
    return [*own, "--blocks", "4", "--blocks", "1-4", "--epochs", "3", "--workers", "1"]


def _outputs(inputs: Path) -> list[list[str]]:
    chance = np.random.default_rng(0)
    labels = chance.integers(0, 10, 4000)
    logits = chance.normal(size=(4000, 10)) * 2 + 4 * np.eye(10)[labels]
    np.savez(inputs / "outputs.npz", logits=logits, labels=labels)
    return []


def _calibrate(inputs: Path) -> list[str]:
    own = ["calibrate", str(inputs / "outputs.npz"), "--json", "--method", "vector"]
    return [*own, "--save", "map.json", "--figure", "figure.svg", "--repeats", "4"]


def _store(inputs: Path) -> list[list[str]]:
    first = ["uci-cv", "arcgrad/table1", "--dataset", "iris", "--repeats", "1"]
    first += ["--objective", "soft", "--objective", "adacos", "--set", "protocol.epochs=3"]
    own = ["--out", str(inputs / "store"), "--quiet"]
    return [[*first, *own], [*_network(inputs)[0][:-3], *own]]


def _report(inputs: Path) -> list[str]:
    own = ["report", str(inputs / "store"), "--format", "html", "--output", "report.html"]
    return [*own, "--figures", "figures"]


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("train", _train),
        Scenario("train --workers 2", _train_side_by_side),
        Scenario(
            "uci-cv",
            _cross_validate,
            files=("predictions.csv", "out/**/predictions.csv"),
            outputs=("predictions.csv",),
        ),
        Scenario("uci-cv --search", _search, _to_search),
        Scenario(
            "transfer",
            _transfer,
            _network,
            files=("predictions.csv", "out/features/*.npy", "out/**/predictions.csv"),
            outputs=("predictions.csv",),
        ),
        Scenario("cosify", _cosify, _network),
        Scenario(
            "calibrate",
            _calibrate,
            _outputs,
            files=("map.json", "figure.svg"),
            outputs=("map.json", "figure.svg"),
        ),
        Scenario(
            "report",
            _report,
            _store,
            files=("report.html", "figures/*"),
            outputs=("report.html",),
        ),
    )
}
