"""The schema of a `train` recipe."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from marginctl.data.images.registry import parse_ood_name
from marginctl.models.registry import canonical_model
from marginctl.recipe.fields import (
    OWN_WORDS,
    STRICT,
    About,
    Paper,
    PaperTable,
    Rate,
    Seeds,
    canonical_objective,
    each,
)
from marginctl.recipe.image_data import ImageData
from marginctl.recipe.scale_sources import with_sources
from marginctl.recipe.second_stage import Sampling, Second
from marginctl.utils.text import did_you_mean

MOST_SETTINGS = 10_000  # of a grid
MOST_WATCHED = 5_000  # training images of which a record is kept by epoch

R = TypeVar("R", bound="TrainRecipe")


class Optim(BaseModel):
    """How the weights are moved. The defaults are ours, and so are those of `Training`."""

    model_config = STRICT

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Rate = "cosine(end=0,start=0.1)"
    lr_interval: Annotated[
        Literal["step", "epoch"], Field(description="when a scheduled rate moves")
    ] = "step"
    momentum: Annotated[float, Field(ge=0, lt=1, description="of sgd alone")] = 0.9
    nesterov: bool = False
    weight_decay: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 5e-4

    @model_validator(mode="after")
    def _fits(self) -> "Optim":
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise ValueError(
                f"optim.nesterov = true with optimizer = {self.optimizer} and momentum = "
                f"{self.momentum:g}: expected sgd and a momentum above 0"
            )
        return self


class Training(BaseModel):
    """How long, in what batches and in what arithmetic."""

    model_config = STRICT

    epochs: Annotated[int, Field(ge=1, le=100_000)] = 10
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 128
    grad_accum_steps: Annotated[
        int, Field(ge=1, le=10_000, description="parts of a batch, one after the other")
    ] = 1
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"],
        Field(description="of the backbone; auto: bf16 where it is fast, else fp32"),
    ] = "auto"
    compile: bool = False
    sampling: Annotated[
        Sampling,
        Field(
            description="random: every image once an epoch; class-balanced: as many draws, each of "
            "a class at random, then of an image of it"
        ),
    ] = "random"
    sync_batch_norm: Annotated[
        bool, Field(description="statistics over all processes of a torchrun")
    ] = False
    evaluate_every: Annotated[int, Field(ge=1, description="epochs; the last one always")] = 1
    reference_run: Annotated[
        str | None,
        Field(
            description="folder of a finished trial: its losses say how hard each training image "
            "is, and what becomes of easy and hard ones is recorded"
        ),
    ] = None
    difficulty_groups: Annotated[
        int, Field(ge=2, le=100, description="of training images by difficulty, of equal size")
    ] = 5
    gradient_norm_samples: Annotated[
        int,
        Field(
            ge=0,
            le=MOST_WATCHED,
            description="training images whose gradient of the loss with respect to the image is "
            "recorded",
        ),
    ] = 0

    @model_validator(mode="after")
    def _fits(self) -> "Training":
        if self.reference_run is None and self.difficulty_groups != 5:
            raise ValueError(
                f"train.difficulty_groups = {self.difficulty_groups} without "
                "train.reference_run: name a finished trial "
                "whose losses make the groups"
            )
        return self


class TrainRecipe(BaseModel):
    """Training of objectives on images: what `marginctl train` runs."""

    model_config = STRICT
    least: ClassVar[Mapping[str, Any]] = {"task": "train"}  # a recipe with all at its defaults
    own_keys: ClassVar[Sequence[str]] = ("model",)  # of a grid, beside those of the sections

    paper: Paper | None = None
    table: PaperTable | None = None
    about: About = About()
    task: Literal["train"]
    data: ImageData = ImageData()
    model: Annotated[str, Field(description="a backbone: NAME:option=value,...")] = "resnet18"
    objectives: Annotated[list[str], Field(min_length=1)] = ["soft"]
    optim: Optim = Optim()
    train: Training = Training()
    second_stage: Annotated[
        Second | None,
        Field(description="a second stage, with a new classifier on the frozen backbone"),
    ] = None
    ood: Annotated[
        list[str],
        Field(
            description="sets of foreign images, NAME, near=NAME or far=NAME: their test parts are "
            "to be told from the data's own"
        ),
    ] = []
    pairs: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(
            description="lists of pairs of images, which lie beside them, that the network is to "
            "verify: are they of one identity?"
        ),
    ] = []
    seeds: Seeds = [0]
    grid: Annotated[
        dict[str, Annotated[list[Any], Field(min_length=1)]],
        Field(description="dotted keys such as data.subset_fraction, each with the values to try"),
    ] = {}

    @field_validator("objectives", mode="before")
    @classmethod
    def _canonical_objectives(cls, written: Any) -> Any:
        if not isinstance(written, list):
            return written
        return with_sources(each(written, canonical_objective))

    @field_validator("model")
    @classmethod
    def _canonical_model(cls, written: str) -> str:
        return each([written], canonical_model)[0]

    @field_validator("ood")
    @classmethod
    def _known_ood(cls, written: list[str]) -> list[str]:
        each(written, parse_ood_name)
        return written

    @field_validator("seeds")
    @classmethod
    def _distinct_seeds(cls, seeds: list[int]) -> list[int]:
        return list(dict.fromkeys(seeds))

    @field_validator("grid")
    @classmethod
    def _known_grid(cls, grid: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """Each value alone: what is wrong is said whatever else is wrong in the recipe."""
        sections: dict[str, type[BaseModel]] = {
            "data": ImageData,
            "optim": Optim,
            "train": Training,
        }
        known = [f"{name}.{key}" for name, own in sections.items() for key in own.model_fields]
        known += cls.own_keys
        problems: list[InitErrorDetails] = []
        for key, values in grid.items():
            if key not in known:
                said = f"grid: unknown key '{key}': expected one of {', '.join(known)}."
                problems.append(_problem(said + did_you_mean(key, known), key))
                continue
            place = tuple(key.split("."))
            for number, value in enumerate(values):
                found = _wrong_in(cls, _set(cls.least, {key: value}))
                # beside other values it may fit: that is asked when all are known
                own = [p for p in found if p["loc"][: len(place)] == place]
                problems += [_placed(p, (key, number, *p["loc"][len(place) :])) for p in own]
        count = math.prod(map(len, grid.values()))
        if count > MOST_SETTINGS:
            said = f"grid: {count} combinations: expected at most {MOST_SETTINGS}"
            problems.append(_problem(said))
        if problems:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return grid

    @model_validator(mode="after")
    def _grid_fits(self) -> "TrainRecipe":
        if self.grid:
            self.settings()
        return self

    def settings(self) -> list[tuple[dict[str, Any], Self]]:
        """Every combination of the grid, with the recipe that it makes.

        Of two stages each has a setting: `first` has the recipe without the second one, and
        `second` the whole.

        Raises:
            ValidationError: values that do not go together.
        """
        seen: dict[str, tuple[dict[str, Any], Self]] = {}  # each once, however written
        problems: dict[str, InitErrorDetails] = {}
        base = self.model_dump(exclude={"grid"})
        for values in itertools.product(*self.grid.values()):
            setting = dict(zip(self.grid, values, strict=True))
            try:
                made = type(self).model_validate(_set(base, setting))
                seen.setdefault(made.model_dump_json(), (setting, made))
            except ValidationError as error:
                for problem in error.errors(include_url=False):
                    said = f"grid: {problem.get('ctx', {}).get('error', problem['msg'])}"
                    problems.setdefault(said, _problem(said, "grid"))
        if problems:
            raise ValidationError.from_exception_data(type(self).__name__, list(problems.values()))
        return [stage for setting, made in seen.values() for stage in _stages(setting, made)]

    def in_stage(self) -> Self:
        """A setting's recipe with the sections that its own stage trains with."""
        if self.second_stage is None:
            return self
        return self.model_copy(update=self.second_stage.over(self.optim, self.train))


