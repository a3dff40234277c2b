"""`marginctl bench`: every benchmark at sizes that take minutes, and its ratios in one form."""

import importlib.util
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from marginctl.bench import kappa, networks, objectives, probe, train, uci_cv
from marginctl.bench.kappa import SHAPES, Shape
from marginctl.errors import MarginctlError
from marginctl.objectives.parsing import available
from marginctl.runs.run_dir import versions
from marginctl.utils.device import resolve_device, usable_cores
from marginctl.utils.precision import device_config_for

Row = dict[str, Any]
Found = tuple[dict[str, Any], Iterator[Row]]  # a benchmark's document, and its ratios
OWN = "marginctl"
# of fewer than 6 values, which all of them but `objectives` have, no 95 % interval is narrower
MIDDLE, ALL = "middle half", "lowest and highest"


@dataclass(frozen=True)
class Sizes:
    """How much every benchmark does.

    Attributes:
        tables: data sets of `uci-cv`, with the epochs of each.
        rounds: of `uci-cv`, `kappa` and `probe`.
        layer: N, C and d of `objectives`.
        pairs: of `objectives`.
        images, steps, epochs: a batch, steps of an epoch and pairs of epochs of `train`.
        shapes: of `kappa`.
        features: n, C and d of `probe`.
    """

    tables: dict[str, int]
    rounds: int
    layer: tuple[int, int, int]
    pairs: int
    images: int
    steps: int
    epochs: int
    shapes: Sequence[Shape]
    features: tuple[int, int, int]


USUAL = Sizes(
    tables={"iris": 20, "banknote-authentication": 5},
    rounds=3,
    layer=(256, 1000, 512),
    pairs=9,
    images=128,
    steps=10,
    epochs=5,
    shapes=SHAPES,
    features=(5000, 50, 640),
)
# for a look whether all of it works here: what is so short says little of any ratio
QUICK = Sizes(
    tables={"iris": 3},
    rounds=1,
    layer=(128, 10, 512),
    pairs=3,
    images=16,
    steps=2,
    epochs=2,
    shapes=[Shape("Cifar10", "resnet18", 32, 10, 128, 8)],
    features=(500, 10, 64),
)
MODEL = "layer13:width=0.25"  # of `train`
TOLERANCE = 1e-6  # on the gradient of `probe`


