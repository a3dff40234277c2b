"""What the recipes of all image tasks share: sections, the grid and its settings."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from marginctl.data.images.registry import loading_modes
from marginctl.data.images.resizing import Resizing
from marginctl.errors import RequestError
from marginctl.models.registry import ModelSpec
from marginctl.objectives.parsing import ParsedObjective, parse, parse_any
from marginctl.objectives.parts import scale_source
from marginctl.objectives.schedules import parse_learning_rate
from marginctl.objectives.tuning import RATES, max_rate
from marginctl.recipe import fields
from marginctl.recipe.image_data import ImageData
from marginctl.utils.text import did_you_mean

MAX_SETTINGS = 10_000  # of a grid
MAX_DIAGNOSED = 5_000  # training images whose diagnostics are recorded
# of the training images, where tuning has no other validation part: our choice
TUNING_VALIDATION = 0.15

Sampling = Literal["random", "class-balanced"]
Objectives = Annotated[list[ParsedObjective], Field(min_length=1)]


Blocks = Annotated[
    Literal["1-4", "2-4", "3-4", "4", "head"],
    # YAML reads 4 as a number
    BeforeValidator(lambda value: "4" if type(value) is int and value == 4 else value),
    Field(
        description="blocks of the backbone to fine-tune; the earlier ones are frozen; head: only "
        "the new classifier is trained"
    ),
]


class Optim(fields.Section):
    """The optimizer. The defaults are ours."""

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: fields.LearningRate = parse_learning_rate("cosine(end=0,start=0.1)")
    lr_interval: Literal["step", "epoch"] = "step"
    """when a scheduled learning rate changes"""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """sgd only"""
    nesterov: bool = False
    weight_decay: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 5e-4

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise ValueError(
                f"optim.nesterov = true with optimizer = {self.optimizer} and momentum = "
                f"{self.momentum:g}: expected sgd and a momentum above 0"
            )
        return self


class Training(fields.Section):
    """Epochs, batches, precision and evaluation. The defaults are ours."""

    epochs: Annotated[int, Field(ge=1, le=100_000)] = 10
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 128
    grad_accum_steps: Annotated[int, Field(ge=1, le=10_000)] = 1
    """parts into which each batch is split"""
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto"
    """of the backbone; auto: bf16 where it is fast, else fp32; tf32: on GPUs; fp16: with a fused
    optimizer, which has never run on a GPU"""
    compile: bool = False
    gpu_fast_path: bool = False
    """fused optimizer, and cuDNN's fastest algorithms by timing; for CUDA; it has never run on a
    GPU"""
    cuda_graphs: bool = False
    """forward and backward pass of a step as one launch, for small networks; for CUDA; it has never
    run on a GPU"""
    sampling: Sampling = "random"
    """random: every image once per epoch; class-balanced: as many draws, each of a random class and
    then of a random image of that class"""
    sync_batch_norm: bool = False
    """batch statistics over all processes of torchrun"""
    evaluate_every: Annotated[int, Field(ge=1)] = 1
    """epochs between evaluations; the last epoch is evaluated"""
    reference_run: str | None = None
    """folder of a finished trial whose losses define the difficulty of the training images; the
    training records easy and hard images separately"""
    difficulty_groups: Annotated[int, Field(ge=2, le=100)] = 5
    """groups of training images of equal size"""
    gradient_norm_samples: Annotated[int, Field(ge=0, le=MAX_DIAGNOSED)] = 0
    """training images whose input-gradient norm of the loss is recorded"""
    patience: Annotated[int | None, Field(ge=1)] = None
    """stop after this many epochs without a better one on the validation part"""

    @model_validator(mode="after")
    def _graphs_hold_one_step(self) -> Self:
        others = {
            "grad_accum_steps above 1": self.grad_accum_steps > 1,
            "compile": self.compile,
            "precision fp16": self.precision == "fp16",
        }
        used = [name for name, is_used in others.items() if is_used]
        if self.cuda_graphs and used:
            raise ValueError(
                f"train.cuda_graphs = true with {' and '.join(used)}: not supported together: "
                "leave one of them out"
            )
        return self

    @model_validator(mode="after")
    def _groups_need_reference(self) -> Self:
        if self.reference_run is None and self.difficulty_groups != 5:
            raise ValueError(
                f"train.difficulty_groups = {self.difficulty_groups} without train.reference_run: "
                "name a finished trial whose losses define the groups"
            )
        return self


class RateTuning(fields.Section):
    """The candidates that every objective chooses from on the validation part of each trial.

    Each of `rates` is one candidate, and the values of the objective's own options are spread over
    the rates: see `objectives.tuning`.
    """

    rates: Annotated[fields.PositiveNumbers | None, Field(min_length=1, max_length=11)] = None
    """learning rates; default: 11 of the optimizer"""


class ImageRecipe(fields.Section):
    """The fields that the recipes of all image tasks share."""

    minimal: ClassVar[Mapping[str, Any]] = {}  # the required keys of a recipe
    grid_keys: ClassVar[Sequence[str]] = ("model",)  # besides the keys of the sections

    paper: fields.Paper | None = None
    table: fields.PaperTable | None = None
    about: fields.About = fields.About()
    task: str
    data: ImageData = ImageData()
    model: Any  # a ModelSpec; None in a recipe that leaves it to its source model
    objectives: Objectives
    optim: Optim = Optim()
    train: Training = Training()
    seeds: fields.Seeds = Field(default=[0])
    tune: RateTuning | None = None
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default={})
    """dotted keys such as data.subset_fraction, each with its values"""

    @field_validator("objectives", mode="before")
    @classmethod
    def _parsed_objectives(cls, texts: Any) -> Any:
        if not isinstance(texts, list):
            return texts
        return check_scale_sources(fields.map_all(texts, parse_any))

    @field_validator("grid")
    @classmethod
    def _valid_grid(cls, grid: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """Check every value alone, so that its error appears whatever else is wrong."""
        sections: dict[str, type[BaseModel]] = {
            "data": ImageData,
            "optim": Optim,
            "train": Training,
        }
        known = [f"{name}.{key}" for name, model in sections.items() for key in model.model_fields]
        known += cls.grid_keys
        problems: list[InitErrorDetails] = []
        for key, values in grid.items():
            if key not in known:
                text = f"grid: unknown key '{key}': expected one of {', '.join(known)}."
                problems.append(_error(text + did_you_mean(key, known), key))
                continue
            place = tuple(key.split("."))
            for number, value in enumerate(values):
                try:
                    cls.model_validate(_with_values(cls.minimal, {key: value}))
                except ValidationError as error:
                    # Errors elsewhere may vanish with other values: `settings` checks that.
                    problems += [
                        _moved_error(one, (key, number, *one["loc"][len(place) :]))
                        for one in error.errors(include_url=False)
                        if one["loc"][: len(place)] == place
                    ]
        count = math.prod(map(len, grid.values()))
        if count > MAX_SETTINGS:
            text = f"grid: {count} combinations: expected at most {MAX_SETTINGS}"
            problems.append(_error(text))
        if problems:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return grid

    @model_validator(mode="after")
    def _valid_validation(self) -> Self:
        if self.data.val_fraction is not None and self.train.reference_run is not None:
            raise ValueError(
                f"data.val_fraction = {self.data.val_fraction:g} with train.reference_run: its "
                "network was trained on all training images: use one of them"
            )
        problem = self.tuning_problem
        if self.tune is not None and problem is not None:
            raise ValueError(f"tune: {problem}")
        return self

    @property
    def tuning_problem(self) -> str | None:
        """Why the recipe cannot be tuned; None if it can."""
        try:
            max_rate(self.optim.lr)
        except ValueError as error:
            return f"optim.lr = {self.optim.lr}: {error}: use another schedule"
        if "optim.lr" in self.grid:
            return "the grid sets optim.lr, which tuning chooses: leave one of them out"
        if self.train.reference_run is not None:
            return "train.reference_run was trained on all training images: leave one of them out"
        return None

    @property
    def tuned_by_default(self) -> bool:
        """Whether comparisons on a user's data are tuned."""
        return False

    @property
    def validation_fraction(self) -> float | None:
        """The fraction of the training images to validate on, unless the data have such a part."""
        if self.data.val_fraction is None and self.tune is not None:
            return TUNING_VALIDATION
        return self.data.val_fraction

    @property
    def candidate_rates(self) -> Sequence[float]:
        return (self.tune and self.tune.rates) or RATES[self.optim.optimizer]

    @model_validator(mode="after")
    def _valid_settings(self) -> Self:
        if self.grid:
            self.settings()
        return self

    def settings(self) -> list[tuple[dict[str, Any], Self]]:
        """Return every distinct combination of the grid with its recipe."""
        settings: dict[str, tuple[dict[str, Any], Self]] = {}
        problems: dict[str, InitErrorDetails] = {}
        base = self.model_dump(exclude={"grid"})
        for combination in itertools.product(*self.grid.values()):
            values = dict(zip(self.grid, combination, strict=True))
            try:
                recipe = type(self).model_validate(_with_values(base, values))
                settings.setdefault(recipe.model_dump_json(), (values, recipe))
            except ValidationError as error:
                for problem in error.errors(include_url=False):
                    text = f"grid: {problem.get('ctx', {}).get('error', problem['msg'])}"
                    problems.setdefault(text, _error(text, "grid"))
        if problems:
            raise ValidationError.from_exception_data(type(self).__name__, list(problems.values()))
        return [stage for values, recipe in settings.values() for stage in recipe.stages(values)]

    def stages(self, values: dict[str, Any]) -> list[tuple[dict[str, Any], Self]]:
        """Return the values and the recipe of each training stage of one setting."""
        return [(values, self)]

    def in_stage(self) -> Self:
        """Return the recipe with the sections of its own training stage."""
        return self

    def revalidated(self, document: dict[str, Any], where: str) -> Self:
        """Return the recipe of a changed document; `where` is what an error begins with."""
        try:
            return type(self).model_validate(document)
        except ValidationError as error:
            raise RequestError(f"{where}: {fields.first_error_line(error)}") from None

    @property
    def names_data(self) -> bool:
        """Whether the recipe names images; the default of `train` is never meant."""
        return "data.name" in self.grid or "name" in self.data.model_fields_set

    def data_like_source(
        self, data: ImageData | None, image_size: int, resizing: Resizing
    ) -> dict[str, Any]:
        """Return the data section that prepares files as for a source model; set values stay.

        Args:
            data: the images that it was trained on; None for weights, whose images are streamed.
            image_size, resizing: of its images; the size is 0 where it is unknown, and so is the
                preparation.
        """
        section = self.data.model_dump(exclude_none=True)
        modes = [loading_modes(name) for name in self.grid.get("data.name", [self.data.name])]
        if not image_size or not any("stream" in mode for mode in modes):
            return section
        stream = (data is None or data.streamed) and all("stream" in mode for mode in modes)
        load = {"load": "stream"} if stream else {}
        section = {"image_size": image_size} | load | section
        is_streamed = all(section.get("load", mode[0]) == "stream" for mode in modes)
        if is_streamed and section["augment"] != "flip":
            section = {"resizing": resizing} | section
        return section

    def row_name(self, setting: Mapping[str, Any]) -> str:
        """Return the row of a table: data, model and the other values of the grid."""
        return f"{self.data.name}, {self.model}{grid_text(setting, ('data.name', 'model'))}"

    @property
    def trainable_blocks(self) -> str:
        """The blocks of the backbone that are trained: `1-4` is all, `head` none."""
        return "1-4"

    @property
    def retrains_classifier(self) -> bool:
        """Whether this is the second stage of a training."""
        return False