def _stages(setting: dict[str, Any], made: R) -> list[tuple[dict[str, Any], R]]:
    """A setting for each stage of a recipe without a grid; itself where there is but one."""
    if made.second_stage is None:
        return [(setting, made)]
    first = made.model_copy(update={"second_stage": None})
    return [
        ({**setting, "stage": "first"}, first),
        ({**setting, "stage": str(made.second_stage)}, made),
    ]


def _set(document: Mapping[str, Any], setting: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's document with the values of dotted keys."""
    changed = {**document}
    for key, value in setting.items():
        outer, _, inner = key.partition(".")
        changed[outer] = {**changed.get(outer, {}), inner: value} if inner else value
    return changed


def _wrong_in(model: type[BaseModel], document: Mapping[str, Any]) -> list[Any]:
    """pydantic's errors of a document."""
    try:
        model.model_validate(document)
    except ValidationError as error:
        return list(error.errors(include_url=False))
    return []


def _placed(problem: Mapping[str, Any], place: tuple[str | int, ...]) -> InitErrorDetails:
    """One of pydantic's errors at another place of the document."""
    kind = problem["type"]
    if kind == OWN_WORDS:
        kind = PydanticCustomError(OWN_WORDS, "{text}", {"text": problem["msg"]})
    return InitErrorDetails(
        type=kind, loc=place, input=problem["input"], ctx=problem.get("ctx", {})
    )


def _problem(said: str, *place: str) -> InitErrorDetails:
    """An error in words of ours."""
    return InitErrorDetails(
        type="value_error", loc=place, input=None, ctx={"error": ValueError(said)}
    )
