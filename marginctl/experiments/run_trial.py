"""Run one trial in its run directory: resume, write checkpoints, stop on a signal, record."""

import contextlib
import io
import json
import signal
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, Protocol

from marginctl.data.images.image_sets import ImageDataset
from marginctl.data.loading.loader import BatchLoader
from marginctl.data.loading.on_disk_loader import make_loader
from marginctl.errors import MarginctlError, RequestError
from marginctl.experiments.checks import fit_images
from marginctl.experiments.records import MetricsLog, TrainingResult, result_type
from marginctl.experiments.reference_losses import reference_losses
from marginctl.experiments.training_trial import Trial
from marginctl.metrics.accuracy import largest_class, pack_correct
from marginctl.runs.atomic_io import write_atomically
from marginctl.runs.run_dir import EXAMPLE_IMAGE, NUMERIC_PACKAGES, RunDir, versions
from marginctl.training import checkpoint, epoch_metrics
from marginctl.training.diagnostics import Diagnostics
from marginctl.training.ood_evaluation import predict_ood
from marginctl.training.pair_evaluation import verify_pairs
from marginctl.training.trainer import MISMATCH_ERRORS, DivergedError, Predictions, Trainer
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig

SELECTED_ON_TEST = (
    "last: after the last epoch; best: the epoch with the highest test top-1, which is selected on "
    "the test set (optimistically biased)"
)
SELECTED_ON_VALIDATION = (
    "the epoch with the highest top-1 on the validation part, then the lowest NLL; the test part "
    "is measured once, with the weights of that epoch"
)
STOP_INTERVAL = 10  # steps between the questions of several processes whether one was stopped


class Callback(Protocol):
    """What is called during a training."""

    def message(self, text: str) -> None: ...

    def note(self, text: str) -> None:
        """Report progress in a line, which `--quiet` leaves out."""

    def step(self, trial: Trial, step: int, total: int, candidate: str | None = None) -> None:
        """Report a finished step of a trial, or of a candidate of its tuning."""

    def epoch(self, trial: Trial, line: dict[str, Any]) -> None: ...


class StoppedRunError(MarginctlError):
    """A signal stopped the run between two steps; a checkpoint is written."""

    def __init__(self, number: int, *lines: str) -> None:
        super().__init__(*lines)
        self.exit_status = 128 + number

    def __reduce__(self) -> Any:
        return type(self), (self.exit_status - 128, *self.lines)


class Signals(Protocol):
    @property
    def received(self) -> int | None: ...


@dataclass
class SignalHandler:
    """Records the first SIGINT or SIGTERM, so that a run stops between two steps."""

    received: int | None = None
    _previous: dict[int, Any] = field(default_factory=dict)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore()  # a second signal stops at once

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def installed(self) -> Iterator["SignalHandler"]:
        """Handle signals within the context; a second one acts as without this handler."""
        with contextlib.suppress(ValueError):  # not the main thread
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        try:
            yield self
        finally:
            self._restore()


@dataclass(frozen=True)
class CheckpointPolicy:
    """Minutes between two checkpoints, and the number of recent ones to keep."""

    minutes: float = 5.0
    keep: int = 1


@dataclass(frozen=True)
class TrialContext:
    """Where and how a trial runs."""

    device_config: DeviceConfig
    checkpoints: CheckpointPolicy
    signals: Signals
    callback: Callback
    world: World


@dataclass(frozen=True)
class Choice:
    """What tuning chose for a trial."""

    trial: Trial  # the trial with the chosen objective and learning rate
    candidates: int  # how many there were
    seconds: float  # of all candidates


