"""Tuning of a trial by successive halving on its validation part, before it is trained."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from marginctl.data.images.image_sets import ImageDataset
from marginctl.data.images.subsets import subsample
from marginctl.experiments.checks import fit_images
from marginctl.experiments.records import TrainingResult
from marginctl.experiments.run_trial import Callback, Choice, TrialContext, TrialRunner
from marginctl.experiments.training_trial import Trial
from marginctl.runs import safe_read
from marginctl.runs.atomic_io import write_json
from marginctl.runs.base_record import Record, Seconds, validated
from marginctl.runs.run_dir import NUMERIC_PACKAGES, RunDir, versions
from marginctl.training.epoch_metrics import selection_score
from marginctl.utils.text import count_noun


@dataclass(frozen=True)
class Rung:
    """A round of successive halving."""

    fraction: float  # of the epochs of the trial, at most
    keep: int  # how many candidates are left after it

    def budget(self, epochs: int) -> tuple[int, float]:
        """Return the epochs of a candidate, and the fraction of the images that it is fitted to.

        Where `fraction` is less than one epoch, it is one epoch of fewer images.
        """
        target = self.fraction * epochs
        return max(1, int(target)), min(1.0, target)


# Of 12 candidates at most, all have 1/4 of the epochs and the best 4 have 1/2. With the training
# of the best one, that is at most 12/4 + 4/2 + 1 = 6 trainings of the trial without tuning, counted
# in epochs x images. Our choice.
RUNGS = (Rung(1 / 4, keep=4), Rung(1 / 2, keep=1))


def tuning_cost(trial: Trial, images: int) -> list[tuple[int, int, int]]:
    """Return the candidates, their epochs and the images of an epoch in each round.

    Args:
        images: that the trial is fitted to.
    """
    if trial.recipe.tune is None:
        return []
    counts = (len(trial.candidates), *(rung.keep for rung in RUNGS))
    budgets = [rung.budget(trial.recipe.train.epochs) for rung in RUNGS]
    return [
        (min(counts[: i + 1]), epochs, round(fraction * images))
        for i, (epochs, fraction) in enumerate(budgets)
    ]


class CandidateResult(Record):
    """What a candidate of tuning reached on the validation part; no test image is involved."""

    trial: str
    candidate: str
    epochs: int
    images: int
    top1: float | None  # None if it diverged
    nll: float | None
    diverged: str | None
    seconds: Seconds
    versions: dict[str, str]

    @property
    def score(self) -> tuple[float, float]:
        """What candidates are compared by; one that diverged is the worst."""
        if self.top1 is None:
            return (-1.0, 0.0)
        return selection_score({"top1": self.top1, "nll": self.nll})


class _CandidateCallback:
    """Forwards messages and steps; the epochs of candidates are not shown."""

    def __init__(self, callback: Callback, tuned: Trial) -> None:
        self.message, self.note = callback.message, callback.note
        self._step, self._tuned = callback.step, tuned

    def step(self, trial: Trial, step: int, total: int, candidate: str | None = None) -> None:
        self._step(self._tuned, step, total, trial.candidate_name)

    def epoch(self, trial: Trial, line: dict[str, Any]) -> None:
        pass


def run_trial(
    trial: Trial,
    images: ImageDataset,
    run_dir: RunDir,
    context: TrialContext,
    extra: Mapping[str, Any] | None = None,
) -> TrainingResult | None:
    """Tune a trial if its recipe says so, and train it, as `TrialRunner.run`."""
    choice = None
    if trial.recipe.tune is not None:
        choice = choose_candidate(trial, images, run_dir.path, context)
        if context.world.is_main_process:
            path = run_dir.path / "run.json"
            document = safe_read.parse_document(safe_read.read_text(path))
            write_json(path, document | {"chosen_objective": str(choice.trial.objective)})
    return TrialRunner(trial, images, run_dir, context, extra, choice).run()


def choose_candidate(
    trial: Trial, images: ImageDataset, folder: Path, context: TrialContext
) -> Choice:
    """Return the candidate that is best on the validation part after all rungs.

    Finished candidates are read from the folder of the trial, an interrupted one is resumed.
    """
    fit = fit_images(trial.recipe, images, trial.seed)
    context = replace(context, callback=_CandidateCallback(context.callback, trial))
    remaining, seconds = list(enumerate(trial.candidates)), 0.0
    for number, rung in enumerate(RUNGS, 1):
        epochs, fraction = rung.budget(trial.recipe.train.epochs)
        part = subsample(fit, fraction, seed=trial.seed)
        if context.world.is_main_process:
            context.callback.note(
                f"{trial}: tuning, round {number} of {len(RUNGS)}: "
                f"{count_noun(len(remaining), 'candidate')}, {count_noun(epochs, 'epoch')} of "
                f"{count_noun(len(part.train_y), 'image')} each, validated on "
                f"{count_noun(len(part.test_y), 'training image')}"
            )
        results = {}
        for i, candidate in remaining:
            place = folder / safe_read.CANDIDATES / f"{number}-{i:02d}"
            results[i] = _run_candidate(_shortened(candidate, epochs), part, place, context)
        seconds += sum(result.seconds for result in results.values())
        # sorted keeps the order of a tie
        remaining = sorted(remaining, key=lambda one: results[one[0]].score, reverse=True)
        remaining = remaining[: rung.keep]
    (_, chosen), *_ = remaining
    if context.world.is_main_process:
        context.callback.note(f"{trial}: chosen: {chosen.candidate_name}")
    return Choice(chosen, len(trial.candidates), seconds)


def _shortened(candidate: Trial, epochs: int) -> Trial:
    """Return a candidate with fewer epochs, which is evaluated after the last one."""
    recipe = candidate.recipe
    train = {"epochs": epochs, "evaluate_every": epochs, "patience": None}
    train["gradient_norm_samples"] = 0
    changes = {
        "data": recipe.data.model_copy(update={"val_fraction": None}),
        "train": recipe.train.model_copy(update=train),
    }
    return replace(candidate, recipe=recipe.model_copy(update=changes), ood=(), pairs=())


def _run_candidate(
    candidate: Trial, images: ImageDataset, folder: Path, context: TrialContext
) -> CandidateResult:
    """Return the result of a candidate, saved or trained now.

    Args:
        images: the images to fit, with the validation part in place of the test part.
        folder: of the candidate's checkpoints while it is trained.
    """
    world, path = context.world, folder.with_suffix(".json")
    saved = world.from_main(lambda: _load(path, candidate))
    if saved is not None:
        return saved
    runner = TrialRunner(candidate, images, RunDir(folder), context)
    if world.is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
    diverged = runner.train()
    best = None if diverged is not None else runner.best
    measured = CandidateResult(
        trial=candidate.id,
        candidate=candidate.candidate_name,
        epochs=candidate.recipe.train.epochs,
        images=len(images.train_y),
        top1=None if best is None else best["top1"],
        nll=None if best is None else best["nll"],
        diverged=diverged,
        seconds=runner.seconds,
        versions=versions(),
    )
    result = world.from_main(lambda: measured)
    if world.is_main_process:
        write_json(path, result.document())
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _load(path: Path, candidate: Trial) -> CandidateResult | None:
    """Return the saved result of a candidate, None if there is none that can be used."""
    try:
        result = validated(CandidateResult, safe_read.parse_document(safe_read.read_text(path)))
    except (safe_read.MissingFileError, safe_read.CorruptFileError):
        return None
    current = versions()
    same = all(result.versions.get(package) == current[package] for package in NUMERIC_PACKAGES)
    return result if same and result.trial == candidate.id else None
