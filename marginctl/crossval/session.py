"""One call of a cross-validation: its recipe, its data, its trials, and where they are kept."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from marginctl import recipe as recipes
from marginctl.crossval.execute import Listener, Outcome, execute, resolve_device, usable_cores
from marginctl.crossval.trial import Trial, expand, warnings
from marginctl.data.dataset import Dataset
from marginctl.data.uci import DataMissingError, default_data_dir, load
from marginctl.errors import RequestError
from marginctl.runs.store import TrialFolder


@dataclass(frozen=True)
class Session:
    """What a call of `uci-cv` asks for, checked; nothing has been trained yet."""

    name: str
    recipe: recipes.Recipe
    datasets: list[Dataset]
    skipped: list[tuple[str, str]]  # (data set, reason)
    trials: list[Trial]
    folder: Path
    device: str

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
    ) -> Self:
        """Reads the recipe and the data.

        Args:
            name: a shipped recipe or a file.
            overrides: from --set.
            options: dotted key -> (option, value); None where the option was not given.
            data_dir: None for the default one.
            out: the run store.
            device: as `resolve_device` takes it.

        Raises:
            RequestError: anything about the request is wrong.
        """
        source = recipes.find(name)
        given = {key: pair for key, pair in options.items() if pair[1] is not None}
        recipe = recipes.load(source, overrides, given)
        device = resolve_device(device)
        datasets: list[Dataset] = []
        skipped: list[tuple[str, str]] = []
        problems: list[str] = []
        for dataset in recipe.dataset_names:
            try:
                datasets.append(load(dataset, data_dir or default_data_dir()))
            except DataMissingError as error:
                if recipe.datasets == "all":
                    reason = f"no files in {(data_dir or default_data_dir()) / 'uci'}"
                    skipped.append((dataset, reason))
                else:
                    problems += error.lines
            except RequestError as error:
                problems += error.lines
        if problems:
            raise RequestError(*problems)
        trials = expand(recipe, datasets)
        return cls(source.name, recipe, datasets, skipped, trials, out / source.name, device)

    @property
    def warnings(self) -> list[str]:
        return warnings(self.datasets, self.recipe.protocol)

    def unfinished(self) -> list[Trial]:
        """The trials without a result that can be used."""
        return [t for t in self.trials if TrialFolder(self.folder / t.id).find().result is None]

    def workers(self, asked: int | None) -> int:
        """Processes for what is unfinished: one a core, and one alone on an accelerator."""
        if asked is not None:
            return asked
        return usable_cores() if self.device == "cpu" else 1

    def execute(self, workers: int, listener: Listener) -> Outcome:
        return execute(
            self.trials,
            self.folder,
            workers=workers,
            device=self.device,
            listener=listener,
            recipe={"name": self.name, **self.recipe.model_dump(exclude={"about"})},
        )
