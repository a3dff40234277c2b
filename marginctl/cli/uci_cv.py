"""marginctl uci-cv."""

import enum
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from marginctl.cli import completion, options
from marginctl.cli.options import integer, print_json
from marginctl.errors import MarginctlError, RequestError

if TYPE_CHECKING:
    from marginctl.crossval.dask_executor import DaskExecutor
    from marginctl.experiments.uci_cv_session import Session


class Backend(enum.StrEnum):
    processes = "processes"
    dask = "dask"


def command(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="Shipped recipe or file (default: arcgrad/table1; own-data with --csv).",
            autocompletion=completion.recipe,
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset",
            metavar="NAME",
            help="UCI data set, or all; repeatable.",
            autocompletion=completion.uci_set,
        ),
    ] = None,
    objective: options.Objectives = None,
    csv: Annotated[
        list[Path] | None,
        typer.Option("--csv", metavar="FILE", help="Your CSV file; repeatable."),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", metavar="COLUMN", help="Label column: one for all files, or one per file."
        ),
    ] = None,
    train_csv: Annotated[
        Path | None,
        typer.Option("--train-csv", metavar="FILE", help="Training CSV; requires --test-csv."),
    ] = None,
    test_csv: Annotated[
        Path | None,
        typer.Option("--test-csv", metavar="FILE", help="Held-out test CSV; requires --train-csv."),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option("--folds", metavar="N", parser=integer(2), help="Folds per repeat."),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats", metavar="N", parser=integer(1), help="Repeats, each with new folds."
        ),
    ] = None,
    search: Annotated[
        bool,
        typer.Option(
            "--search", help="Search the recipe's space for the published table's protocol."
        ),
    ] = False,
    baseline: options.Baseline = None,
    predictions: Annotated[
        Path | None,
        typer.Option("--predictions", metavar="FILE", help="Write per-row test predictions (CSV)."),
    ] = None,
    save_models: Annotated[
        Path | None,
        typer.Option("--save-models", metavar="FOLDER", help="Write the trained networks (.npz)."),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", metavar="FILE", help="Plot the grid results."),
    ] = None,
    report_format: options.ReportFormat = "table",
    json: options.Json = False,
    set_: options.Set = None,
    seed: options.Seed = None,
    out: options.Out = Path("runs"),
    data_dir: options.DataDir = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not download missing data sets.")
    ] = False,
    device: options.Device = "auto",
    workers: options.Workers = None,
    backend: Annotated[
        Backend, typer.Option("--backend", help="Execution backend.")
    ] = Backend.processes,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            metavar="ADDRESS",
            help="Dask scheduler: tcp://HOST:PORT, or its JSON file.",
        ),
    ] = None,
    dry_run: options.DryRun = False,
    quiet: options.Quiet = False,
) -> None:
    """Cross-validate objectives on tabular data: ArcGrad's Table I, UCI sets or your CSV file.

    Trains folds x repeats small networks for every data set and objective, and prints the mean and
    standard deviation of their test accuracies with the published values. The runs folder keeps
    finished trials: the same command again resumes, or prints the table at once.
    """
    from marginctl.console.progress import CvProgress, log_lines
    from marginctl.crossval.dask_executor import open_dask_executor
    from marginctl.data.tabular.custom import read_csv_files
    from marginctl.experiments.uci_cv_session import Session
    from marginctl.experiments.uci_cv_trial import cost_of
    from marginctl.papers import published_means
    from marginctl.recipe import find_recipe
    from marginctl.reports.figures.uci_cv_grid import check_figure, draw
    from marginctl.reports.formats.output import print_report
    from marginctl.reports.tables.cv_table import cv_report, live_table
    from marginctl.results.compare_folds import chosen_baseline, compare
    from marginctl.results.cv_cells import Collector
    from marginctl.runs.atomic_io import check_outputs
    from marginctl.runs.run_dir import NETWORKS, PREDICTIONS
    from marginctl.utils.text import count_noun

    if search and (predictions or save_models or figure):
        raise RequestError(
            "--search: it keeps no predictions, networks or figures: run the setting that it finds"
        )
    if recipe is None:
        alone = (csv or train_csv) and not dataset
        recipe = "own-data" if alone else "arcgrad/table1"
    own = read_csv_files(csv or [], target or [], (train_csv, test_csv))
    keep = [PREDICTIONS] * (predictions is not None) + [NETWORKS] * (save_models is not None)
    if figure:
        keep += check_figure(figure, recipe, set_ or [], objective)
    session = Session.open(
        recipe,
        overrides=set_ or [],
        options={
            "datasets": ("--dataset", "all" if dataset and "all" in dataset else dataset),
            "objectives": ("--objective", objective),
            "protocol.folds": ("--folds", folds),
            "protocol.repeats": ("--repeats", repeats),
            "seeds": ("--seed", seed or None),
        },
        data_dir=data_dir,
        out=out,
        device=device,
        own=[data for data, _ in own],
        keep=keep,
        offline=offline or dry_run,
        on_fetch=lambda line: None if quiet else log_lines([line]),
    )
    if not quiet:
        log_lines(line for _, understood in own for line in understood.lines())
    if search:
        with open_dask_executor(backend, scheduler, workers, needed=True) as cluster:
            _search(session, workers, cluster, dry_run=dry_run, json=json, quiet=quiet)
        return
    compared_with = chosen_baseline(session.recipe.objectives, baseline)
    if not dry_run:
        read = [*(csv or []), *filter(None, (train_csv, test_csv)), find_recipe(recipe).path]
        check_outputs(predictions, save_models, read)
    todo = session.unfinished()
    with open_dask_executor(backend, scheduler, workers, needed=bool(todo)) as cluster:
        count = session.workers(workers, cluster) if todo else 1
        if dry_run:
            plan = session.plan(todo, count)
            if json:
                print_json({"schema": 1, "command": "uci-cv", "dry_run": plan})
            else:
                print(
                    f"{count_noun(plan['trials'], 'trial')}, {plan['to_do']} pending: "
                    f"{count_noun(plan['networks'], 'network')}, {count_noun(count, 'worker')}, "
                    f"about {plan['seconds']:.0f} s; runs folder: {plan['folder']}"
                )
            return
        rows = session.rows
        collector = Collector(
            list(rows) or [d.name for d in session.datasets],
            session.recipe.objectives,
            seeds=len(session.recipe.seeds),
            published=published_means(session.recipe.paper, session.recipe.table),
            skipped=session.skipped,
            settings={r: (t.dataset.name, t.setting.changed) for r, t in rows.items() if t.setting},
            row_of={trial.id: trial.row for trial in session.trials},
        )
        cost = cost_of(todo)
        with CvProgress(
            collector,
            cost,
            len(session.trials),
            lambda: live_table(collector.grid),
            quiet=quiet,
        ) as progress:
            for line in session.warnings:
                progress.message(line)
            outcome = session.execute(count, progress, cluster)

    if predictions:
        session.gather_predictions(predictions, outcome)
    if save_models:
        session.copy_networks(save_models, outcome)
    if figure and not outcome.failed:
        draw(session, collector.grid, figure)
        if not quiet:
            log_lines([f"wrote {figure}"])
    compared = compare(collector.grid, collector.records, compared_with)
    failed = list(outcome.failed.values())
    report = cv_report(collector.grid, session.recipe.protocol.model_dump(), compared, failed)
    print_report(report, "json" if json else report_format)
    if outcome.failed:
        raise MarginctlError(*outcome.failed.values())


