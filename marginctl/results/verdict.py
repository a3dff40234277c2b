"""Verdicts on published numbers: whether our runs reproduce them."""

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from marginctl.papers import PublishedTable
from marginctl.papers.published import CellKey, PublishedValue, Quantity
from marginctl.results.load_run import Run
from marginctl.results.match_published import Differences, Match, match_runs
from marginctl.results.statistics import Interval, mean_and_std, student_quantile
from marginctl.utils.text import format_setting


class Verdict(enum.StrEnum):
    """What our number says about a published one; delta is the equivalence margin of its table.

    reproduced: the 95 % interval of the difference lies within +-delta.
    inconclusive: it does not, and contains 0; or there is no interval.
    differs: it does not, and does not contain 0.
    not_comparable: our runs train differently, or on less data.
    missing: there is no finished run.
    not_available: the paper's text available to us does not give the number.
    """

    reproduced = "reproduced"
    inconclusive = "inconclusive"
    differs = "differs"
    not_comparable = "not comparable"
    missing = "missing"
    not_available = "not available"


@dataclass(frozen=True)
class CellVerdict:
    row: str
    column: str
    published: PublishedValue | None
    quantity: Quantity
    runs: tuple[Run, ...]
    # of our numbers, in the cell's unit; std with ddof 1, None for n = 1
    mean: float | None
    std: float | None
    n: int
    difference: float | None  # ours minus the published number
    interval: Interval | None  # its 95 % interval
    verdict: Verdict
    reason: str | None  # a remark on the interval or the verdict
    differences: Differences  # settings in which our runs differ, as (ours, the table's)
    best: bool = False  # whether no comparable cell is better by the decimals shown; ties share it


@dataclass(frozen=True)
class TableVerdicts:
    table: PublishedTable
    cells: Mapping[CellKey, CellVerdict]

    @property
    def shown(self) -> bool:
        """Whether there are runs for some cell."""
        return any(cell.runs for cell in self.cells.values())

    def counts(self) -> dict[Verdict, int]:
        """Return how many cells have each verdict, in the order of the verdicts, without zeros."""
        verdicts = [cell.verdict for cell in self.cells.values()]
        return {verdict: verdicts.count(verdict) for verdict in Verdict if verdict in verdicts}


def judge_table(table: PublishedTable, runs: Iterable[Run]) -> TableVerdicts:
    matches = match_runs(table, runs)
    cells = {
        key: _cell_verdict(key, value, table.quantities[key], matches.get(key))
        for key, value in table.cells.items()
    }
    return TableVerdicts(table, _mark_best(table, cells))


def interval(
    mean: float, std: float | None, n: int, published: PublishedValue
) -> tuple[Interval | None, str | None]:
    """Return the 95 % interval of ours minus the published number, and a remark on it.

    Welch's interval, with the published standard deviation if there is one. Approximate for
    cross-validation, whose fold accuracies are correlated.

    Returns:
        The interval and a remark; None and the reason if the spread is unknown.
    """
    difference = mean - published.mean
    if std == 0 and not published.std:
        return None, f"no spread over n = {n}: no interval"
    theirs, their_n, remark = published.std, published.n or 1, None
    if theirs is None:
        remark = "the paper gives no spread: its number is taken as exact"
    elif published.n is None:
        remark = "the paper gives no n: its standard deviation is taken as of one number"
    if std is None and theirs is not None and their_n > 1:
        remark, df = "n = 1: the paper's standard deviation is taken for ours", their_n - 1.0
        error = theirs * math.sqrt(1 / n + 1 / their_n)
    elif std is None:
        return None, "n = 1: no interval"
    else:
        mine, other = std**2 / n, (theirs or 0.0) ** 2 / their_n
        error = math.sqrt(mine + other)
        parts = mine**2 / (n - 1) + (other**2 / (their_n - 1) if their_n > 1 else 0.0)
        df = (mine + other) ** 2 / parts if parts else n - 1
    half = student_quantile(df, 0.975) * error
    return (difference - half, difference + half), remark


def _cell_verdict(
    key: CellKey, value: PublishedValue | None, quantity: Quantity, match: Match | None
) -> CellVerdict:
    numbers = match.numbers if match else ()
    n, (mean, std) = len(numbers), mean_and_std(numbers)
    runs, differing = (match.runs, match.differences) if match else ((), {})
    limits = difference = reason = None
    if value is None:
        verdict = Verdict.not_available
    elif mean is None:
        diverged = any(run.result.diverged for run in runs)
        verdict, reason = Verdict.missing, "diverged" if diverged else None
    else:
        difference = mean - value.mean
        limits, reason = interval(mean, std, n, value)
        verdict = _verdict(limits, quantity.delta)
        if differing:
            verdict = Verdict.not_comparable
            reason = "; ".join(
                f"{key} = {format_setting(ours)}, not {format_setting(theirs)}"
                for key, (ours, theirs) in differing.items()
            )
        elif quantity.delta is None:
            reason = "; ".join(filter(None, [reason, "no delta: nothing counts as reproduced"]))
    return CellVerdict(
        *key, value, quantity, runs, mean, std, n, difference, limits, verdict, reason, differing
    )


def _verdict(limits: Interval | None, delta: float | None) -> Verdict:
    if limits is None:
        return Verdict.inconclusive
    low, high = limits
    if delta is not None and -delta <= low and high <= delta:
        return Verdict.reproduced
    return Verdict.inconclusive if low <= 0 <= high else Verdict.differs


def _mark_best(
    table: PublishedTable, cells: Mapping[CellKey, CellVerdict]
) -> dict[CellKey, CellVerdict]:
    """Mark the best of the cells that have the same quantity and differ only in the objective."""
    groups: dict[Any, list[CellKey]] = {}
    for key, cell in cells.items():
        ranked = cell.quantity.direction != "none" and not cell.differences
        if cell.mean is not None and ranked:
            others = {k: v for k, v in table.selections[key].items() if k != "objective"}
            group = (tuple(sorted(others.items(), key=str)), cell.quantity)
            groups.setdefault(group, []).append(key)
    best: set[CellKey] = set()
    for (_, quantity), keys in groups.items():
        rounded = {key: round(cells[key].mean or 0.0, quantity.decimals) for key in keys}
        optimum = (max if quantity.direction == "higher" else min)(rounded.values())
        best |= {key for key, number in rounded.items() if number == optimum and len(keys) > 1}
    return {key: replace(cell, best=key in best) for key, cell in cells.items()}