def run(
    sizes: Sizes, *, quick: bool, data_dir: Path | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """Runs every benchmark, one after the other; what cannot be run is a row with its reason.

    Args:
        sizes: how much each does.
        quick: whether these are the smallest sizes; it is in the document.
        data_dir: None for the default one.
        say: hears of each measurement.

    Returns:
        A JSON document: `rows`, of which each says how many times as long `what` takes as
        `against` (median, low and high; `range` says what these two are), or null and the `reason`;
        every benchmark's own document; and the environment, with the load before the first one.
    """
    load = list(os.getloadavg()) if hasattr(os, "getloadavg") else None
    device = resolve_device("auto", accelerated=True)
    parts: dict[str, Callable[[], Found]] = {
        f"uci-cv {name}": partial(_table, name, sizes, data_dir, say) for name in sizes.tables
    }
    parts["objectives"] = partial(_objectives, sizes, device, say)
    parts["train"] = partial(_train, sizes, device, say)
    parts["kappa"] = partial(_kappa, sizes, device, say)
    parts["probe"] = partial(_probe, sizes, say)
    rows: list[Row] = []
    documents: dict[str, Any] = {}
    for name, part in parts.items():
        began = time.monotonic()
        say(f"{name}:")
        try:
            document, found = part()
        except (MarginctlError, ImportError) as error:
            reason = error.lines[0] if isinstance(error, MarginctlError) else str(error)
            rows.append(_absent(name.split()[0], reason))
            continue
        documents[name] = document | {"seconds_in_all": time.monotonic() - began}
        rows += [{"benchmark": name.split()[0]} | row for row in found]
    rows.append(_absent("networks", "on a GPU alone: marginctl bench --device cuda"))
    return {
        "schema": 1,
        "command": "bench",
        "quick": quick,
        "rows": rows,
        "benchmarks": documents,
        "environment": {
            "cores": usable_cores(),
            "threads": torch.get_num_threads(),
            "architecture": platform.machine(),
            "system": platform.system(),
            "device": device,
            "card": networks.card(device_config_for(device, "auto")),
            "load_before": load,
            "versions": versions(),
        },
    }


def _row(what: str, against: str, spread: dict[str, float], kind: str, n: int, device: str) -> Row:
    return {
        "what": what,
        "against": against,
        "ratio": spread,
        "range": kind,
        "n": n,
        "device": device,
        "reason": None,
    }


def _absent(benchmark: str, reason: str) -> Row:
    empty = dict.fromkeys(("what", "against", "ratio", "range", "n", "device"))
    return {"benchmark": benchmark, **empty, "reason": reason}


def _table(name: str, sizes: Sizes, data_dir: Path | None, say: Callable[[str], None]) -> Found:
    options: dict[str, Any] = {"rounds": sizes.rounds, "epochs": sizes.tables[name]}
    found = uci_cv.run([name], data_dir=data_dir, **options, say=say)

    def rows() -> Iterator[Row]:
        for side, ratios in found["datasets"][0]["ratios"].items():
            low, high = min(ratios), max(ratios)
            spread = {"median": statistics.median(ratios), "low": low, "high": high}
            yield _row(f"{side}, {name}", OWN, spread, ALL, sizes.rounds, "cpu")

    return found, rows()


def _objectives(sizes: Sizes, device: str, say: Callable[[str], None]) -> Found:
    options: dict[str, Any] = {
        "sizes": [sizes.layer],
        "pairs": sizes.pairs,
        "networks": False,
    }
    found = objectives.run(available(), **options, device=torch.device(device), say=say)

    def rows() -> Iterator[Row]:
        other = objectives.OTHER
        for row in found["rows"]:
            for side, spread in row["ratios"].items():
                what = row["objective"] + f" of {other}" * (side == other)
                against = "cross-entropy"
                yield _row(what, against, spread, MIDDLE, sizes.pairs, device)
        for row in found["left_out"]:
            yield _absent("objectives", f"{row['objective']}: {row['reason']}")
        if not importlib.util.find_spec(other.replace("-", "_")):
            yield _absent("objectives", f"{other} is not installed: pip install {other}")

    return found, rows()


def _train(sizes: Sizes, device: str, say: Callable[[str], None]) -> Found:
    options: dict[str, Any] = {
        "batch": sizes.images,
        "steps": sizes.steps,
        "pairs": sizes.epochs,
    }
    found = train.run(MODEL, **options, device=device, precision="auto", say=say)
    return found, (
        _row(side, OWN, spread, ALL, sizes.epochs, device)
        for side, spread in found["times_as_long"].items()
    )


def _kappa(sizes: Sizes, device: str, say: Callable[[str], None]) -> Found:
    found = kappa.run(shapes=sizes.shapes, rounds=sizes.rounds, device=device, say=say)

    def rows() -> Iterator[Row]:
        for row in found["rows"]:
            share = {key: percent / 100 for key, percent in row["search_percent"].items()}
            what = f"search for kappa*, {row['name']}"
            yield _row(what, "training step", share, ALL, sizes.rounds, device)

    return found, rows()


def _probe(sizes: Sizes, say: Callable[[str], None]) -> Found:
    rows, classes, length = sizes.features
    options: dict[str, Any] = {"rows": rows, "classes": classes, "length": length}
    found = probe.run(**options, rounds=sizes.rounds, tolerance=TOLERANCE, say=say)
    count = len(found["sweep"]["strengths"])
    fast, share = found["one"]["times_as_fast"], found["sweep"]["share_of_cold"]
    pairs = (("scikit-learn", OWN, fast), (f"{count} strengths in a sweep", "cold fits", share))
    return found, (_row(a, b, ratio, ALL, sizes.rounds, "cpu") for a, b, ratio in pairs)