def _search(
    session: "Session",
    workers: int | None,
    cluster: "DaskExecutor | None",
    *,
    dry_run: bool,
    json: bool,
    quiet: bool,
) -> None:
    from marginctl.reports.tables import search_table
    from marginctl.search.run_search import plan, published_cells, search
    from marginctl.utils.text import count_noun

    published = published_cells(session)
    count = session.workers(workers, cluster)
    planned = plan(session, count)
    line = (
        f"{planned.settings} of {count_noun(planned.grid, 'setting')}: at most "
        f"{count_noun(planned.networks, 'network')}, {count_noun(count, 'worker')}, about "
        f"{planned.seconds / 60:.0f} min; runs folder: {planned.folder}"
    )
    if dry_run:
        if json:
            document = {"schema": 1, "command": "uci-cv --search", "dry_run": asdict(planned)}
            print_json(document)
        else:
            print(line)
        return
    with search_table.Leaderboard(session.recipe, published, quiet=quiet) as board:
        if not quiet:
            board.message(line)
        result = search(session, published, workers=count, progress=board, cluster=cluster)
    names = [d.name for d in session.datasets]
    if json:
        print_json(search_table.as_json(session.recipe, result, published, names, session.skipped))
    else:
        search_table.print_result(session.recipe, result, published, names)
