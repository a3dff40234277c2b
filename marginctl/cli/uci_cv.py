"""marginctl uci-cv."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from marginctl.cli import common_options, completion
from marginctl.cli.common_options import argument, flag, integer, option, print_json
from marginctl.errors import MarginctlError, RequestError
from marginctl.utils.text import count_noun

if TYPE_CHECKING:
    from marginctl.crossval.dask_executor import DaskExecutor
    from marginctl.data.tabular.dataset import TabularDataset
    from marginctl.experiments.uci_cv_session import UciCvSession


def command(
    recipe: Annotated[
        str | None,
        argument(
            "RECIPE",
            "Shipped recipe or file (default: arcgrad/table1; own-data with --csv).",
            complete=completion.recipe,
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        option("NAME", "UCI data set, or all; repeatable.", complete=completion.uci_set),
    ] = None,
    objective: common_options.Objectives = None,
    csv: Annotated[list[Path] | None, option("FILE", "Your table; repeatable.")] = None,
    target: Annotated[
        list[str] | None, option("COLUMN", "Label column: one for all files, or one per file.")
    ] = None,
    train_csv: Annotated[Path | None, option("FILE", "Training CSV; requires --test-csv.")] = None,
    test_csv: Annotated[
        Path | None, option("FILE", "Held-out test CSV; requires --train-csv.")
    ] = None,
    missing: Annotated[
        Literal["impute", "drop"],
        typer.Option("--missing", help="Impute missing values inside the folds, or drop rows."),
    ] = "impute",
    no_header: common_options.NoHeader = False,
    groups: Annotated[
        str | None,
        option("COLUMN", "Keep rows with the same value, such as a patient, in one fold."),
    ] = None,
    folds: Annotated[int | None, option("N", "Folds per repeat.", integer(2))] = None,
    repeats: Annotated[int | None, option("N", "Repeats, each with new folds.", integer(1))] = None,
    search: Annotated[
        bool, flag("--search", "Search the recipe's space for the published table's protocol.")
    ] = False,
    tune: Annotated[
        bool | None,
        typer.Option(
            help="Choose learning rate and options of every objective inside the training rows "
            "(default: as the recipe says; own data are tuned)."
        ),
    ] = None,
    baseline: common_options.Baseline = None,
    metric: common_options.Metric = "accuracy",
    predictions: Annotated[
        Path | None, option("FILE", "Write per-row test predictions (CSV).")
    ] = None,
    save_model: Annotated[
        Path | None,
        option(
            "FILE", "Refit the best objective by inner validation on all rows; save it for predict."
        ),
    ] = None,
    figure: Annotated[Path | None, option("FILE", "Plot the grid results.")] = None,
    report_format: common_options.ReportFormat = "table",
    json: common_options.Json = False,
    set_: common_options.Set = None,
    seed: common_options.Seed = None,
    out: common_options.Out = common_options.RUNS,
    data_dir: common_options.DataDir = None,
    offline: Annotated[bool, flag("--offline", "Do not download missing data sets.")] = False,
    device: common_options.Device = "auto",
    workers: common_options.Workers = None,
    backend: Annotated[
        Literal["processes", "dask"], typer.Option("--backend", help="Execution backend.")
    ] = "processes",
    scheduler: Annotated[
        str | None, option("ADDRESS", "Dask scheduler: tcp://HOST:PORT, or its JSON file.")
    ] = None,
    dry_run: common_options.DryRun = False,
    quiet: common_options.Quiet = False,
) -> None:
    """Cross-validate objectives on tabular data: ArcGrad's Table I, UCI sets or your CSV file.

    Trains folds x repeats small networks for every data set and objective, and prints the mean and
    standard deviation of their test accuracies with the published values. The runs folder keeps
    finished trials: the same command again resumes, or prints the table at once.
    """
    from marginctl.console.progress import CvProgress, log_lines
    from marginctl.crossval.dask_executor import open_dask_executor
    from marginctl.experiments.request import Request
    from marginctl.experiments.uci_cv_session import prepare_uci_cv
    from marginctl.experiments.uci_cv_trial import data_warnings, total_cost
    from marginctl.metrics.registry import check_metric
    from marginctl.objectives.parsing import parse
    from marginctl.papers import published_means
    from marginctl.recipe.load import find_recipe
    from marginctl.reports.figures.uci_cv_grid import check_figure, check_objectives, draw
    from marginctl.reports.formats.output import print_report, print_sentences
    from marginctl.reports.tables.cv_table import cv_report, live_table
    from marginctl.results.answers import fold_answers
    from marginctl.results.compare import compare_folds, resolve_baseline
    from marginctl.results.cv_cells import Grid
    from marginctl.runs.atomic_io import check_outputs
    from marginctl.runs.run_dir import PREDICTIONS

    check_metric(metric)
    if search and (predictions or save_model or figure):
        raise RequestError(
            "--search: writes no predictions, models or figures: leave these options out, and "
            "run the setting that it finds"
        )
    if search and tune is not None:
        raise RequestError(
            "--search: expected no --tune or --no-tune: a search tries its own space"
        )
    if recipe is None:
        only_csv = (csv or train_csv) and not dataset
        recipe = "own-data" if only_csv else "arcgrad/table1"
    if groups and not (csv or train_csv):
        raise RequestError(f"--groups {groups}: is a column of --csv: name your table")
    tables: list[TabularDataset] = []
    if csv or target or train_csv or test_csv:  # UCI sets can do without pandas
        from marginctl.data.tabular.custom import ReadOptions, read_tables

        reading = ReadOptions(missing=missing, header=not no_header, groups=groups)
        tables = read_tables(csv or [], target or [], (train_csv, test_csv), reading)
    outputs = [PREDICTIONS] if predictions else []
    if figure:
        outputs += check_figure(figure, recipe, set_ or [])
    options = {
        "datasets": ("--dataset", "all" if dataset and "all" in dataset else dataset),
        "objectives": ("--objective", objective),
        "protocol.folds": ("--folds", folds),
        "protocol.repeats": ("--repeats", repeats),
        "seeds": ("--seed", seed or None),
    }
    session = prepare_uci_cv(
        Request(recipe, options, set_ or [], data_dir, out, device, tune),
        tables,
        frozenset(outputs),
        offline=offline or dry_run,
        on_fetch=lambda line: None if quiet else log_lines([line]),
    )
    if metric != "accuracy" and not session.recipe.measured:
        raise RequestError(
            f"--metric {metric}: {recipe} measures the accuracy alone, as its paper does: expected "
            "--metric accuracy"
        )
    if figure:
        check_objectives(session)
    if save_model:
        session.check_one_model()
    if tables and not quiet:
        from marginctl.reports.data_summary import table_lines

        log_lines(line for table in tables if table.summary for line in table_lines(table.summary))
    if search:
        with open_dask_executor(backend, scheduler, workers, needed=True) as cluster:
            printed_as = "json" if json else report_format
            _search(session, workers, cluster, printed_as, dry_run=dry_run, quiet=quiet)
        return
    compared_with = resolve_baseline(
        list(map(str, session.recipe.objectives)), parse(baseline) if baseline else None
    )
    if not dry_run:
        inputs = [*(csv or []), *filter(None, (train_csv, test_csv)), find_recipe(recipe).path]
        outputs_by_option = {"--save-model": save_model, "--figure": figure}
        check_outputs({"--predictions": predictions, **outputs_by_option}, inputs)
    pending = session.unfinished()
    with open_dask_executor(backend, scheduler, workers, needed=bool(pending)) as cluster:
        count = session.workers(workers, cluster) if pending else 1
        if dry_run:
            plan = session.estimate(pending, count)
            if json:
                print_json({"schema": 1, "command": "uci-cv", "dry_run": plan})
            else:
                line = (
                    f"{count_noun(plan['trials'], 'trial')}, {plan['to_do']} pending: "
                    f"{count_noun(plan['networks'], 'network')}, "
                    f"{count_noun(plan['workers'], 'worker')}, about {plan['seconds']:.0f} s; "
                    f"runs folder: {plan['folder']}"
                )
                print_sentences([line])
                common_options.print_same_without_dry_run()
            return
        rows = session.rows
        grid = Grid(
            list(rows) or [d.name for d in session.datasets],
            [str(objective) for objective in session.recipe.objectives],
            published_means(session.recipe.paper, session.recipe.table),
            len(session.recipe.seeds),
            skipped=session.skipped,
            settings={r: (t.dataset.name, t.setting.changed) for r, t in rows.items() if t.setting},
            row_of={trial.id: trial.row for trial in session.trials},
            baselines=session.recipe.baselines,
            metric=metric,
        )
        with CvProgress(
            grid, total_cost(pending), len(session.trials), lambda: live_table(grid), quiet=quiet
        ) as progress:
            for line in data_warnings(session.datasets, session.recipe.protocol):
                progress.message(line)
            outcome = session.run(count, progress, cluster)
    comparison = compare_folds(grid, compared_with)
    failed = list(outcome.failed.values())
    answers = []
    if session.recipe.measured and not session.recipe.grid:
        answers = fold_answers(grid, comparison)
    protocol = session.recipe.protocol.model_dump()
    report = cv_report(grid, protocol, comparison, failed, answers)
    print_report(report, "json" if json else report_format)
    if predictions:
        session.gather_predictions(predictions, outcome)
    if save_model and not outcome.failed:
        line = session.save_model(outcome, save_model)
        if not quiet:
            log_lines([line])
    if figure and not outcome.failed:
        draw(session, grid, figure)
        if not quiet:
            log_lines([f"wrote {figure}"])
    if failed:
        raise MarginctlError(*failed)
    common_options.print_next_step("report", session.folder)


def _search(
    session: "UciCvSession",
    workers: int | None,
    cluster: "DaskExecutor | None",
    report_format: str,
    *,
    dry_run: bool,
    quiet: bool,
) -> None:
    from marginctl.reports.formats.output import print_report, print_sentences
    from marginctl.reports.tables import search_table
    from marginctl.search.successive_halving import plan, published_cells, search

    published = published_cells(session)
    count = session.workers(workers, cluster)
    planned = plan(session, count)
    minutes = planned.seconds / 60
    duration = f"{planned.seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min"
    line = (
        f"{planned.settings} of {count_noun(planned.grid, 'setting')}: at most "
        f"{count_noun(planned.networks, 'network')}, {count_noun(count, 'worker')}, about "
        f"{duration}; runs folder: {planned.folder}"
    )
    if dry_run:
        if report_format == "json":
            document = {key: v for key, v in asdict(planned).items() if key != "costs"}
            print_json({"schema": 1, "command": "uci-cv --search", "dry_run": document})
        else:
            print_sentences([line])
        return
    with search_table.Leaderboard(session.recipe, published, planned.costs, quiet=quiet) as board:
        if not quiet:
            board.message(line)
        result = search(
            session, published, workers=count, callback=board, begin=board.begin, cluster=cluster
        )
    report = search_table.search_report(
        session.recipe, result, published, [d.name for d in session.datasets], session.skipped
    )
    print_report(report, report_format)
