"""Fixed scales that are a multiple of the kappa* of a finished run.

The temperature paper's Table 9 has such a row: 2 kappa*. The paper's text available to us does not
say which mean its kappa* is; ours is the mean over the test images after the last epoch, and over
the seeds of a folder.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marginctl.errors import RequestError
from marginctl.experiments import find_run
from marginctl.experiments.records import TrainingInfo
from marginctl.objectives.parsing import ParsedObjective
from marginctl.objectives.parts import ObjectiveSpec, ScaleSource, scale_source, with_scale_value
from marginctl.runs.base_record import parse_objective


@dataclass(frozen=True)
class ResolvedScale:
    """A scale and the run that it comes from."""

    source: ScaleSource
    kappa: float  # the mean kappa* of the run, without unit

    @property
    def value(self) -> float:
        """The scale, rounded as in an objective's name."""
        return float(f"{self.source.times * self.kappa:.12g}")

    def record(self) -> dict[str, Any]:
        """Return what run.json and result.json record as `scale_from`."""
        return {
            "from_run": self.source.source,
            "times": self.source.times,
            "kappa": self.kappa,
            "value": self.value,
        }

    def apply(self, objective: ParsedObjective) -> ParsedObjective:
        """Return the objective with this number instead of the run."""
        return ParsedObjective(with_scale_value(objective.spec, self.value))


def scales_from_folders(
    objectives: Sequence[ParsedObjective],
) -> dict[ParsedObjective, ResolvedScale]:
    """Return the scales of the objectives that take theirs from runs in a folder."""
    names = [str(objective) for objective in objectives]
    scales = {}
    for objective in objectives:
        source = scale_source(objective.spec)
        if source is not None and source.source not in names:
            scales[objective] = ResolvedScale(source, _mean_kappa(source.source))
    return scales


def resolved_spec(info: TrainingInfo) -> ObjectiveSpec:
    """Return the parts of a run's objective, with the number of a scale from another run.

    A tuned run has the options that it chose.
    """
    spec = parse_objective(info.chosen_objective or info.objective).spec
    return spec if info.scale_from is None else with_scale_value(spec, info.scale_from.value)


def _mean_kappa(folder: str) -> float:
    """Return the kappa* of a run, or the mean over the seeds of the runs in a folder."""
    key = f"scale fixed(from_run={folder})"
    folders = find_run.run_dirs(Path(folder))
    if not folders:
        raise RequestError(
            f"{key}: no trial is there: expected another objective of the recipe, or the folder of "
            "a finished trial of marginctl train"
        )
    kappas, cells = [], set()
    for path in folders:
        objective = parse_objective(find_run.load_run_info(path).objective)
        if objective.spec.scale.kind != "least-squares":
            continue
        try:
            _, result = find_run.load_trained_run(path)
        except find_run.UnusableRunError as error:
            raise RequestError(f"{key}: {path.name} {error}: train it to its end first") from None
        if result.kappa is None:
            raise RequestError(f"{key}: {path.name} has no kappa*: name another trial's folder")
        kappas.append(result.kappa)
        cells.add((result.row, result.objective))
    if len(cells) > 1:
        raise RequestError(
            f"{key}: holds kappa* of {len(cells)} settings or objectives, which have no mean: name "
            "the folder of one trial"
        )
    if not kappas:
        raise RequestError(
            f"{key}: has no kappa*: expected a trial of an objective with the least-squares scale, "
            "such as cosine-ls"
        )
    return statistics.fmean(kappas)
