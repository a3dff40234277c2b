"""Fixed scales that are so many times the kappa* of a finished trial: where it is, and its number.

The temperature paper's Table 9 has such a row: 2 kappa*. Which mean its kappa* is our text does not
say; ours is the mean over the test images after the last epoch, and over the seeds of a folder.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marginctl.errors import RequestError
from marginctl.experiments.records import TrainingInfo, TrainingResult, parse_training_info
from marginctl.experiments.reference_run import folders_of
from marginctl.objectives.parsing import ParsedObjective, parse
from marginctl.objectives.parts import ObjectiveSpec, ScaleSource, scale_source, with_scale_value
from marginctl.runs.records import parse_objective
from marginctl.runs.run_dir import parse_result
from marginctl.runs.safe_read import CorruptFileError, MissingFileError, read_text


@dataclass(frozen=True)
class ScaleFrom:
    """A scale and where it is from.

    Attributes:
        written: the source, as the objective names it, and how many times its kappa* the scale is.
        kappa: the mean kappa* of the source, no unit.
    """

    written: ScaleSource
    kappa: float

    @property
    def value(self) -> float:
        """The scale, as an objective's name has it."""
        return float(f"{self.written.times * self.kappa:.12g}")

    def record(self) -> dict[str, Any]:
        """What run.json and result.json say of it, as `scale_from`."""
        return {
            "from_run": self.written.source,
            "times": self.written.times,
            "kappa": self.kappa,
            "value": self.value,
        }

    def in_place(self, objective: ParsedObjective) -> ParsedObjective:
        """The objective with this number in place of the source."""
        return ParsedObjective(with_scale_value(objective.spec, self.value))


def by_path(objectives: Sequence[str]) -> dict[str, ScaleFrom]:
    """By objective, the scales of those among a recipe's that take one from runs in a folder.

    Raises:
        RequestError: no finished trial there, one that diverged or is damaged, one without kappa*,
            or kappa* of several settings.
    """
    return {
        objective: ScaleFrom(found, _mean_below(found.source))
        for objective in objectives
        if (found := scale_source(parse(objective).spec)) and found.source not in objectives
    }


def _mean_below(source: str) -> float:
    """The mean kappa* of a trial, or over the seeds of the trials in a folder that have it."""
    said = f"scale fixed(from_run={source})"
    folders = folders_of(Path(source))
    if not folders:
        raise RequestError(
            f"{said}: no trial is there: expected another objective of the recipe, or the folder "
            "of a finished trial of marginctl train"
        )
    kappas, cells = [], set()
    for folder in folders:
        run, record = _read(folder, said)
        if parse_objective(run.objective).spec.scale.kind != "least-squares":
            continue
        if record is None:
            raise RequestError(f"{said}: {folder.name} is not finished: train it to its end first")
        kappa = record.kappa
        if record.diverged is not None or kappa is None:
            why = "has no kappa*" if record.diverged is None else "diverged"
            raise RequestError(f"{said}: {folder.name} {why}: name the folder of another trial")
        kappas.append(kappa)
        cells.add((record.row, record.objective))
    if len(cells) > 1:
        raise RequestError(
            f"{said}: holds kappa* of {len(cells)} settings or objectives, which have no mean: "
            "name the folder of one trial"
        )
    if not kappas:
        raise RequestError(
            f"{said}: has no kappa*: expected a trial of an objective with the least-squares "
            "scale, such as cosine-ls"
        )
    return statistics.fmean(kappas)


def _read(folder: Path, said: str) -> tuple[TrainingInfo, TrainingResult | None]:
    """run.json and result.json of a trial; None for a result that is not there yet."""
    try:
        run = parse_training_info(read_text(folder / "run.json"))
    except CorruptFileError as error:
        raise RequestError(f"{said}: {folder.name}/run.json {error}: train it again") from None
    if run is None:
        raise RequestError(f"{said}: {folder.name} is no trial of marginctl train: name one")
    try:
        record = parse_result(read_text(folder / "result.json"), TrainingResult)
    except MissingFileError:
        return run, None
    except CorruptFileError as error:
        raise RequestError(f"{said}: {folder.name}/result.json {error}: train it again") from None
    return run, record


def spec_of(run: TrainingInfo) -> ObjectiveSpec:
    """Return the parts of a run's objective, with the number of a scale from another run."""
    spec = parse_objective(run.objective).spec
    return spec if run.scale_from is None else with_scale_value(spec, run.scale_from.value)
