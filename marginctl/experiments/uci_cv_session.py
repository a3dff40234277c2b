"""One call of a cross-validation: its recipe, its data, its trials, and where they are kept."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from marginctl import recipe as recipes
from marginctl.crossval.dask_executor import DaskExecutor
from marginctl.data.fetch import NO_NETWORK, fetch_datasets
from marginctl.data.paths import MissingDataError, default_data_dir
from marginctl.data.tabular.dataset import TabularDataset
from marginctl.data.tabular.uci import is_missing, load_uci
from marginctl.errors import RequestError
from marginctl.experiments.records import CVResult
from marginctl.experiments.tasks import load_task_recipe
from marginctl.experiments.uci_cv_execution import Listener, Outcome, execute
from marginctl.experiments.uci_cv_trial import Trial, estimated_seconds, expand, warnings
from marginctl.objectives.parsing import parse
from marginctl.objectives.parts import plugin_origins
from marginctl.runs.atomic_io import write_bytes_atomically, write_output
from marginctl.runs.run_dir import NETWORKS, PREDICTIONS, RunDir
from marginctl.utils.device import resolve_device, usable_cores


@dataclass(frozen=True)
class Session:
    """What a call of `uci-cv` asks for, checked; nothing has been trained yet."""

    name: str
    recipe: recipes.UciCvRecipe
    datasets: list[TabularDataset]
    skipped: list[tuple[str, str]]  # (data set, reason)
    trials: list[Trial]
    folder: Path
    device: str
    keep: frozenset[str] = frozenset()

    @classmethod
    def open(
        cls,
        name: str,
        *,
        overrides: Iterable[str],
        options: Mapping[str, tuple[str, Any]],
        data_dir: Path | None,
        out: Path,
        device: str,
        own: Sequence[TabularDataset] = (),
        keep: Iterable[str] = (),
        offline: bool = False,
        on_fetch: Callable[[str], None] = lambda line: None,
    ) -> Self:
        """Reads the recipe and the data.

        Args:
            name: a shipped recipe or a file.
            overrides: from --set.
            options: dotted key -> (option, value); None where the option was not given.
            data_dir: None for the default one.
            out: the run store.
            device: as `resolve_device` takes it.
            own: the user's data sets; alone, unless data sets are named beside them.
            keep: files that each trial must have beside its result.
            offline: whether data sets that are not there are left unfetched.
            on_fetch: hears that something is fetched.

        Raises:
            RequestError: anything about the request is wrong.
        """
        source = recipes.find_recipe(name)
        if out.exists() and not out.is_dir():
            raise RequestError(f"--out {out}: is a file: name a folder")
        given = {key: pair for key, pair in options.items() if pair[1] is not None}
        recipe = load_task_recipe(source, recipes.UciCvRecipe, overrides, given)
        device = resolve_device(device)
        datasets: list[TabularDataset] = []
        skipped: list[tuple[str, str]] = []
        problems: list[str] = []
        asked = "datasets" in given or recipe.datasets != "all"
        named = [] if own and not asked else recipe.dataset_names
        twice = [d.name for d in own if d.name in named]
        if twice:
            raise RequestError(f"--csv {twice[0]}: a data set has that name: rename the file")
        if recipe.tuning is not None and NETWORKS in keep:
            raise RequestError(
                "--save-models: a tuned recipe's networks have different protocols: leave it out"
            )
        folder = data_dir or default_data_dir()
        absent = [name for name in named if is_missing(name, folder)]
        reasons: dict[str, str] = {}
        if absent and not offline:
            on_fetch(f"fetching {len(absent)} data sets into {folder}")
            reasons = fetch_datasets(absent, folder)
        for dataset in named:
            try:
                datasets.append(load_uci(dataset, folder))
            except MissingDataError as error:
                why = _why_not_fetched(dataset, reasons)
                if recipe.datasets == "all":
                    how = "run marginctl data fetch uci, or put the original UCI files there"
                    skipped.append((dataset, f"no files in {folder / 'uci'}, {why}: {how}"))
                else:
                    problems += [f"{line}; {why}" for line in error.lines]
            except RequestError as error:
                problems += error.lines
        if problems:
            raise RequestError(*problems)
        stored_as = source.name
        if own:
            datasets += own
            names = [d.name for d in datasets]
            recipe = recipe.model_copy(update={"datasets": names})
            if not named:  # nothing of the published table is left
                recipe = recipe.model_copy(update={"paper": None, "table": None})
                stored_as = "own-data" if source.name == "own-data" else f"own-data/{source.name}"
        for written in recipe.objectives:
            if plugin_origins(parse(written).spec):
                from marginctl.objectives.functional import check_plugin_parts

                check_plugin_parts(parse(written).spec, 3)
        return cls(
            stored_as,
            recipe,
            datasets,
            skipped,
            expand(recipe, datasets),
            out / stored_as,
            device,
            frozenset(keep),
        )

    @property
    def warnings(self) -> list[str]:
        return warnings(self.datasets, self.recipe.protocol)

    @property
    def rows(self) -> dict[str, Trial]:
        """The rows of the table, each with one of its trials."""
        found: dict[str, Trial] = {}
        for trial in self.trials if self.recipe.grid else []:
            found.setdefault(trial.row, trial)
        return found

    def networks_of(self, trial: Trial) -> Path:
        """Where a trial's networks are kept."""
        return self._folder_of(trial).path / NETWORKS

    def with_trials(self, trials: list[Trial]) -> "Session":
        """The same call with other trials."""
        return replace(self, trials=trials)

    def unfinished(self) -> list[Trial]:
        """The trials without a result that can be used."""
        return [
            t
            for t in self.trials
            if self._folder_of(t).load_result(CVResult, self.keep).result is None
        ]

    def plan(self, todo: Sequence[Trial], workers: int) -> dict[str, Any]:
        """What `execute` would do, and about how long it would take: for --dry-run."""
        return {
            "trials": len(self.trials),
            "to_do": len(todo),
            "networks": sum(trial.trained for trial in todo),
            "workers": workers,
            "seconds": estimated_seconds(todo, workers),
            "folder": str(self.folder),
        }

    def _folder_of(self, trial: Trial) -> RunDir:
        return RunDir(self.folder / trial.id)

    def gather_predictions(self, target: Path, outcome: Outcome) -> None:
        """Writes the test predictions of all finished trials into one CSV file.

        Raises:
            StorageError: the file cannot be written.
        """
        parts: list[str] = []
        for trial in (t for t in self.trials if t in outcome.records):
            text = (self._folder_of(trial).path / PREDICTIONS).read_text("utf-8")
            if trial.setting is not None and trial.setting.changed:  # of a grid
                names, *lines = text.splitlines()
                own = f'"{trial.setting}"'
                text = "\n".join([f"{names},setting", *(f"{s},{own}" for s in lines), ""])
            parts.append(text if not parts else text.partition("\n")[2])
        if parts:
            write_output(target, "".join(parts))

    def copy_networks(self, folder: Path, outcome: Outcome) -> None:
        """Copies each finished trial's networks to `<folder>/<trial id>.npz`.

        Raises:
            StorageError: a file cannot be written.
        """
        for trial in outcome.records:
            content = self.networks_of(trial).read_bytes()
            write_bytes_atomically(folder / f"{trial.id}.npz", content)

    def workers(self, asked: int | None, cluster: DaskExecutor | None = None) -> int:
        """Processes for what is unfinished: one a core, and one alone on an accelerator."""
        if cluster is not None:
            return max(1, cluster.num_workers())
        if asked is not None:
            return asked
        return usable_cores() if self.device == "cpu" else 1

    def execute(
        self, workers: int, listener: Listener, cluster: DaskExecutor | None = None
    ) -> Outcome:
        return execute(
            self.trials,
            self.folder,
            workers=workers,
            device=self.device,
            listener=listener,
            recipe={"name": self.name, **self.recipe.model_dump(exclude={"about"})},
            keep=self.keep,
            cluster=cluster,
        )


def _why_not_fetched(name: str, reasons: Mapping[str, str]) -> str:
    if name not in reasons:
        return "not fetched"
    if all(NO_NETWORK.search(reason) for reason in reasons.values()):
        return "could not be fetched (no network)"  # one reason for all, not one a host
    return f"could not be fetched ({reasons[name]})"