def grid_text(setting: Mapping[str, Any], exclude: Sequence[str]) -> str:
    """Return the values of the grid as `, key=value`, without some keys."""
    others = {key: value for key, value in setting.items() if key not in exclude}
    return "".join(f", {key.rpartition('.')[2]}={value}" for key, value in others.items())


def check_same_model(named: ModelSpec | None, model: ModelSpec, source_model: str) -> None:
    """Raise RequestError for a recipe that names another model than its source model has."""
    if named not in (None, model):
        raise RequestError(
            f"model = {named}: the network of {source_model} is {model}: leave 'model' out"
        )


def check_scale_sources(objectives: list[ParsedObjective]) -> list[ParsedObjective]:
    """Return the objectives after a check of those that take their scale from a run.

    A source that is not an objective is a path, which is checked when the recipe runs. A source
    has a least-squares scale and takes none from a run itself, so there are no circles.
    """
    problems = []
    names = [str(objective) for objective in objectives]
    sources = [str(o) for o in objectives if o.spec.scale.kind == "least-squares"]
    for name, objective in zip(names, objectives, strict=True):
        source = scale_source(objective.spec)
        if source is None or source.source in sources or not _is_objective(source.source):
            continue
        text = f"objective '{name}': from_run = {source.source}: "
        if source.source in names:
            text += "has no kappa*: expected one with the least-squares scale, such as cosine-ls"
        else:
            text += "is no objective of this recipe: add it to 'objectives'."
        problems.append(text + did_you_mean(source.source, sources))
    if problems:
        raise ValueError("\n".join(problems))
    return objectives


