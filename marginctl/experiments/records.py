"""The typed results of all tasks, the only writers and readers of result.json."""

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from marginctl.data.images.summary import ImageSummary
from marginctl.errors import StorageError
from marginctl.experiments.tasks import TASKS
from marginctl.objectives.parsing import ParsedObjective
from marginctl.objectives.parts import scale_source
from marginctl.recipe.fields import RECORDED
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.recipe.uci_cv import UciCvRecipe
from marginctl.runs.atomic_io import write_error, write_json_lines
from marginctl.runs.base_record import (
    Objective,
    Percent,
    Record,
    Result,
    RunInfo,
    Seconds,
    Timing,
    first_problem,
    parse_objective,
    validated,
)
from marginctl.runs.safe_read import CorruptFileError, parse_document

PROBE_OBJECTIVE = "soft:bias=true"  # of a linear probe, and of published weights

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_CONFUSION = TypeAdapter(list[list[int]])
_IMAGES: TypeAdapter[ImageSummary | None] = TypeAdapter(ImageSummary | None)
_Interval = Annotated[list[Percent], Field(min_length=2, max_length=2)]


class CVResult(Result):
    """The result of cross-validating one objective on one data set with one seed.

    Attributes:
        classes, rows: the size of the data set.
        accuracies, tested: (repeats, folds) test accuracy in percent and test rows of each network.
        diverged, collapsed: the numbers (repeat * folds + fold) of the networks whose loss was not
            finite, and of those that predict one class for every row.
        chosen: how many networks chose each candidate, if the protocol is tuned.
        candidates: how many candidates each network chose from; 0 if the protocol is not tuned.
        inner_accuracy: mean accuracy in percent of the chosen candidates on the inner folds.
        metrics: (repeats, folds) other metrics of each network by name, None where not defined.
        confusion: (C, C) test rows by true and predicted class, summed over all networks.
        class_names: of the C classes.
        row_correct: of a fixed test split, how many repeats classify each test row correctly.
    """

    dataset: str
    classes: Annotated[int, Field(ge=2)]
    rows: Annotated[int, Field(ge=2)]
    split: Literal["folds", "fixed"]
    networks: int = 0  # folds x repeats
    accuracies: list[list[Percent]]
    tested: list[list[Annotated[int, Field(ge=1)]]]
    diverged: list[int]
    collapsed: list[int]
    chosen: dict[str, int] = Field(default_factory=dict)
    candidates: int = 0
    inner_accuracy: Percent | None = None
    metrics: dict[str, list[list[float | None]]] = Field(default_factory=dict)
    confusion: list[list[int]] | None = None
    class_names: list[str] = Field(default_factory=list)
    row_correct: list[int] = Field(default_factory=list)

    @model_validator(mode="after")
    def _consistent(self) -> "CVResult":
        shape = [len(repeat) for repeat in self.accuracies]
        if shape != [len(repeat) for repeat in self.tested] or sum(shape) < 2:
            raise ValueError("accuracies and tested differ in shape")
        if any(n >= self.rows for repeat in self.tested for n in repeat):
            raise ValueError("more test rows than rows")
        if any([len(repeat) for repeat in v] != shape for v in self.metrics.values()):
            raise ValueError("accuracies and metrics differ in shape")
        return self

    def values(self, metric: str) -> list[list[float | None]]:
        """Return (repeats, folds) values of a metric of `FOLD_METRICS`; empty if not measured."""
        if metric == "accuracy":
            return [list(repeat) for repeat in self.accuracies]
        return self.metrics.get(metric, [])


class EpochMetrics(Record):
    """The test metrics of one epoch, accuracies in percent.

    Attributes:
        epoch: from 1; of a linear probe, the iterations of L-BFGS, which may be none.
    """

    epoch: Annotated[int, Field(ge=0)]
    top1: Percent
    top5: Percent | None = None
    nll: float | None = None  # mean negative log-likelihood, None if it is not finite
    n: int = 0
    collapsed: bool = False


class ScaleSource(Record):
    """A fixed scale that is a multiple of the kappa* of another run."""

    from_run: str
    times: _Positive
    kappa: _Positive
    value: _Positive


class SourceModel(Record):
    """The trained network that a run begins with."""

    path: str = ""
    weights_sha256: str


class TransferSource(SourceModel):
    """The source model of a transfer, with what it was trained with; weights have no seed."""

    row: str
    objective: Objective
    seed: int | None


class Baseline(Record):
    """The metrics of the source model on the test images before training."""

    top1: Percent | None
    interval: _Interval | None
    n: Annotated[int, Field(ge=1)] | None
    kappa: _Positive | None
    detection: dict[str, Any] | None
    reason: str | None  # why there is no accuracy, else None

    @model_validator(mode="after")
    def _complete(self) -> "Baseline":
        if self.reason is None and None in (self.top1, self.interval, self.n):
            raise ValueError("'baseline' has neither an accuracy nor a reason")
        return self


