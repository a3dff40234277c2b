"""Results of training as a table: a row a data set, model and setting; a column an objective."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marginctl.metrics.long_tail import DESCRIPTIONS
from marginctl.metrics.registry import (
    CALIBRATION,
    KAPPA,
    MEASURES,
    PAIRS,
    SHOTS,
    detection_of,
    lists_of,
    measure_named,
    sides_of,
    verification_of,
)
from marginctl.recipe import ImageRecipe
from marginctl.reports.formats.text_table import print_table

BEFORE = "before"  # in place of an objective: the network from which others went on


@dataclass(frozen=True)
class Cell:
    """Test accuracy over the seeds of one row and objective, in percent.

    Attributes:
        last, best: of the last epoch of each seed, and of its best one, which the test chose; a
            probe has no epochs, and no best one.
        diverged: seeds whose loss was not finite; they are not in the numbers.
        collapsed: of the n, how many predict one class for every test image.
        seconds: of all its trials.
        epoch_seconds: of the training part of an epoch, the median over epochs and seeds.
        calibration: by the measure, of the last epoch of each seed that has it.
        detection: by the measure, likewise; of the sides that a seed has.
        verification: by the measure, likewise; of the lists of pairs that a seed has.
        scales: `scale_from` of each seed that has it, `seed` beside it.
        shots: accuracy by the group of classes, of each seed of a long tail that has the group.
        kappa: the mean least-squares scale of the test images, of each seed that has it.
        before: the network from which they went on, where they did: its name in a table, and what
            it made of the test images.
    """

    row: str
    objective: str
    last: list[float]
    best: list[float]
    best_epochs: list[int]
    diverged: int
    collapsed: int
    seconds: float
    epoch_seconds: float | None
    calibration: Mapping[str, list[float]]
    detection: Mapping[str, list[float]]
    verification: Mapping[str, list[float]]
    shots: Mapping[str, list[float]]
    scales: Sequence[Mapping[str, Any]] = ()
    kappa: Sequence[float] = ()
    before: tuple[str, Mapping[str, Any]] | None = None

    def as_json(self) -> dict[str, Any]:
        detected, verified = (
            {name: _numbers(values) for name, values in of.items()}
            for of in (self.detection, self.verification)
        )
        return {
            "row": self.row,
            "objective": self.objective,
            "n": len(self.last),
            "last": _numbers(self.last),
            "best": _numbers(self.best) | {"epochs": self.best_epochs},
            "diverged": self.diverged,
            "collapsed": self.collapsed,
            "seconds": self.seconds,
            "epoch_seconds": self.epoch_seconds,
            **{name: _numbers(values) for name, values in self.calibration.items()},
            **{name: _numbers(values) for name, values in self.shots.items() if values},
            **({"detection": detected} if detected else {}),
            **({"verification": verified} if verified else {}),
            **({"scale_from": list(self.scales)} if self.scales else {}),
            **({"kappa": _numbers(self.kappa)} if self.kappa else {}),
        }

    @property
    def scale_note(self) -> str:
        """Which number a scale that is from a run had, seed by seed; empty for all others."""
        seeds: dict[str, list[str]] = {}
        for own in self.scales:
            made = f"{own['times']:g} x kappa* {own['kappa']:.4g} of {own['from_run']}"
            seeds.setdefault(f"scale {own['value']:.4g} = {made}", []).append(str(own["seed"]))
        return "; ".join(f"{text}, seed {' '.join(of)}" for text, of in seeds.items())


def _numbers(values: Sequence[float]) -> dict[str, Any]:
    """Mean and standard deviation (ddof 1); null where there are too few."""
    return {
        "mean": statistics.fmean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "seeds": list(values),
    }


def rows_of(records: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """The cells that results make, in their order."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["row"], record["objective"]), []).append(record)
    cells = []
    for (row, objective), group in groups.items():
        paces = [p for r in group if (p := r["timing"].get("epoch_seconds")) is not None]
        whole = sorted((r for r in group if not r["diverged"]), key=lambda r: int(r["seed"]))
        cells.append(
            Cell(
                row,
                objective,
                [r["last"]["top1"] for r in whole],
                [r["best"]["top1"] for r in whole if not r.get("probe")],
                [r["best"]["epoch"] for r in whole if not r.get("probe")],
                len(group) - len(whole),
                sum(bool(r["collapsed"]) for r in whole),
                sum(r["timing"]["seconds"] for r in group),
                statistics.median(paces) if paces else None,
                _by_name(CALIBRATION, whole),
                _by_name((name for side in sides_of(whole) for name in detection_of(side)), whole),
                _by_name((name for of in lists_of(whole) for name in verification_of(of)), whole),
                _by_name(SHOTS, whole),
                [{**r["scale_from"], "seed": r["seed"]} for r in group if r.get("scale_from")],
                [v for r in whole if (v := KAPPA.of(r)) is not None],
                next((b for r in group if (b := before_of(r)) is not None), None),
            )
        )
    return cells


