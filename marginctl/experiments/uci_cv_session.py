"""The session of `uci-cv`: its recipe, data and trials."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from marginctl.crossval.dask_executor import DaskExecutor
from marginctl.crossval.executors import StackExecutor
from marginctl.data.fetch import NO_NETWORK, fetch_datasets
from marginctl.data.paths import MissingDataError
from marginctl.data.tabular.dataset import TabularDataset
from marginctl.data.tabular.uci import is_missing, load_uci
from marginctl.errors import RequestError
from marginctl.experiments import uci_cv_trial
from marginctl.experiments.records import CVResult
from marginctl.experiments.request import Request
from marginctl.experiments.tasks import load_task_recipe
from marginctl.experiments.uci_cv_execution import Callback, CVExecution, Outcome
from marginctl.objectives.parsing import ParsedObjective
from marginctl.objectives.parts import plugin_origins
from marginctl.recipe.load import find_recipe
from marginctl.recipe.uci_cv import UciCvRecipe
from marginctl.runs.atomic_io import write_output
from marginctl.runs.base_record import first_problem
from marginctl.runs.run_dir import PREDICTIONS, RunDir
from marginctl.utils.device import resolve_device, usable_cores


@dataclass(frozen=True)
class UciCvSession:
    """A checked `uci-cv` command; nothing has been trained yet."""

    name: str
    recipe: UciCvRecipe
    datasets: list[TabularDataset]
    skipped: list[tuple[str, str]]
    trials: list[uci_cv_trial.CVTrial]
    folder: Path
    device: str
    files: frozenset[str] = frozenset()  # that each trial must have besides its result

    @property
    def rows(self) -> dict[str, uci_cv_trial.CVTrial]:
        """The rows of a grid's table, each with one of its trials."""
        rows: dict[str, uci_cv_trial.CVTrial] = {}
        for trial in self.trials if self.recipe.grid else []:
            rows.setdefault(trial.row, trial)
        return rows

    def unfinished(self) -> list[uci_cv_trial.CVTrial]:
        return [
            t
            for t in self.trials
            if self.run_dir(t).load_result(CVResult, t.files(self.files)).result is None
        ]

    def estimate(self, pending: Sequence[uci_cv_trial.CVTrial], workers: int) -> dict[str, Any]:
        """Return the document of --dry-run: the pending trials and their rough time."""
        return {
            "trials": len(self.trials),
            "to_do": len(pending),
            "networks": sum(trial.trained_networks for trial in pending),
            "workers": workers,
            "seconds": uci_cv_trial.cost_seconds(uci_cv_trial.total_cost(pending), workers),
            "folder": str(self.folder),
        }

    def run_dir(self, trial: uci_cv_trial.CVTrial) -> RunDir:
        return RunDir(self.folder / trial.id)

    def gather_predictions(self, target: Path, outcome: Outcome) -> None:
        """Write the test predictions of all finished trials into one CSV file."""
        parts: list[str] = []
        for trial in (t for t in self.trials if t in outcome.results):
            text = (self.run_dir(trial).path / PREDICTIONS).read_text("utf-8")
            if trial.setting is not None and trial.setting.changed:
                heading, *lines = text.splitlines()
                setting = f'"{trial.setting}"'
                text = "\n".join([f"{heading},setting", *(f"{s},{setting}" for s in lines), ""])
            parts.append(text if not parts else text.partition("\n")[2])
        if parts:
            write_output(target, "".join(parts))

    def check_one_model(self) -> None:
        """Raise RequestError unless inner validation can choose one model to save."""
        rows = {trial.row for trial in self.trials}
        if len(rows) != 1:
            raise RequestError(
                f"--save-model: {len(rows)} rows of a table: expected one data set and no grid: "
                "name one with --csv or --dataset"
            )
        objectives = len(set(self.recipe.objectives))
        if objectives > 1 and self.recipe.tune is None:
            raise RequestError(
                f"--save-model: {objectives} objectives without tuning: inner folds choose the "
                "best one: add --tune, or name one --objective"
            )

    def save_model(self, outcome: Outcome, path: Path) -> str:
        """Tune the best objective on all training rows, train the chosen candidate and save it.

        Return what was saved, in one line.

        The test folds have no influence: the objective with the highest mean accuracy on the inner
        folds is the best one, the first of a tie. `check_one_model` comes first.

        Raises:
            MarginctlError: the loss is not finite.
        """
        from marginctl.crossval.tabular_model import fit_model  # which imports torch

        trials: dict[ParsedObjective, uci_cv_trial.CVTrial] = {}
        accuracies = defaultdict[ParsedObjective, list[float]](list)
        for trial in self.trials:
            if isinstance(trial.objective, ParsedObjective):
                trials.setdefault(trial.objective, trial)
                accuracy = outcome.results[trial].inner_accuracy
                if accuracy is not None:
                    accuracies[trial.objective].append(accuracy)
        means = {objective: float(np.mean(a)) for objective, a in accuracies.items()}
        best = max(means, key=lambda o: means[o]) if means else next(iter(trials))
        trial = trials[best]
        model = fit_model(trial.dataset, best, trial.protocol, trial.seed, tuning=trial.tuning)
        model.save(path)
        chosen_by = f", best inner accuracy {means[best]:.1f} %" if means else ""
        record = model.record
        return (
            f"saved {record.chosen}{chosen_by}, refitted on all {record.rows} training rows: {path}"
        )

    def workers(self, requested: int | None, cluster: DaskExecutor | None = None) -> int:
        """Return the number of workers; default: one per core, or one on an accelerator."""
        if cluster is not None:
            return max(1, cluster.num_workers())
        if requested is not None:
            return requested
        return usable_cores() if self.device == "cpu" else 1

    def run(
        self, workers: int, callback: Callback, cluster: StackExecutor | None = None
    ) -> Outcome:
        """Train the unfinished trials, as `CVExecution.run`."""
        recipe = {"name": self.name, **self.recipe.model_dump(exclude={"about"})}
        execution = CVExecution(self.folder, self.device, callback, recipe, self.files)
        return execution.run(self.trials, workers, cluster)


