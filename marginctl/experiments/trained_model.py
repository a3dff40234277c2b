"""The model of a training: its best trial by validation, for `--save-model`."""

import math
from collections.abc import Mapping

from marginctl.errors import RequestError
from marginctl.experiments.find_run import load_checkpoint
from marginctl.experiments.records import TrainingResult, TransferResult
from marginctl.experiments.source_scale import resolved_spec
from marginctl.experiments.training_session import Session
from marginctl.experiments.training_trial import Trial
from marginctl.experiments.transfer_session import TransferSession, TransferTrial
from marginctl.objectives.parsing import ParsedObjective
from marginctl.training.image_model import ImageModel, ImageRecord


def check_one_model(session: Session) -> None:
    """Raise RequestError unless a validation part, or a single objective, leaves one model."""
    trials = [trial for trial in session.trials if not trial.is_baseline]
    settings = {(trial.row, trial.objective) for trial in trials}
    validated = all(trial.is_validated(session.images[trial.data]) for trial in trials)
    if len(settings) > 1 and not validated:
        what = "objectives" if len({row for row, _ in settings}) == 1 else "settings"
        raise RequestError(
            f"--save-model: {len(settings)} {what} without a validation part, which chooses the "
            "best one: set data.val_fraction, or name one --objective"
        )


def trained_model(session: Session, results: Mapping[Trial, TrainingResult]) -> ImageModel:
    """Return the network of the trial with the highest validation accuracy, then the lowest NLL.

    A probe is measured on the part of the training images that chose its penalty. Without a
    validation part it is the network of the first seed, after the last epoch.

    Raises:
        RequestError: every trial diverged, or its checkpoint is not there.
    """
    trials = [trial for trial in session.trials if not trial.is_baseline]
    trained = [t for t in trials if t in results and results[t].diverged is None]
    if not trained:
        raise RequestError("--save-model: no trial was trained to its end: there is no network")
    validated = {t: v for t in trained if (v := _validation(results[t])) is not None}
    if validated:
        trial = max(validated, key=lambda t: validated[t])
        chosen = f"{trial}: best validation accuracy {validated[trial][0]:.1f} %"
    else:
        trial, chosen = trained[0], f"{trained[0]}: last epoch, chosen without validation"
    if isinstance(trial, TransferTrial) and trial.is_probe:
        assert isinstance(session, TransferSession)
        return session.probe_model(trial, chosen)
    kind = "best" if validated else "last"
    loaded = load_checkpoint(session.run_dir(trial).path, kind)
    mean, std = loaded.state["normalization"]
    data = loaded.recipe.data
    record = ImageRecord(
        data=data.name,
        model=str(loaded.recipe.model),
        image_size=loaded.state["image_size"],
        mean=list(mean),
        std=list(std),
        resizing=data.test_resizing,
        precision=loaded.recipe.train.precision,
        classes=loaded.state["classes"],
        objective=str(ParsedObjective(resolved_spec(loaded.info))),
        chosen=chosen,
    )
    return ImageModel.create(record, loaded.state)


def _validation(result: TrainingResult) -> tuple[float, float] | None:
    """Return accuracy and negative NLL on the validation part; None without one."""
    probe = result.probe if isinstance(result, TransferResult) else None
    measured = probe.chosen if probe is not None else result.validation
    if measured is None:
        return None
    return measured.top1, -math.inf if measured.nll is None else -measured.nll