def sources_first(objectives: Sequence[ParsedObjective]) -> list[ParsedObjective]:
    """Return the objectives in their order, those that need another one's kappa* last."""
    names = [str(objective) for objective in objectives]
    return sorted(objectives, key=lambda o: getattr(scale_source(o.spec), "source", "") in names)


def _is_objective(text: str) -> bool:
    try:
        parse(text)
    except RequestError:
        return False
    return True


def _with_values(document: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's document with the values of dotted keys."""
    changed = {**document}
    for key, value in values.items():
        outer, _, inner = key.partition(".")
        changed[outer] = {**changed.get(outer, {}), inner: value} if inner else value
    return changed


def _moved_error(error: Mapping[str, Any], place: tuple[str | int, ...]) -> InitErrorDetails:
    """Return one of pydantic's errors at another place of the document."""
    kind = error["type"]
    if kind == fields.CUSTOM_ERROR:
        kind = PydanticCustomError(fields.CUSTOM_ERROR, "{text}", {"text": error["msg"]})
    return InitErrorDetails(type=kind, loc=place, input=error["input"], ctx=error.get("ctx", {}))


def _error(text: str, *place: str) -> InitErrorDetails:
    return InitErrorDetails(
        type="value_error", loc=place, input=None, ctx={"error": ValueError(text)}
    )
