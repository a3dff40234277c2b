"""The model of a cross-validation: its best objective by inner validation, refitted."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from marginctl.crossval.tabular_model import fit_model
from marginctl.experiments.records import CVResult
from marginctl.experiments.uci_cv_execution import Outcome
from marginctl.experiments.uci_cv_session import UciCvSession
from marginctl.experiments.uci_cv_trial import CVTrial
from marginctl.objectives.parsing import ParsedObjective
from marginctl.recipe.uci_cv import SklearnBaseline


def save_refitted(session: UciCvSession, outcome: Outcome, path: Path) -> str:
    """Tune the best objective on all training rows, train the chosen candidate and save it.

    Return what was saved, in one line.

    The test folds have no influence: the objective with the highest mean accuracy on the inner
    folds is the best one, the first of a tie. `UciCvSession.check_one_model` comes first.

    Raises:
        MarginctlError: the loss is not finite.
    """
    trial, inner_accuracy = _best([(t, outcome.results[t]) for t in session.trials])
    assert isinstance(trial.objective, ParsedObjective)
    model = fit_model(
        trial.dataset, trial.objective, trial.protocol, trial.seed, tuning=trial.tuning
    )
    model.save(path)
    chosen_by = "" if inner_accuracy is None else f", best inner accuracy {inner_accuracy:.1f} %"
    record = model.record
    return f"saved {record.chosen}{chosen_by}, refitted on all {record.rows} training rows: {path}"


def _best(results: Sequence[tuple[CVTrial, CVResult]]) -> tuple[CVTrial, float | None]:
    """Return a trial of the best objective, and its mean inner accuracy over the seeds."""
    trials: dict[str, CVTrial] = {}
    accuracies: dict[str, list[float]] = {}
    for trial, result in results:
        if isinstance(trial.objective, SklearnBaseline):
            continue
        trials.setdefault(str(trial.objective), trial)
        if result.inner_accuracy is not None:
            accuracies.setdefault(str(trial.objective), []).append(result.inner_accuracy)
    if not accuracies:
        return next(iter(trials.values())), None
    means = {name: float(np.mean(values)) for name, values in accuracies.items()}
    best = max(means, key=lambda name: means[name])
    return trials[best], means[best]
