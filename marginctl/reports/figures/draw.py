"""Drawing the figures that the runs of a report allow."""

from collections.abc import Sequence
from pathlib import Path

from marginctl.errors import RequestError
from marginctl.reports.figures.registry import FIGURES, FigureEntry
from marginctl.reports.figures.seed_groups import Omissions, SeedTable, seed_tables
from marginctl.reports.figures.style import FORMATS, save, styled
from marginctl.results.collect import Collected
from marginctl.runs.atomic_io import check_writable
from marginctl.utils.registry import import_object


@styled()
def draw_figures(
    collected: Collected, directory: Path, kinds: Sequence[str], suffix: str
) -> tuple[dict[Path, str], list[str]]:
    """Write a file for each table and kind that the runs allow.

    Args:
        collected: the runs; those of cross-validation have no epochs and are not drawn.
        directory: for the files; created if it does not exist.
        kinds: names in `FIGURES`; none for all that show runs.
        suffix: of the files, `png`, `svg` or `pdf`.

    Returns:
        The caption of each written file, `RECIPE-KIND` or `KIND`; and a line for each kind that was
        left out, or a part of it, with the reason.

    Raises:
        RequestError: an unknown kind or suffix, or a file that cannot be written.
    """
    for kind in kinds:
        FIGURES.find(kind)
    if f".{suffix}" not in FORMATS:
        raise RequestError(f"--figure-format {suffix}: expected one of png, svg, pdf")
    try:
        check_writable(directory / f"figure.{suffix}")
    except RequestError as error:
        raise RequestError(*(f"--figures {line}" for line in error.lines)) from None
    written: dict[Path, str] = {}
    skipped = [
        f"{table.recipe}: uci-cv runs have no epochs (--figure draws their ranks)"
        for table in collected.cv_runs
    ]
    tables = seed_tables(collected.training_runs)
    entries = {
        name: entry
        for name, entry in FIGURES.items()
        if name in kinds or (not kinds and entry.needs_runs)
    }
    jobs: list[tuple[str, str, FigureEntry, SeedTable | list[SeedTable]]] = [
        (f"{table.file_name}-{name}", f"{table.recipe}: {name}", entry, table)
        for table in tables
        for name, entry in entries.items()
        if entry.per_table
    ]
    jobs += [
        (name, name, entry, tables)
        for name, entry in entries.items()
        if not entry.per_table and (tables or name in kinds)
    ]
    for file_name, label, entry, content in jobs:
        omissions = Omissions()
        figure = import_object(entry.path, f"figure '{entry.caption}'")(content, omissions)
        skipped += [f"{label}: {line}" for line in omissions.lines()]
        if figure is not None:
            path = directory / f"{file_name}.{suffix}"
            save(figure, path)
            written[path] = entry.caption
    return written, skipped
