"""What stands below a table of trained networks: kappa*, how calibrated they are, what they detect.

Of networks that went on from another one, that one stands before them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from marginctl.metrics.long_tail import DESCRIPTIONS
from marginctl.metrics.registry import (
    CALIBRATION,
    MEASURES,
    MISS,
    PAIRS,
    SHOTS,
    Measure,
    detection_of,
    sides_of,
    verification_of,
)
from marginctl.reports.tables import footnotes as notes
from marginctl.reports.tables.table import Table, table_of_texts
from marginctl.reports.tables.train_table import BEFORE, Cell, spread
from marginctl.results.compare_seeds import SeedComparison


def metric_tables(
    cells: Sequence[Cell], compared: Sequence[SeedComparison], baseline: str
) -> Iterator[Table]:
    """Yield tables with a line for each cell: kappa*, long tail, calibration, pairs, detection."""
    for caption, (headings, *rows) in _lists(cells, compared, baseline):
        yield table_of_texts(caption, headings, rows, text_columns=1)


def _lists(
    cells: Sequence[Cell], compared: Sequence[SeedComparison], baseline: str
) -> Iterator[tuple[str, list[list[str]]]]:
    befores = dict(cell.before for cell in cells if cell.before is not None)
    lines = [[label, BEFORE, spread(_there(b["kappa"]))] for label, b in befores.items()]
    lines += [[c.row, c.objective, spread(c.kappa)] for c in cells if c.kappa]
    if any(cell.kappa for cell in cells):
        caption = "The least-squares scale of the test images after the last epoch, their mean"
        yield caption, [["data, model", "objective", "kappa*"], *lines]
    measures = {name: MEASURES[name] for name in SHOTS}
    lines = _measured(measures, {(c.row, c.objective): c.shots for c in cells}, compared)
    if lines:
        said = "; ".join(f"{name}: {DESCRIPTIONS[name]}" for name in SHOTS)
        yield (
            f"Top-1 in percent of classes by their training images after the last epoch ({said}); "
            f"{notes.BETTER} {notes.WORSE} better or worse than {baseline}, tested as above",
            lines,
        )
    measures = {name: MEASURES[name] for name in CALIBRATION}
    lines = _measured(measures, {(c.row, c.objective): c.calibration for c in cells}, compared)
    caption = (
        f"Calibration on the test images after the last epoch; {notes.BETTER} {notes.WORSE} better "
        f"or worse than {baseline}, tested as above"
    )
    if lines:
        yield caption, lines
    verified = {(cell.row, cell.objective): cell.verification for cell in cells}
    for name in dict.fromkeys(
        measure.removeprefix(PAIRS).rpartition(" ")[0] for of in verified.values() for measure in of
    ):
        lines = _measured(verification_of(name), verified, compared)
        if lines:
            yield (
                f"Verification of the pairs of {name} after the last epoch; {notes.BETTER} "
                f"{notes.WORSE} better or worse than {baseline}, tested as above",
                lines,
            )
    found = {(cell.row, cell.objective): cell.detection for cell in cells}
    found = {(label, BEFORE): _detection(b) for label, b in befores.items()} | found
    sides = dict.fromkeys(name.rsplit(" ", 2)[0] for of in found.values() for name in of)
    for side in sides:
        lines = _measured(detection_of(side), found, compared)
        told = (
            "misclassified test images (MISS) from the correctly classified ones"
            if side == MISS
            else f"{side} (OOD) from the test images"
        )
        if lines:
            yield (
                f"Telling {told}, which are the positive class (in), after the last epoch; "
                f"{notes.BETTER} {notes.WORSE} better or worse than {baseline}, tested as above",
                lines,
            )


def _there(value: float | None) -> list[float]:
    return [] if value is None else [value]


def _detection(before: Mapping[str, Any]) -> dict[str, list[float]]:
    """By the measure, of the network before."""
    record = {"evaluation": before}
    return {
        name: _there(measure.of(record))
        for side in sides_of([record])
        for name, measure in detection_of(side).items()
    }


def _measured(
    measures: Mapping[str, Measure],
    found: Mapping[tuple[str, str], Mapping[str, list[float]]],
    compared: Sequence[SeedComparison],
) -> list[list[str]]:
    """A heading and a line a cell that has a number of the seeds, with marks; else nothing."""
    marks = {(c.row, c.objective, c.measure): notes.DIRECTIONS[c.direction] for c in compared}
    lines = [["data, model", "objective", *(measure.label for measure in measures.values())]]
    for (row, objective), by_name in found.items():
        own = {name: by_name.get(name, []) for name in measures}
        if any(own.values()):
            shown = [
                f"{marks.get((row, objective, name), '')} "
                f"{spread(values, measures[name].places)}".strip()
                for name, values in own.items()
            ]
            lines.append([row, objective, *shown])
    return lines if len(lines) > 1 else []