class TrainingTiming(Timing):
    """Seconds of a training.

    Attributes:
        epoch_seconds: of the median epoch without evaluation.
        tune_seconds: of the candidates of tuning, which are a part of `seconds`.
    """

    epoch_seconds: float | None = None
    tune_seconds: Seconds = 0.0


class _TestedClass(BaseModel):
    """A class in `evaluation`, with its test images."""

    name: str
    n: int
    correct: int


_CLASSES = TypeAdapter(list[_TestedClass])


class TrainingResult(Result):
    """The result of training one network on images.

    Attributes:
        evaluation: metrics of the trained network by section; read them through the metric
            registry.
        last, best: test metrics after the last and the best epoch; of a run with a validation
            part, both of the epoch that this part chose.
        validation: the metrics of the chosen epoch on the validation part; None without one.
        candidates: how many candidates tuning chose from; 0 if the run is not tuned.
        chosen: the chosen candidate, such as `arcface:scale=10, lr=0.032`.
        correct: which test images are classified correctly, by `metrics.accuracy.pack_correct`.
        largest_class: the fraction of the test images in their largest class, in percent.
    """

    task: str
    row: str
    setting: dict[str, Any]
    data: str = ""
    model: str = ""
    epochs: int
    last: EpochMetrics | None
    best: EpochMetrics | None
    selection: str = ""
    evaluation: dict[str, Any] | None = None
    state: dict[str, Any] | None = None
    scale_from: ScaleSource | None = None
    source_model: SourceModel | None = None
    baseline: Baseline | None = None
    diverged: str | None  # where the loss was not finite, else None
    collapsed: bool
    weights_sha256: str | None = None
    candidates: int = 0
    chosen: str | None = None
    validation: EpochMetrics | None = None
    correct: str | None = None
    largest_class: Percent | None = None
    timing: TrainingTiming

    @model_validator(mode="after")
    def _consistent(self) -> "TrainingResult":
        classes = _CLASSES.validate_python((self.evaluation or {}).get("per_class") or [])
        matrix = _CONFUSION.validate_python((self.evaluation or {}).get("confusion") or [])
        if matrix and {len(classes), *map(len, matrix)} != {len(matrix)}:
            raise ValueError("'confusion' is not of the classes of 'per_class'")
        if (self.last is None or self.best is None) and self.diverged is None:
            raise ValueError("no epoch was evaluated")
        if self.baseline is not None and self.source_model is None:
            raise ValueError("'source_model' is missing")
        if self.baseline is not None and not self.data:  # which names its row
            raise ValueError("'data' is missing")
        _check_scale(self.objective, self.scale_from)
        return self

    @property
    def kappa(self) -> float | None:
        """Return the mean kappa* over the test images, None if the objective has none."""
        kappa = ((self.state or {}).get("optimal_scale") or {}).get("mean")
        return float(kappa) if isinstance(kappa, int | float) and kappa > 0 else None


class FineTunedResult(TrainingResult):
    """The result of fine-tuning a source model on images, with the source model's own metrics."""

    data: Annotated[str, Field(min_length=1)]
    model: Annotated[str, Field(min_length=1)]
    source_model: SourceModel
    baseline: Baseline


class ProbeCandidate(Record):
    """A penalty of a probe with accuracy and NLL on the validation part."""

    l2_penalty: float
    top1: Percent
    nll: float


class ProbeValidation(Record):
    """What chose the penalty of a probe; no candidates where there was nothing to choose."""

    l2_penalties: list[ProbeCandidate]


class Probe(Record):
    """How a linear probe was fitted."""

    interval: _Interval
    l2_penalty: float
    notes: list[str]
    validation: ProbeValidation

    @property
    def chosen(self) -> ProbeCandidate | None:
        """The candidate of the chosen penalty, None without candidates."""
        candidates = self.validation.l2_penalties
        return next((c for c in candidates if c.l2_penalty == self.l2_penalty), None)


class TransferResult(TrainingResult):
    """The result of one network on other images.

    Attributes:
        classifier: the objective of the new classifier, where `objective` is the source model's.
    """

    method: str
    source_model: TransferSource
    probe: Probe | None  # None for fine-tuning
    predictions_sha256: str | None = None
    classifier: Objective = PROBE_OBJECTIVE

    @property
    def head(self) -> str:
        """The name of the new classifier: `probe`, or `fine-tune` with its objective.

        Values of a grid are a part of it.
        """
        settings = {k: v for k, v in self.setting.items() if k not in ("data.name", "method")}
        parts = [self.method, *([] if self.probe else [self.objective])]
        return ", ".join(parts + [f"{k.rpartition('.')[2]}={v}" for k, v in settings.items()])

    @property
    def source_row(self) -> str:
        """The name of the data and the source model."""
        source = self.source_model
        trained = "" if source.objective == PROBE_OBJECTIVE else f" ({source.objective})"
        return f"{self.data}: {source.row}{trained}"

    @property
    def parsed_objective(self) -> ParsedObjective:
        """Return the objective as an object; that of the new classifier where a head is named."""
        named_by_head = self.objective.startswith(self.method)
        return parse_objective(self.classifier if named_by_head else self.objective)

    def in_table(self, *, by_head: bool) -> "TransferResult":
        """Return the result as a table reads it.

        The seed is that of the source model, so that networks of one seed are compared with each
        other, and the row names the transfer's own if it is not 0; published weights have no seed
        and keep that of the transfer.

        Args:
            by_head: whether the objective is `head`; else it is that of the source model, and the
                row names the new classifier if it is not softmax.
        """
        named = "" if self.objective == PROBE_OBJECTIVE else f", {self.objective}"
        row, objective = self.row + named, self.source_model.objective
        if by_head:
            row, objective = self.source_row, self.head
        seed = self.seed
        if self.source_model.seed is not None:
            row += f", seed={seed}" if seed else ""
            seed = self.source_model.seed
        changes = {"row": row, "objective": objective, "seed": seed}
        return self.model_copy(update={**changes, "classifier": self.objective})


