"""The trained networks of a `transfer`: each named one, and every finished trial of a folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marginctl.errors import RequestError
from marginctl.experiments import source_model
from marginctl.experiments.find_run import run_of
from marginctl.experiments.records import PROBE_OBJECTIVE, evaluation_recipe
from marginctl.experiments.reference_run import (
    OtherCommandError,
    UnfitError,
    read_trained,
    trial_in,
)
from marginctl.experiments.training_trial import row_of
from marginctl.models.pretrained import is_weights_name
from marginctl.training.checkpoint import FOLDER


@dataclass(frozen=True, eq=False)
class Origin(source_model.Start):
    """A trained network, and what tells it from others.

    Attributes:
        row: its data, model and settings, or the name of its weights: all but objective and seed.
        trained_with: its objective, canonical.
        seed: that it was trained with; None for published weights.
    """

    row: str
    trained_with: str
    seed: int | None

    def record(self) -> dict[str, Any]:
        """What run.json and a result say of it."""
        own = {"row": self.row, "objective": self.trained_with, "seed": self.seed}
        return super().record() | own


def origins(written: Iterable[str]) -> tuple[list[Origin], list[str]]:
    """The networks that `starts` names, each once, and a line for each trial that is left out.

    Args:
        written: trials' folders, folders with trials at any depth, checkpoints, or weights.

    Raises:
        RequestError: as `start.read`, or a folder without a finished trial.
    """
    found: dict[tuple[str, str, str], Origin] = {}
    said: list[str] = []
    for one in written:
        names, left_out = _each(one)
        said += left_out
        for name in names:
            origin = _read(name)
            found.setdefault((origin.weights, origin.row, origin.trained_with), origin)
    return list(found.values()), said


def _each(written: str) -> tuple[list[str], list[str]]:
    path = Path(written)
    if is_weights_name(written) or not path.is_dir() or _is_trial(path):
        return [written], []
    names, said = [], []
    for folder in sorted(run.parent for run in path.rglob("run.json")):
        try:
            read_trained(folder, without=("transfer",))
            names.append(str(folder))
        except OtherCommandError:  # a store may hold them beside
            continue
        except UnfitError as error:
            said.append(f"source_models = {folder}: {error}: left out")
    if not names:
        raise RequestError(
            *said,
            f"source_models = {written}: no finished trial is there: expected "
            "folders of marginctl train "
            "or cosify: train one first",
        )
    return names, said


def _is_trial(folder: Path) -> bool:
    return (folder / "run.json").exists() or (folder / "result.json").exists()


def _read(written: str) -> Origin:
    found = source_model.read(written)
    path = Path(written)
    if is_weights_name(written):
        return Origin(**vars(found), row=written, trained_with=PROBE_OBJECTIVE, seed=None)
    if path.is_dir():
        path = trial_in(path, f"source_models = {written}")
    folder = path.parent.parent if path.parent.name == FOLDER else path
    run = run_of(folder.absolute())
    row = row_of(evaluation_recipe(run), run.setting)
    return Origin(**vars(found), row=row, trained_with=run.objective, seed=run.seed)