class TrialRunner:
    """Trains one trial, from its last checkpoint if there is one."""

    def __init__(
        self,
        trial: Trial,
        images: ImageDataset,
        run_dir: RunDir,
        context: TrialContext,
        extra: Mapping[str, Any] | None = None,
        choice: Choice | None = None,
    ) -> None:
        self._trial, self._images, self._run_dir = trial, images, run_dir
        self._policy, self._signals = context.checkpoints, context.signals
        self._callback, self._world = context.callback, context.world
        self._device_config = context.device_config
        self._extra, self._choice = extra or {}, choice
        # the test part is out of reach of the trainer where there is a validation part
        self._fit = fit_images(trial.recipe, images, trial.seed)
        self._part = "test" if self._fit is images else "val"
        trained = trial if choice is None else choice.trial
        self._trainer = Trainer(
            trained.recipe, trained.spec, self._fit, trial.seed, self._device_config, self._world
        )
        self._metrics: MetricsLog | None = None  # of the main process
        # the metrics of the best epoch, with its number; None before the first evaluation
        self.best: dict[str, Any] | None = None
        self._stopped_early = False
        self._saved_at = time.monotonic()
        self._best_writer = checkpoint.BackgroundWriter()
        self._predictions: Predictions | None = None  # after the last epoch

    def run(self) -> TrainingResult | None:
        """Train the trial to its end; return its result, None on all processes but the main one.

        Raises:
            StoppedRunError: a signal came; the checkpoint is written.
        """
        return self._finish(self.train())

    def train(self) -> str | None:
        """Train the trial to its end; return where the loss was not finite, else None."""
        trainer, trial = self._trainer, self._trial
        if trial.source_model is not None:
            trainer.load_backbone(trial.source_model.backbone, trial.source_model.moments)
        lines = self._resume()
        trainer.cache_frozen_features()
        losses = None
        if trial.reference is not None:
            device = self._device_config.device
            losses = partial(reference_losses, trial.reference, device=device)
        diagnostics = Diagnostics(trainer, self._fit, self._world, losses)
        if self._world.is_main_process:
            self._metrics = MetricsLog(self._run_dir.path / "metrics.jsonl", lines)
        self.best, self._stopped_early = self._world.from_main(lambda: self._progress(lines))
        diverged = None
        while not self._finished and diverged is None:
            try:
                self._train_epoch(diagnostics)
            except DivergedError as error:
                self._message(f"{trial}: diverged: {error}")
                diverged = str(error)
        self._best_writer.wait()
        return diverged

    @property
    def seconds(self) -> float:
        """The seconds of all finished epochs; of the main process only."""
        lines = [] if self._metrics is None else self._metrics.lines
        return float(sum(line["timing"]["seconds"] for line in lines))

    def _progress(self, lines: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any] | None, bool]:
        """Return the best epoch of a checkpoint's records, and whether no epoch is left."""
        tested = [
            {"epoch": line["epoch"], **line[self._part]} for line in lines if self._part in line
        ]
        best = max(tested, key=self._score, default=None)  # the first of a tie
        epoch = lines[-1]["epoch"] if lines else 0
        # the last checkpoint of a finished training is that of its best epoch
        return best, epoch > self._trainer.epoch or self._out_of_patience(best, epoch)

    def _score(self, record: Mapping[str, Any]) -> tuple[float, float]:
        """Return what epochs are compared by; on the test part it is top-1 alone."""
        top1, likelihood = epoch_metrics.selection_score(record)
        return top1, likelihood if self._part == "val" else 0.0

    def _out_of_patience(self, best: Mapping[str, Any] | None, epoch: int) -> bool:
        patience = self._trial.recipe.train.patience
        return patience is not None and best is not None and epoch - best["epoch"] >= patience

    def _resume(self) -> list[dict[str, Any]]:
        """Load the last checkpoint; return the records of its epochs."""
        trainer, trial = self._trainer, self._trial
        state, problems = self._world.from_main(self._load_state)
        for problem in problems:
            self._message(problem)
        if state is None:
            return []
        try:
            trainer.load_state_dict(state)
        except MISMATCH_ERRORS as error:
            reason = str(error).splitlines()[0]
            raise RequestError(
                f"{self._run_dir.path}: its checkpoint does not fit this trial ({reason}): remove "
                "the folder, or repeat the command that wrote it"
            ) from None
        text = f"{trial}: resuming from step {trainer.step} of {trainer.total_steps}"
        config = self._device_config
        before, now = (state["device"], state["precision"]), (config.device.type, config.precision)
        if before != now:
            text += (
                f", computed on {before[0]} in {before[1]}: the rest is computed on {now[0]} in "
                f"{now[1]}, and the result is that of neither alone"
            )
        self._message(text)
        lines: list[dict[str, Any]] = json.loads(state["metrics"])
        return lines

    def _load_state(self) -> tuple[dict[str, Any] | None, list[str]]:
        """Return the last checkpoint, unless other versions wrote it, and messages about it."""
        trial, folder = self._trial, self._run_dir.path
        latest, problems = checkpoint.load_latest(folder, trial=trial.id)
        if latest is None:
            restart = [f"{trial}: no checkpoint is left: restarting"] if problems else []
            return None, problems + restart
        _, state = latest
        written, installed = state["versions"], versions()
        for package in NUMERIC_PACKAGES:
            if written.get(package) != installed[package]:
                checkpoint.remove_all(folder)
                reason = f"{package} {written.get(package)}, this is {installed[package]}"
                return None, [*problems, f"{trial}: its checkpoint is from {reason}: restarting"]
        return state, problems

    def _train_epoch(self, diagnostics: Diagnostics) -> None:
        """Train to the end of the epoch, evaluate and record it, and save what is due."""
        trainer, trial = self._trainer, self._trial
        started = time.perf_counter()
        self._predictions = None
        try:
            train = trainer.run_epoch(self._after_step)
            train_seconds = time.perf_counter() - started
            line: dict[str, Any] = {"epoch": trainer.epoch, "lr": trainer.last_lr, "train": train}
            if trainer.epoch % trial.recipe.train.evaluate_every == 0 or self._finished:
                line |= self._evaluate(diagnostics)  # which checks the same
            else:
                trainer.check_finite()
        except (ValueError, RuntimeError) as error:  # compiled, it is a RuntimeError
            if "more than 1 value per channel" not in str(error):
                raise
            raise RequestError(
                f"{trial}: batch normalisation needs more than one value per channel: "
                f"train.batch_size = {trial.recipe.train.batch_size}, expected at least 2"
            ) from None
        line["timing"] = {"seconds": time.perf_counter() - started, "train_seconds": train_seconds}
        if self._metrics:
            self._metrics.append(line)
            self._callback.epoch(trial, line)
        if self._part in line:
            record = {"epoch": trainer.epoch, **line[self._part]}
            if self.best is None or self._score(record) > self._score(self.best):
                self.best = record
                self._save_best()
            self._stopped_early = self._out_of_patience(self.best, trainer.epoch)
        request = self._checkpoint_request()
        if self._finished or request is not None:
            self._save()
        if request and not self._finished:
            raise self._stopped(request)

    def _evaluate(self, diagnostics: Diagnostics) -> dict[str, Any]:
        trainer = self._trainer
        predictions = trainer.predict()
        self._predictions = predictions
        record: dict[str, Any] = {
            self._part: epoch_metrics.accuracy_record(predictions),
            "objective": epoch_metrics.objective_record(trainer.objective, predictions),
        }
        evaluated = self._metrics is None or any(self._part in line for line in self._metrics.lines)
        if not evaluated or self._finished:
            example = epoch_metrics.example_record(
                trainer.objective, predictions, self._images.classes
            )
            if example is not None:
                record["example"] = example
                self._write_example_image()
        return record | diagnostics.record(trainer)

    def _finish(self, diverged: str | None) -> TrainingResult | None:
        """Evaluate the trained network and write its result."""
        trainer, trial, images = self._trainer, self._trial, self._images
        evaluation, digest, test, state = None, None, None, None
        correct, chance = None, None
        if diverged is None:
            if self._part == "val":
                predictions = self._test_best_epoch()
                test = {"epoch": trainer.epoch, **epoch_metrics.accuracy_record(predictions)}
                state = epoch_metrics.objective_record(trainer.objective, predictions)
            else:
                # None after a resume from the last epoch
                predictions = self._predictions or trainer.predict()
            ood = predict_ood(trainer, trial.ood, images, self._world)
            pairs = verify_pairs(trainer, trial.pairs, images, self._world)
            if self._metrics is not None:
                evaluation = epoch_metrics.evaluation_record(
                    trainer.objective, predictions, images.classes, images.train_y, ood
                )
                if pairs:
                    evaluation["verification"] = [one.record() for one in pairs]
                digest = trainer.weights_digest()
                predicted = predictions.similarities.argmax(1).numpy()
                labels = predictions.labels.numpy()
                correct, chance = pack_correct(predicted, labels), largest_class(labels)
        if self._metrics is None:
            return None
        lines = self._metrics.lines
        tested = [{"epoch": line["epoch"], **line["test"]} for line in lines if line.get("test")]
        selected: dict[str, Any] = {
            "last": tested[-1] if tested else None,
            # the first of a tie
            "best": max(tested, key=lambda t: t["top1"]) if tested else None,
            "selection": SELECTED_ON_TEST,
        }
        if self._part == "val":
            selected = {"last": test, "best": test, "selection": SELECTED_ON_VALIDATION}
            selected["validation"] = self.best
        choice = self._choice
        if choice is not None:
            selected |= {"candidates": choice.candidates, "chosen": choice.trial.candidate_name}
        tune_seconds = 0.0 if choice is None else choice.seconds
        seconds = [line["timing"]["train_seconds"] for line in lines]
        document: dict[str, Any] = {
            **trial.result_fields,
            "epochs": len(lines),
            **selected,
            "evaluation": evaluation,
            "correct": correct,
            "largest_class": chance,
            "state": state or (lines[-1].get("objective") if lines else None),
            **trial.scale_record,
            "diverged": diverged,
            "collapsed": bool(selected["last"] and selected["last"]["collapsed"]),
            "weights_sha256": digest,
            "timing": {
                "seconds": tune_seconds + self.seconds,
                **({} if choice is None else {"tune_seconds": tune_seconds}),
                # without evaluation; the median: a pause of the machine is no cost of a method
                "epoch_seconds": statistics.median(seconds) if seconds else None,
            },
            **self._extra,
        }
        model = result_type(trial.recipe.task)
        assert issubclass(model, TrainingResult)
        return self._run_dir.write_result(model.model_validate(document))

    def _test_best_epoch(self) -> Predictions:
        """Load the weights of the best epoch and return their predictions for the test images.

        The checkpoint of that epoch replaces the last one: it is the network of the run.
        """
        trainer, world, folder = self._trainer, self._world, self._run_dir.path
        state = None
        if world.is_main_process:
            latest, problems = checkpoint.load_latest(folder, checkpoint.BEST, self._trial.id)
            if latest is None:
                raise RequestError(
                    *problems,
                    f"{folder}: has no checkpoint of its best epoch: remove the folder, and repeat "
                    "the command",
                )
            assert self._metrics is not None
            state = latest[1] | {"metrics": json.dumps(self._metrics.lines)}
            checkpoint.save(folder, checkpoint.LAST, state["step"], state, keep=0)
        trainer.load_weights(world.broadcast_object(state))
        batches = self._image_batches()
        batches.set_normalization(trainer.batches.mean, trainer.batches.std)
        return trainer.predict(batches=batches)

    def _write_example_image(self) -> None:
        path = self._run_dir.path / EXAMPLE_IMAGE
        if self._metrics is None or path.is_file():
            return
        from PIL import Image

        pixels = self._image_batches().first_test_image().permute(1, 2, 0)
        image, png = Image.fromarray(pixels.squeeze(2).numpy()), io.BytesIO()
        image.save(png, "PNG")
        write_atomically(path, png.getvalue())

    def _image_batches(self) -> BatchLoader:
        """Return batches of images: the trainer's own may be features of frozen blocks."""
        seed, augment = self._trial.seed, self._trial.recipe.data.augment
        return make_loader(self._images, self._device_config, seed, augment, self._world)

    @property
    def _finished(self) -> bool:
        return self._stopped_early or self._trainer.step == self._trainer.total_steps

    def _after_step(self) -> None:
        trainer = self._trainer
        self._callback.step(self._trial, trainer.step, trainer.total_steps)
        if trainer.at_epoch_end:  # the end of the epoch saves by itself
            return
        if self._world.size > 1 and trainer.step % STOP_INTERVAL:
            return
        request = self._checkpoint_request()
        if request is not None:
            self._save()
        if request:
            raise self._stopped(request)

    def _checkpoint_request(self) -> int | None:
        """Return a signal's number, 0 if a checkpoint is due, else None; equal on all processes."""
        due = time.monotonic() - self._saved_at >= 60 * self._policy.minutes
        received = self._signals.received
        return self._world.all_reduce_max(received if received is not None else 0 if due else None)

    def _save(self) -> None:
        trainer = self._trainer
        # after the last step, nothing resumes: the optimizer's state is as large as the network
        state = trainer.network_snapshot() if self._finished else trainer.state_dict()
        self._best_writer.wait()  # a checkpoint never tells of a best epoch that is not written
        if self._metrics:
            state |= {"trial": self._trial.id, "metrics": json.dumps(self._metrics.lines)}
            folder, keep = self._run_dir.path, self._policy.keep
            checkpoint.save(folder, checkpoint.LAST, trainer.step, state, keep)
        self._saved_at = time.monotonic()

    def _save_best(self) -> None:
        trainer = self._trainer
        state = trainer.network_snapshot()
        if self._metrics:
            state |= {"trial": self._trial.id, "metrics": json.dumps(self._metrics.lines)}
            folder = self._run_dir.path
            self._best_writer.save(folder, checkpoint.BEST, trainer.step, state, keep=1)

    def _message(self, text: str) -> None:
        if self._world.is_main_process:
            self._callback.message(text)

    def _stopped(self, number: int) -> StoppedRunError:
        word = "interrupted" if number == signal.SIGINT else "terminated"
        return StoppedRunError(
            number,
            f"{word}: {self._trial} has a checkpoint at step {self._trainer.step} of "
            f"{self._trainer.total_steps}: repeat the command to resume",
        )
