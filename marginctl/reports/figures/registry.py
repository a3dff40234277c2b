"""The figures of a run store: a file for each table and kind that the runs allow."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from marginctl.errors import RequestError
from marginctl.objectives.parsing import parse
from marginctl.reports.figures import KINDS
from marginctl.reports.figures.angle_histograms import angles
from marginctl.reports.figures.curves import curves, rho
from marginctl.reports.figures.detection_by_scale import detection
from marginctl.reports.figures.divergences import divergences
from marginctl.reports.figures.example import example
from marginctl.reports.figures.grid_sweep import sweep
from marginctl.reports.figures.kappa_classes import kappa_classes
from marginctl.reports.figures.learning_curves import Group, Reasons, groups
from marginctl.reports.figures.option_sweep import options
from marginctl.reports.figures.reliability_diagram import reliability
from marginctl.reports.figures.sample_difficulty_curves import curriculum, lipschitz
from marginctl.reports.figures.scale_by_epoch import kappa
from marginctl.reports.figures.style import FORMATS, check_kinds, save, styled
from marginctl.results.collect import Collected, Trained
from marginctl.runs.atomic_io import check_writable
from marginctl.runs.run_dir import digest

# Each draws a table; it tells the last argument what it cannot draw.
OF_RUNS: dict[str, Callable[[Trained, Sequence[Group], Reasons], Any]] = {
    "curves": curves,
    "rho": rho,
    "angles": angles,
    "kappa": kappa,
    "example": example,
    "sweep": sweep,
    "options": options,
    "reliability": reliability,
    "detection": detection,
    "curriculum": curriculum,
    "lipschitz": lipschitz,
}
TOGETHER = "kappa-classes"  # of all tables
ALONE = "divergences"  # of formulas, not of runs


@styled()
def draw_all(
    collected: Collected, directory: Path, kinds: Sequence[str], suffix: str
) -> tuple[list[Path], list[str]]:
    """Draws what the finished runs allow.

    Args:
        collected: the runs; those of cross-validation have no epochs and are not drawn.
        directory: for the files; made where it is not there.
        kinds: of `KINDS`; none for all.
        suffix: of the files, of `FORMATS` with or without the dot.

    Returns:
        The files, `RECIPE-KIND` each, those of all tables `KIND`; and a line for each kind that was
        left out, or a part of it, with the reason. `divergences`, which needs no runs, is drawn
        where it is asked for by name or where an objective has the regulariser.

    Raises:
        RequestError: a kind or a suffix that there is not, or a file that cannot be written.
    """
    check_kinds(kinds)
    suffix = "." + suffix.removeprefix(".")
    if suffix not in FORMATS:
        raise RequestError(f"--figure-format {suffix[1:]}: expected one of png, svg, pdf")
    try:
        check_writable(directory / f"{ALONE}{suffix}")
    except RequestError as error:
        raise RequestError(*(f"--figures {line}" for line in error.lines)) from None
    written: list[Path] = []
    skipped: list[str] = [
        f"{table.recipe}: runs of uci-cv have no epochs: not drawn (--figure draws their ranks)"
        for table in collected.tables
    ]
    chosen = [kind for kind in KINDS if kind in (kinds or KINDS)]
    for name, table in zip(_file_names(collected.trained), collected.trained, strict=True):
        together = groups(table)
        for kind in (kind for kind in chosen if kind in OF_RUNS):
            said = Reasons()
            figure = OF_RUNS[kind](table, together, said)
            skipped += [f"{table.recipe}: {kind}: {line}" for line in said.lines()]
            if figure is not None:
                written.append(directory / f"{name}-{kind}{suffix}")
                save(figure, written[-1])
    if TOGETHER in chosen and (collected.trained or TOGETHER in kinds):
        said = Reasons()
        figure = kappa_classes(collected.trained, said)
        skipped += [f"{TOGETHER}: {line}" for line in said.lines()]
        if figure is not None:
            written.append(directory / f"{TOGETHER}{suffix}")
            save(figure, written[-1])
    if ALONE in chosen:
        if ALONE in kinds or _regularised(collected):
            written.append(directory / f"{ALONE}{suffix}")
            save(divergences(), written[-1])
        else:
            skipped.append(
                f"{ALONE}: no run has the regulariser of Large Margin in Softmax: --kind {ALONE} "
                "draws them without"
            )
    return written, skipped


def _file_names(tables: Sequence[Trained]) -> list[str]:
    """A file name for each table: its recipe's, and a digest where two tables share it."""
    names = [re.sub(r"[^\w.]+", "-", table.recipe).strip("-.") or "runs" for table in tables]
    shared = Counter(names)
    return [
        f"{name}-{digest([table.recipe, table.training])[:8]}" if shared[name] > 1 else name
        for name, table in zip(names, tables, strict=True)
    ]


def _regularised(collected: Collected) -> bool:
    names = {objective for t in collected.trained for _, objective, _ in t.runs}
    names |= {objective for t in collected.tables for _, objective, _ in t.runs}
    return any(
        part.kind == "non-target-uniformity" for n in names for part in parse(n).spec.regularizers
    )