def prepare_uci_cv(
    request: Request,
    csv_datasets: Sequence[TabularDataset],
    files: frozenset[str],
    *,
    offline: bool,
    on_fetch: Callable[[str], None],
) -> UciCvSession:
    """Read and check the recipe and the data of a `uci-cv` command.

    A recipe without a section `tune` is tuned by the default one if the request says so.

    Args:
        csv_datasets: the user's data sets; used alone unless UCI data sets are named as well.
        files: that each trial must have besides its result.
    """
    assert request.recipe is not None
    file, tune = find_recipe(request.recipe), request.tune
    request.check_out()
    given = {key: pair for key, pair in request.options.items() if pair[1] is not None}
    overrides = [*request.overrides, *(["tune=null"] if tune is False else [])]
    recipe = load_task_recipe(file, UciCvRecipe, overrides, given)
    if tune and recipe.tune is None:
        try:
            recipe = UciCvRecipe.model_validate({**recipe.model_dump(), "tune": {}})
        except ValidationError as error:
            raise RequestError(f"--tune: {first_problem(error)}") from None
    explicit = "objectives" in given or any(o.startswith("objectives") for o in overrides)
    if recipe.tune is None and recipe.untuned_objectives and not explicit:
        recipe = recipe.model_copy(update={"objectives": recipe.untuned_objectives})
    device = resolve_device(request.device)
    named = "datasets" in given or recipe.datasets != "all"
    names = recipe.dataset_names if named or not csv_datasets else []
    own_fixed = csv_datasets and all(d.fixed_test is not None for d in csv_datasets)
    if "protocol.folds" in given and own_fixed and not names:
        raise RequestError(
            f"--folds {recipe.protocol.folds}: a fixed test set has no folds: leave it out, or "
            "give one file with --csv"
        )
    duplicates = [dataset.name for dataset in csv_datasets if dataset.name in names]
    if duplicates:
        raise RequestError(f"--csv {duplicates[0]}: a data set has that name: rename the file")
    folder = request.data_folder
    reasons: dict[str, str] = {}
    missing = [dataset for dataset in names if is_missing(dataset, folder)]
    if missing and not offline:
        on_fetch(f"fetching {len(missing)} data sets into {folder}")
        reasons = fetch_datasets(missing, folder)
    datasets, skipped = _load_datasets(names, folder, reasons, skip=recipe.datasets == "all")
    run_folder = file.name
    if csv_datasets:
        datasets += csv_datasets
        recipe = recipe.model_copy(update={"datasets": [dataset.name for dataset in datasets]})
        if not names:  # no row of the published table is left
            recipe = recipe.model_copy(update={"paper": None, "table": None})
            run_folder = "own-data" if file.name == "own-data" else f"own-data/{file.name}"
    trials = uci_cv_trial.expand_cv_trials(recipe, datasets, device)
    for spec in (objective.spec for objective in recipe.objectives):
        if plugin_origins(spec):
            from marginctl.objectives.functional import check_plugin_parts

            check_plugin_parts(spec, 3)
    return UciCvSession(
        run_folder, recipe, datasets, skipped, trials, request.out / run_folder, device, files
    )


def _load_datasets(
    names: Iterable[str], folder: Path, reasons: Mapping[str, str], *, skip: bool
) -> tuple[list[TabularDataset], list[tuple[str, str]]]:
    """Load UCI data sets; return them and those that are skipped, with the reason."""
    datasets: list[TabularDataset] = []
    skipped: list[tuple[str, str]] = []
    problems: list[str] = []
    for name in names:
        try:
            datasets.append(load_uci(name, folder))
        except MissingDataError as error:
            reason = _fetch_failure(name, reasons)
            if skip:
                advice = "run marginctl data fetch uci, or put the original UCI files there"
                skipped.append((name, f"no files in {folder / 'uci'}, {reason}: {advice}"))
            else:
                problems += [f"{line}; {reason}" for line in error.lines]
        except RequestError as error:
            problems += error.lines
    if problems:
        raise RequestError(*problems)
    return datasets, skipped


def _fetch_failure(name: str, reasons: Mapping[str, str]) -> str:
    if name not in reasons:
        return "not fetched"
    if all(NO_NETWORK.search(reason) for reason in reasons.values()):
        return "could not be fetched (no network)"  # one reason for all, not one a host
    return f"could not be fetched ({reasons[name]})"
