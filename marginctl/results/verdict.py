"""Whether a published number was reproduced: ours beside it, the difference, and how sure it is."""

import enum
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from marginctl.papers import PublishedTable
from marginctl.papers.published import CellKey, PublishedValue, Quantity
from marginctl.results.collect import Run
from marginctl.results.match_published import Match, match_runs
from marginctl.results.statistics import student_quantile
from marginctl.utils.text import format_setting


class Verdict(enum.StrEnum):
    """What our number says of a published one. delta is the table's.

    reproduced: the 95 % interval of the difference lies inside +-delta.
    inconclusive: it does not, and 0 lies inside it; or there is no interval.
    differs: 0 lies outside it, and it is not inside +-delta.
    not_comparable: our runs train in another way, or on less.
    missing: no finished run of ours.
    not_available: the paper's text available to us does not give the number.
    """

    reproduced = "reproduced"
    inconclusive = "inconclusive"
    differs = "differs"
    not_comparable = "not comparable"
    missing = "missing"
    not_available = "not available"


@dataclass(frozen=True)
class Judged:
    """A cell of a published table with what we have for it.

    Attributes:
        mean, std, n: ours, in the cell's unit; std with ddof 1, None for n = 1.
        difference: ours less the published number.
        low, high: its 95 % interval, None where there is none.
        reason: what there is to say of the interval or the verdict.
        differing: settings in which our runs differ, as (ours, the table's).
        best: whether no cell that compares with it is better, by the shown two places; ties share.
    """

    row: str
    column: str
    published: PublishedValue | None
    quantity: Quantity
    runs: tuple[Run, ...]
    mean: float | None
    std: float | None
    n: int
    difference: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    reason: str | None
    differing: Mapping[str, tuple[Any, Any]]
    best: bool = False


@dataclass(frozen=True)
class JudgedTable:
    """A published table, judged cell by cell."""

    table: PublishedTable
    cells: Mapping[CellKey, Judged]

    @property
    def shown(self) -> bool:
        """Whether some run was made for it: else there is nothing to say."""
        return any(cell.runs for cell in self.cells.values())

    def counts(self) -> dict[Verdict, int]:
        """How many cells have each verdict, in the order of the verdicts; 0 is left out."""
        found = [judged.verdict for judged in self.cells.values()]
        return {verdict: found.count(verdict) for verdict in Verdict if verdict in found}


def judge(table: PublishedTable, runs: Iterable[Run]) -> JudgedTable:
    """Judges every cell of a table by the finished runs."""
    ours = match_runs(table, runs)
    cells = {
        place: _judged(place, value, table.quantities[place], ours.get(place))
        for place, value in table.cells.items()
    }
    return JudgedTable(table, _with_best(table, cells))


def interval(
    mean: float, std: float | None, n: int, published: PublishedValue
) -> tuple[float | None, float | None, str | None]:
    """The 95 % interval of ours less the published number, and what it rests on.

    Welch's, with the published standard deviation where there is one. Approximate for
    cross-validation, whose fold accuracies are correlated.

    Returns:
        Low, high and a remark; (None, None, reason) where nothing says how much numbers vary.
    """
    difference = mean - published.mean
    if std == 0 and not published.std:
        return None, None, f"no spread over n = {n}: no interval"
    theirs, their_n, remark = published.std, published.n, None
    if theirs is not None and their_n is None:
        their_n, remark = (
            1,
            "the paper gives no n: its standard deviation is taken as of one number",
        )
    if std is None and theirs is not None and published.n is not None and published.n > 1:
        std, remark = theirs, "n = 1: the paper's standard deviation is taken for ours"
        df: float = published.n - 1
        error = std * math.sqrt(1 / n + 1 / published.n)
    elif std is None:
        return None, None, "n = 1: no interval"
    else:
        mine = std**2 / n
        other = 0.0 if theirs is None or their_n is None else theirs**2 / their_n
        error = math.sqrt(mine + other)
        parts = mine**2 / (n - 1)
        if other and their_n is not None and their_n > 1:
            parts += other**2 / (their_n - 1)
        df = (mine + other) ** 2 / parts if parts else n - 1
        if theirs is None:
            remark = "the paper gives no spread: its number is taken as exact"
    half = student_quantile(df, 0.975) * error
    return difference - half, difference + half, remark


def _judged(
    place: CellKey, value: PublishedValue | None, quantity: Quantity, ours: Match | None
) -> Judged:
    numbers = ours.numbers if ours else ()
    n = len(numbers)
    mean = statistics.fmean(numbers) if n else None
    std = statistics.stdev(numbers) if n > 1 else None
    runs = ours.runs if ours else ()
    differing: Mapping[str, tuple[Any, Any]] = ours.differences if ours else {}
    low = high = difference = reason = None
    if value is None:
        verdict = Verdict.not_available
    elif mean is None:
        diverged = any(run.result.diverged for run in runs)
        verdict, reason = Verdict.missing, "diverged" if diverged else None
    else:
        difference = mean - value.mean
        low, high, reason = interval(mean, std, n, value)
        verdict = _verdict(low, high, quantity.delta)
        if differing:
            verdict, reason = Verdict.not_comparable, _said(differing)
        elif quantity.delta is None:
            reason = "; ".join(filter(None, [reason, "no delta: nothing counts as reproduced"]))
    row, column = place
    return Judged(
        row=row,
        column=column,
        published=value,
        quantity=quantity,
        runs=runs,
        mean=mean,
        std=std,
        n=n,
        difference=difference,
        low=low,
        high=high,
        verdict=verdict,
        reason=reason,
        differing=differing,
    )


def _verdict(low: float | None, high: float | None, delta: float | None) -> Verdict:
    if low is None or high is None:
        return Verdict.inconclusive
    if delta is not None and -delta <= low and high <= delta:
        return Verdict.reproduced
    return Verdict.inconclusive if low <= 0 <= high else Verdict.differs


def _said(differing: Mapping[str, tuple[Any, Any]]) -> str:
    shown = [
        f"{key} = {format_setting(ours)}, not {format_setting(theirs)}"
        for key, (ours, theirs) in differing.items()
    ]
    return "; ".join(shown)


def _with_best(table: PublishedTable, cells: Mapping[CellKey, Judged]) -> dict[CellKey, Judged]:
    """Marks the best of the cells that differ in the objective alone and quantity the same."""
    groups: dict[Any, list[CellKey]] = {}
    for place, judged in cells.items():
        ranked = judged.quantity.direction != "none" and not judged.differing
        if judged.mean is not None and ranked:
            where = {k: v for k, v in table.selections[place].items() if k != "objective"}
            key = (tuple(sorted(where.items(), key=str)), judged.quantity)
            groups.setdefault(key, []).append(place)
    best: set[CellKey] = set()
    for (_, quantity), places in groups.items():
        shown = {place: round(cells[place].mean or 0.0, quantity.decimals) for place in places}
        wanted = (max if quantity.direction == "higher" else min)(shown.values())
        best |= {place for place, number in shown.items() if number == wanted and len(places) > 1}
    return {place: replace(judged, best=place in best) for place, judged in cells.items()}
