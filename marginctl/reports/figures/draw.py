"""Drawing the figures that the runs of a report allow."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from marginctl.errors import RequestError
from marginctl.metrics.registry import network_metric
from marginctl.reports.figures.dot_plot import fold_comparison
from marginctl.reports.figures.registry import FIGURES, FigureEntry
from marginctl.reports.figures.seed_groups import Omissions, file_names, seed_tables
from marginctl.reports.figures.style import FORMATS, save, styled
from marginctl.results.collect import Collected
from marginctl.results.verdict import TableVerdicts
from marginctl.runs.atomic_io import check_outputs
from marginctl.runs.run_dir import file_digest
from marginctl.utils.registry import import_object

METRICS = "metrics.jsonl"


@styled()
def draw_figures(
    collected: Collected,
    directory: Path,
    kinds: Sequence[str],
    suffix: str,
    metric: str = "accuracy",
    published: Sequence[TableVerdicts] = (),
) -> tuple[dict[Path, str], list[str]]:
    """Write a file `RECIPE-KIND` or `KIND` for each table and kind that the runs allow.

    Args:
        collected: the runs; of cross-validation, own comparisons alone are drawn.
        directory: for the files; created if it does not exist.
        kinds: names in `FIGURES`; none for all.
        suffix: of the files, `png`, `svg` or `pdf`.
        metric: of own comparisons.
        published: the published tables with runs.

    Returns:
        The caption of each written file; and a line for each kind that was left out, or a part of
        it, with the reason.

    Raises:
        RequestError: an unknown kind or suffix, or a file that cannot be written.
    """
    entries = {kind: FIGURES.find(kind) for kind in kinds or FIGURES}
    if f".{suffix}" not in FORMATS:
        raise RequestError(f"--figure-format {suffix}: expected one of png, svg, pdf")
    check_outputs({}, folders={"--figures": directory})
    written: dict[Path, str] = {}
    skipped = []
    names = file_names([(table.recipe, table.settings) for table in collected.cv_runs])
    for cv_table, base in zip(collected.cv_runs, names, strict=True):
        figure = None
        if cv_table.paper is None and not cv_table.grid and "comparison" in entries:
            figure = fold_comparison(cv_table.cv_grid(metric), cv_table.recipe)
        if figure is None:
            skipped.append(
                f"{cv_table.recipe}: uci-cv runs have no epochs (--figure draws their ranks)"
            )
            continue
        path = directory / f"{base}-comparison.{suffix}"
        save(figure, path)
        written[path] = _caption(entries["comparison"], figure)
    changed = [
        run.path
        for table in collected.training_runs
        for run in table.runs.values()
        if run.result.timing.sha256.get(METRICS) not in (None, file_digest(run.path / METRICS))
    ]
    skipped += [f"{path}: {METRICS} has changed since the run finished" for path in changed]
    intact = [
        replace(table, runs={k: run for k, run in table.runs.items() if run.path not in changed})
        for table in collected.training_runs
    ]

    def write(base: str, label: str, name: str, content: Any) -> None:
        entry, omissions = entries[name], Omissions()
        figure = import_object(entry.path, f"figure '{entry.caption}'")(content, omissions)
        skipped.extend(f"{label}: {line}" for line in omissions.lines())
        if figure is not None:
            path = directory / f"{base}.{suffix}"
            save(figure, path)
            written[path] = _caption(entry, figure)

    tables = seed_tables([table for table in intact if table.runs], network_metric(metric))
    contents: dict[str, list[tuple[str, str, Any]]] = {
        "table": [(f"{t.file_name}-", f"{t.recipe}: ", t) for t in tables],
        "all tables": [("", "", tables)] if tables or kinds else [],
        "published table": [
            (f"{p.table.paper}-table-{p.table.number}-", f"{p.table.paper}: ", p) for p in published
        ],
    }
    for name, entry in entries.items():
        for base, label, content in contents[entry.content]:
            write(base + name, label + name, name, content)
    return written, skipped


def _caption(entry: FigureEntry, figure: Figure) -> str:
    return f"{entry.caption}. {figure.get_label()}".removesuffix(". ")
