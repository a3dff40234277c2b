"""The schema of a `train` recipe."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from marginctl.data.image_sets import check_images_name, foreign_name, ways_to_load
from marginctl.models.names import canonical_model
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
from marginctl.recipe.sources import with_sources
from marginctl.text import did_you_mean

MOST_SETTINGS = 10_000  # of a grid
MOST_WATCHED = 5_000  # training images of which a record is kept by epoch

_Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


class ImageData(BaseModel):
    """What is trained on and tested on."""

    model_config = STRICT

    name: Annotated[str, Field(description="a set of images, folder:PATH or list:PATH")] = "digits"
    load: Annotated[
        Literal["memory", "stream"] | None,
        Field(description="images held whole, or decoded batch by batch; left out: as suits them"),
    ] = None
    pixels: Annotated[
        int | None,
        Field(
            ge=4,
            le=1024,
            description="of images in files, which are cut square; left out: 64, streamed 224",
        ),
    ] = None
    share: Annotated[_Share, Field(description="of the training images of each class")] = 1.0
    samples: Annotated[
        int | None, Field(ge=2, description="so many training images in all, in place of a share")
    ] = None
    label_noise: Annotated[
        float,
        Field(ge=0, lt=1, allow_inf_nan=False, description="share of training labels made wrong"),
    ] = 0.0
    augment: Annotated[
        Literal["none", "crop", "crop-flip", "scaled-flip", "imagenet"],
        Field(
            description="crops with 4 pixels of the mean colour around, or at random of streamed "
            "images; mirrored at random; scaled-flip: random parts of streamed images in place of "
            "crops; imagenet: colours and light too"
        ),
    ] = "none"
    blacklist: Annotated[
        str | None, Field(description="a file of test images to leave out, of a streamed set")
    ] = None

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return _in_own_words(check_images_name, name)

    @model_validator(mode="after")
    def _fits(self) -> "ImageData":
        ways = ways_to_load(self.name)
        if self.load is not None and self.load not in ways:
            raise ValueError(f"data.load = {self.load} of {self.name}: expected {ways[0]}")
        of_files = ("none", "crop-flip", "scaled-flip", "imagenet")
        kinds = of_files if self.streamed else ("none", "crop", "crop-flip")
        if self.augment not in kinds:
            how = "streamed" if self.streamed else "held in memory"
            raise ValueError(
                f"data.augment = {self.augment} of {self.name}, {how}: expected one of "
                f"{', '.join(kinds)}"
            )
        if self.blacklist is not None and not self.streamed:
            raise ValueError(
                f"data.blacklist = {self.blacklist} of {self.name}: expected a streamed set"
            )
        return self

    @property
    def streamed(self) -> bool:
        """Whether the images stay in their files."""
        return (self.load or ways_to_load(self.name)[0]) == "stream"

    @property
    def side(self) -> int:
        """The side of images in files."""
        return self.pixels or (224 if self.streamed else 64)


class Optim(BaseModel):
    """How the weights are moved. The defaults are ours, and so are those of `Training`."""

    model_config = STRICT

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Rate = "cosine(end=0,start=0.1)"
    lr_by: Annotated[Literal["step", "epoch"], Field(description="when a scheduled rate moves")] = (
        "step"
    )
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
    accumulate: Annotated[
        int, Field(ge=1, le=10_000, description="parts of a batch, one after the other")
    ] = 1
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"],
        Field(description="of the backbone; auto: bf16 where it is fast, else fp32"),
    ] = "auto"
    compile: bool = False
    sync_batch_norm: Annotated[
        bool, Field(description="statistics over all processes of a torchrun")
    ] = False
    evaluate_every: Annotated[int, Field(ge=1, description="epochs; the last one always")] = 1
    reference: Annotated[
        str | None,
        Field(
            description="folder of a finished trial: its losses say how hard each training image "
            "is, and what becomes of easy and hard ones is recorded"
        ),
    ] = None
    groups: Annotated[
        int, Field(ge=2, le=100, description="of training images by difficulty, of equal size")
    ] = 5
    lipschitz: Annotated[
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
        if self.reference is None and self.groups != 5:
            raise ValueError(
                f"train.groups = {self.groups} without train.reference: name a finished trial "
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
    ood: Annotated[
        list[str],
        Field(
            description="sets of foreign images, NAME, near=NAME or far=NAME: their test parts are "
            "to be told from the data's own"
        ),
    ] = []
    seeds: Seeds = [0]
    grid: Annotated[
        dict[str, Annotated[list[Any], Field(min_length=1)]],
        Field(description="dotted keys such as data.share, each with the values to try"),
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
        return _in_own_words(canonical_model, written)

    @field_validator("ood")
    @classmethod
    def _known_ood(cls, written: list[str]) -> list[str]:
        each(written, foreign_name)
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
        return list(seen.values())


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


def _in_own_words(read: Any, written: str) -> str:
    """What `each` makes of one value: its problems, line by line."""
    return each([written], read)[0]
