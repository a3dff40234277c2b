"""The table of benchmark results."""

from dataclasses import asdict
from typing import Any

from marginctl.bench.suite import BenchmarkResults, Environment
from marginctl.bench.timing import Measurement
from marginctl.reports.tables.table import Report, flat_record, table_of_texts
from marginctl.utils.text import count_noun

HEADINGS = ("benchmark", "measured", "relative to", "median", "range", "n", "published")


def bench_report(results: BenchmarkResults, *, ratios_only: bool) -> Report:
    """Return the measurements as one table; `ratios_only`: those that have a reference alone."""
    document: dict[str, Any] = {
        "schema": 1,
        "command": "bench",
        "quick": results.quick,
        "benchmarks": [asdict(result) for result in results.results],
        "skipped": [asdict(skipped) for skipped in results.skipped],
        "environment": asdict(results.environment),
    }
    rows = []
    intervals: dict[str, list[str]] = {}
    for result in results.results:
        for m in result.measurements:
            if ratios_only and m.reference is None:
                continue
            names = intervals.setdefault(m.value.interval, [])
            if result.benchmark not in names:
                names.append(result.benchmark)
            rows.append((result.benchmark, *_texts(m)))
        rows += [_skipped(result.benchmark, f"{s.measured}: {s.reason}") for s in result.skipped]
    rows += [_skipped(s.measured, s.reason) for s in results.skipped]
    notes = []
    ranges = "; ".join(f"{kind} ({', '.join(names)})" for kind, names in intervals.items())
    if ranges:
        notes.append(f"range: {ranges}")
    notes += [f"{result.benchmark}: {note}" for result in results.results for note in result.notes]
    notes += _environment_notes(results.environment)
    if results.quick:
        notes.append("quick: sizes are too small for reliable ratios")
    elif ratios_only:
        notes.append("sizes are smaller than those of marginctl bench NAME")
    caption = "x: the time of `measured` divided by that of `relative to`, in the same round"
    table = table_of_texts(caption, HEADINGS, rows, key="bench", notes=notes, text_columns=2)
    records = [
        {"benchmark": result.benchmark, **flat_record(asdict(m))}
        for result in results.results
        for m in result.measurements
    ]
    return Report([table], records, document, "marginctl bench")


def _texts(m: Measurement) -> tuple[str, ...]:
    v = m.value
    spread = "" if v.low == v.high == v.median else f"{_number(v.low)} to {_number(v.high)}"
    return (
        m.measured,
        m.reference or "",
        f"{_number(v.median)}{'' if m.unit == 'x' else ' '}{m.unit}",
        spread,
        str(m.n),
        "" if m.published is None else f"{_number(m.published)} {m.unit}",
    )


def _skipped(benchmark: str, reason: str) -> tuple[str, ...]:
    return (benchmark, f"skipped: {reason}", "", "", "", "", "")


def _environment_notes(environment: Environment) -> list[str]:
    load = environment.load_before
    averages = "unknown" if load is None else ", ".join(f"{average:.1f}" for average in load)
    package = environment.versions
    lines = [
        f"environment: {environment.device_name}; {count_noun(environment.threads, 'thread')} of "
        f"torch {package['torch']}, Python {package['python']}, {environment.system} "
        f"{environment.architecture}; load averages before (1, 5, 15 min): {averages}"
    ]
    if load is not None and load[0] > environment.cores / 2:
        lines.append("the machine was busy: on an idle machine the ratios may differ")
    return lines


def _number(value: float) -> str:
    """Return three significant digits, and no decimals from 100 on."""
    size = abs(value)
    if size >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.2g}"