def is_probe(result: TrainingResult) -> bool:
    """Whether a result is of a linear probe, which has no epochs."""
    return isinstance(result, TransferResult) and result.probe is not None


class CVInfo(RunInfo):
    """The run.json of a cross-validation."""

    dataset: str
    data_summary: dict[str, Any] | None = None


class TrainingInfo(RunInfo):
    """The run.json of a training.

    Attributes:
        data_summary: what its folder or list of images holds; None for a named image set.
        chosen_objective: the objective with the options that tuning chose.
    """

    setting: dict[str, Any] = Field(default_factory=dict)
    scale_from: ScaleSource | None = None
    data_summary: Annotated[ImageSummary | None, BeforeValidator(_IMAGES.validate_python)] = None
    chosen_objective: Objective | None = None

    @model_validator(mode="after")
    def _scale_is_known(self) -> "TrainingInfo":
        _check_scale(self.objective, self.scale_from)
        return self


def _check_scale(objective: str, source: ScaleSource | None) -> None:
    """Raise ValueError if an objective takes its scale from a run and the number is missing."""
    if source is None and scale_source(parse_objective(objective).spec) is not None:
        raise ValueError("'scale_from' is missing")


def result_type(task: str) -> type[CVResult] | type[TrainingResult]:
    result: type[CVResult] | type[TrainingResult] = TASKS[task].load("result")
    return result


def parse_training_info(text: str) -> TrainingInfo | None:
    """Return the record of a run.json, None if of no training, or raise CorruptFileError."""
    info, _ = validate_info(parse_document(text))
    return info if isinstance(info, TrainingInfo) else None


def validate_info(document: Mapping[str, Any]) -> tuple[RunInfo, UciCvRecipe | ImageRecipe]:
    """Return a run.json as a record, and the recipe of its setting, or raise CorruptFileError."""
    task = str(document.get("task", "uci-cv"))
    if task not in TASKS:
        raise CorruptFileError(f"is of the task {task[:40]!r}: expected one of {', '.join(TASKS)}")
    try:
        info: RunInfo = validated(CVInfo if task == "uci-cv" else TrainingInfo, document)
        info.recipe, recipe = _shared_recipe(json.dumps(info.recipe, allow_nan=False), task)
    except CorruptFileError as error:
        raise CorruptFileError(f"is corrupt ({error})") from None
    except ValueError:
        raise CorruptFileError("is corrupt (a number is infinite)") from None
    return info, recipe


@functools.lru_cache(maxsize=1024)
def _shared_recipe(text: str, task: str) -> tuple[dict[str, Any], UciCvRecipe | ImageRecipe]:
    """Return a recipe's document and the recipe: one object for all runs that have the same."""
    document = json.loads(text)
    settings = {key: value for key, value in document.items() if key != "name"}
    if not isinstance(document.get("name"), str):
        raise CorruptFileError("'recipe.name' is missing")
    try:
        schema = TASKS[task].load("schema")
        return document, schema.model_validate(settings, context={RECORDED: True})
    except ValidationError as error:
        raise CorruptFileError(
            f"its recipe does not fit this version: {first_problem(error)}"
        ) from None


def evaluation_recipe(info: TrainingInfo) -> ImageRecipe:
    """Return the recipe to evaluate a run's network with.

    It is not compiled, which changes no result and takes longer than a single pass; a network of a
    second stage has the sections that it was trained with.
    """
    _, recipe = _shared_recipe(json.dumps(info.recipe), info.task)
    assert isinstance(recipe, ImageRecipe)
    recipe = recipe.in_stage()
    train = recipe.train.model_copy(update={"compile": False})
    return recipe.model_copy(update={"train": train})


class MetricsLog:
    """metrics.jsonl: append-only, one line for each epoch.

    Args:
        lines: of the finished epochs, from the checkpoint; the file is rewritten with these.
    """

    def __init__(self, path: Path, lines: list[dict[str, Any]]) -> None:
        self._path, self.lines = path, list(lines)
        write_json_lines(path, self.lines)

    def append(self, line: Mapping[str, Any]) -> None:
        """Append the record of an epoch; it is on the disk when this returns."""
        self.lines.append(dict(line))
        text = json.dumps(line, allow_nan=False) + "\n"
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(write_error(self._path, len(text), error)) from None
