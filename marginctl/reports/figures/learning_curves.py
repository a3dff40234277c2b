"""What trained runs recorded epoch by epoch, gathered over their seeds."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.results.collect import Run, Trained
from marginctl.runs.safe_read import CorruptFileError, read_bytes

FloatArray = NDArray[np.float64]

FEW = 5  # with fewer seeds a standard deviation says little: their range is shown


@dataclass(frozen=True)
class Series:
    """A number by epoch.

    Attributes:
        epochs: (E,), those that all seeds have.
        values: (n, E), a row a seed.
    """

    epochs: NDArray[np.int64]
    values: FloatArray


@dataclass(frozen=True)
class Spread:
    """Mean and band over seeds, each (E,): the range of fewer than `FEW`, else +- std (ddof 1)."""

    mean: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class Group:
    """The seeds of one row and objective whose loss stayed finite, in their order.

    Attributes:
        row: data, model and setting.
        runs: by seed; none of them diverged.
        diverged: how many did.
    """

    row: str
    objective: str
    runs: Sequence[Run]
    diverged: int

    @cached_property
    def lines(self) -> list[list[dict[str, Any]]]:
        """The whole lines of each run's metrics.jsonl."""
        return [read_lines(run.path / "metrics.jsonl") for run in self.runs]

    def by_epoch(self, *path: str) -> Series | None:
        """The number below `path` in every line; seeds without it are left out.

        Returns:
            None where no epoch has it in all of the other seeds.
        """
        found = [
            {line["epoch"]: n for line in lines if (n := number(line, *path)) is not None}
            for lines in self.lines
        ]
        having = [of_seed for of_seed in found if of_seed]
        common = sorted(set.intersection(*map(set, having))) if having else []
        if not common:
            return None
        return Series(
            np.array(common, np.int64), np.array([[one[e] for e in common] for one in having])
        )


@dataclass
class Reasons:
    """What could not be drawn: each reason once, with the groups that it holds of."""

    found: dict[str, list[Group]] = field(default_factory=dict)

    def add(self, reason: str, group: Group | None = None) -> None:
        """Notes a reason; without a group it holds of the whole figure."""
        self.found.setdefault(reason, []).extend([group] if group else [])

    def lines(self) -> list[str]:
        """A line a reason, naming the objectives."""
        lines = []
        for reason, together in self.found.items():
            names = ", ".join(dict.fromkeys(group.objective for group in together))
            rows = len({group.row for group in together})
            where = f" (in {rows} rows)" if rows > 1 else ""
            lines.append(f"{names}{where}: {reason}" if names else reason)
        return lines


def groups(table: Trained) -> list[Group]:
    """A table's runs by row and objective.

    Rows are in the order of their settings, numbers by their size; objectives in the recipe's
    order, others after them.
    """
    runs = list(table.runs.values())
    asked = runs[0].about["recipe"]["objectives"] if runs else []
    place = {objective: i for i, objective in enumerate(asked)}
    found: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(
        runs, key=lambda r: (_in_order(r), place.get(r.record["objective"], len(place)))
    ):
        found.setdefault((run.record["row"], run.record["objective"]), []).append(run)
    made = []
    for (row, objective), together in found.items():
        whole = [run for run in together if run.record["diverged"] is None]
        whole.sort(key=lambda run: int(run.record["seed"]))
        made.append(Group(row, objective, whole, len(together) - len(whole)))
    return made


def _in_order(run: Run) -> Any:
    recipe = run.about["recipe"]
    setting = run.record["setting"].values()
    by_size = [(0, v, "") if is_number(v) else (1, 0, str(v)) for v in setting]
    return recipe["data"]["name"], str(recipe.get("model")), by_size, run.record["row"]


def by_row(groups: Iterable[Group]) -> dict[str, list[Group]]:
    """The groups of each row, in their order."""
    rows: dict[str, list[Group]] = {}
    for group in groups:
        rows.setdefault(group.row, []).append(group)
    return rows


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl in the order of their epochs.

    A line that is torn or of another kind is left out; a file that is not there has none.
    """
    try:
        text = read_bytes(path).decode("utf-8", "replace")
    except CorruptFileError:
        return []
    lines = {}
    for written in text.split("\n"):
        try:
            line = json.loads(written)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict) and isinstance(line.get("epoch"), int):
            lines[line["epoch"]] = line
    return [lines[epoch] for epoch in sorted(lines)]


def inside(record: Any, *path: str) -> Any:
    """What stands below the keys of a record, None where nothing does."""
    for key in path:
        record = record.get(key) if isinstance(record, dict) else None
    return record


def number(record: Any, *path: str) -> float | None:
    """A finite number below the keys of a record, else None."""
    value = inside(record, *path)
    return float(value) if is_number(value) else None


def is_number(value: Any) -> bool:
    """Whether it is a finite number, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def spread(values: FloatArray) -> Spread:
    """Mean and band over the seeds of values (n, E)."""
    mean = values.mean(0)
    if len(values) < FEW:
        return Spread(mean, values.min(0), values.max(0))
    std = values.std(0, ddof=1)
    return Spread(mean, mean - std, mean + std)


def spread_text(kind: str, counts: Iterable[int]) -> str:
    """What a band or an error bar shows, for a caption, where objectives have so many seeds."""
    several = [n for n in counts if n > 1]
    said = []
    if any(n < FEW for n in several):
        said.append("lowest to highest seed")
    if any(n >= FEW for n in several):
        said.append("± standard deviation over the seeds")
    if not said:
        return f"one seed: no {kind}"
    if len(said) == 2:
        said = [f"{said[0]} (n < {FEW})", f"{said[1]} (n ≥ {FEW})"]
    return f"{kind}: {'; '.join(said)}"


def seeds_text(groups: Iterable[Group]) -> str:
    """`n = 3 seeds`, or the least and the most, and how many diverged."""
    together = list(groups)
    counts = sorted(len(group.runs) for group in together)
    least, most = counts[0], counts[-1]
    said = f"n = {most}" if least == most else f"n = {least} to {most}"
    diverged = sum(group.diverged for group in together)
    lost = f", {diverged} diverged: left out" if diverged else ""
    return f"{said} seed{'s' if most != 1 else ''}{lost}"