def _by_name(names: Iterable[str], records: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    measures = {name: measure_named(name) for name in names}
    return {
        name: [v for r in records if (v := measure.of(r)) is not None]
        for name, measure in measures.items()
    }


def before_of(record: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """The name and the numbers of the network from which that of a result went on, if it did."""
    before = record.get("before")
    if not isinstance(before, Mapping):
        return None
    return f"{record['data']}, {record['model']}", before


def as_json(cells: list[Cell], recipe: ImageRecipe, failed: Iterable[str]) -> dict[str, Any]:
    """The document of `train --json`; `failed` has a line for each trial without a network."""
    return {
        "schema": 1,
        "command": "train",
        "recipe": recipe.model_dump(exclude={"about"}),
        "cells": [cell.as_json() for cell in cells],
        "failed": list(failed),
    }


def spread(values: Sequence[float], places: int = 2) -> str:
    """`93.54 ± 0.21` (ddof 1); the number alone for one; `-` for none."""
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.{places}f}"
    return f"{mean} ± {statistics.stdev(values):.{places}f}" if len(values) > 1 else mean


def shown_mean(values: Sequence[float]) -> str:
    """`spread` without blanks, for narrow columns."""
    return spread(values).replace(" ± ", "±")


def _note(cell: Cell) -> str:
    said = [f"{cell.diverged} diverged"] * bool(cell.diverged)
    said += [f"{cell.collapsed} of {len(cell.last)} predict one class"] * bool(cell.collapsed)
    said += [cell.scale_note] * bool(cell.scale_note)
    return ", ".join(said)


def print_as(table_format: str, cells: list[Cell]) -> None:
    """Prints the cells on stdout as `table`, `markdown` or `csv`."""
    names = ["data, model", "objective", "n", "last epoch", "best epoch", "of seeds"]
    shown = [name for name in SHOTS if any(c.shots[name] for c in cells)]
    verified = dict.fromkeys(n for c in cells for n in c.verification if n.endswith(" accuracy"))
    names += [*(MEASURES[name].label for name in shown)]
    names += [*(f"{name.removeprefix(PAIRS)} %" for name in verified), "s/epoch", "note"]
    rows = [
        [
            *(c.row, c.objective, str(len(c.last)), shown_mean(c.last), shown_mean(c.best)),
            " ".join(map(str, c.best_epochs)) or "-",
            *(shown_mean(c.shots[name]) for name in shown),
            *(shown_mean(c.verification.get(name, [])) for name in verified),
            "-" if c.epoch_seconds is None else f"{c.epoch_seconds:.3g}",
            _note(c),
        ]
        for c in cells
    ]
    below = (
        "Test top-1 in percent: mean ± standard deviation over n seeds. best epoch: chosen on the "
        "test images, which flatters it; `of seeds` says which epoch it was. s/epoch: seconds of "
        "training an epoch, the median."
    )
    said = "; ".join(f"{name}: classes with {DESCRIPTIONS[name]}" for name in shown)
    below += f" After the last epoch, over the test images of {said}." if shown else ""
    below += " Accuracy of pairs: after the last epoch, the mean over folds." if verified else ""
    print_table(table_format, names, rows, range(2, 7 + len(shown) + len(verified)), [below])
