"""Runs and tables with known content for the page."""

from pathlib import Path

from marginctl.papers import PublishedValue, published_table
from marginctl.recipe.uci_cv import UciCvRecipe
from marginctl.reports.formats.html.page import Page, PageTable, Section
from marginctl.reports.tables.published_table import published_table as table_of_judged
from marginctl.reports.tables.table import Cell, Row, Table
from marginctl.results.verdict import CellVerdict, TableVerdicts, Verdict
from tests.results.factories import cv_result, cv_run

ENVIRONMENT = {"torch": "2.14.1", "python": "3.11.7"}


def run(dataset="iris", objective="soft", seed=0, *, store="runs", accuracies=None, **record):
    """Return a finished cross-validation, with more keys of its result."""
    folder = f"{dataset}-{objective}-{seed}"
    result = cv_result(
        dataset,
        objective,
        accuracies or [[90.0, 91.0], [92.0, 93.0]],
        seed=seed,
        trial=folder,
        sha256="of the file",
        **record,
    )
    protocol = {"hidden": [30, 30], "lr": 0.003, "epochs": 10, "folds": 10}
    recipe = UciCvRecipe.model_validate(
        {"task": "uci-cv", "objectives": [objective], "protocol": protocol}
    )
    return cv_run(
        Path(store) / folder,
        result,
        recipe,
        data=f"digest of {dataset}",
        device="cpu",
        numerics=3,
        recipe={"name": "arcgrad/table1", "protocol": protocol},
        versions=ENVIRONMENT,
        git_commit="b1bbf267",
        timing={"started": "2026-11-28T06:35:33+0000", "host": {"system": "Linux"}},
    )


def table(cells, *, key="own", title="Ours", **more):
    """Return a table of the runs by (row, column)."""
    rows = list(dict.fromkeys(row for row, _ in cells))
    columns = tuple(dict.fromkeys(column for _, column in cells))
    entries = [
        Row(row, tuple(Cell("93.54 ± 0.21", runs=tuple(cells[row, c])) for c in columns))
        for row in rows
    ]
    return Table(key, title, "Accuracy in percent", "data set", columns, tuple(entries), **more)


def judged(verdicts=tuple(Verdict), runs=(), reason=None):
    """Return Table I of arcgrad with a verdict on each of its first cells."""
    published = published_table("arcgrad", "I")
    cells = {}
    for i, (place, verdict) in enumerate(zip(published.cells, verdicts, strict=False)):
        has_runs = verdict not in (Verdict.missing, Verdict.not_available)
        cells[place] = CellVerdict(
            *place,
            published=None if verdict is Verdict.not_available else PublishedValue(90.0, 1.0, 100),
            quantity=published.quantities[place],
            runs=tuple(runs) if has_runs else (),
            mean=91.0 + i if has_runs else None,
            std=0.5 if has_runs else None,
            n=100 if has_runs else 0,
            difference=1.0 + i if has_runs else None,
            interval=(0.25 + i, 1.75 + i) if has_runs else None,
            verdict=verdict,
            reason=reason if has_runs else None,
            differences={},
        )
    return TableVerdicts(published, cells)


def published(one=None, key="arcgrad-I"):
    """Return a published table of a page."""
    one = one or judged(runs=(run(),))
    return PageTable(table_of_judged(one, key=key), one)


def page(**changes):
    """Return a page with a published table, tables of the same runs and of others, a problem."""
    cells = {(d, o): [run(d, o)] for d in ("iris", "wine") for o in ("soft", "arcface")}
    ours = PageTable(table(cells, notes=("a note",)))
    seeds = {("digits", "soft"): [run("digits", seed=s) for s in range(3)]}
    content = {
        "title": "A report",
        "newest": "2026-11-28",
        "sources": ("runs",),
        "problems": ("runs/x: not finished: skipped",),
        "sections": (
            Section("ArcGrad", (published(), ours), "J. Wu and L. Wang"),
            Section("Your experiments", (PageTable(table(seeds, key="b")),)),
        ),
        "environment": {"marginctl": "0.1.0"},
    }
    return Page(**content | changes)
