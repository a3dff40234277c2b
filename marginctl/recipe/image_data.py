"""The images of a recipe: which ones, and what is made of them before and while training."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from marginctl.data.images.registry import FOLDER_PREFIX, check_image_set_name, loading_modes
from marginctl.recipe.fields import STRICT, each

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
    test_share: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            allow_inf_nan=False,
            description="of each class's images in a folder PATH/CLASS/IMAGE: its test part",
        ),
    ] = None
    share: Annotated[_Share, Field(description="of the training images of each class")] = 1.0
    samples: Annotated[
        int | None, Field(ge=2, description="so many training images in all, in place of a share")
    ] = None
    imbalance: Annotated[
        float | None,
        Field(
            ge=1,
            le=1e6,
            allow_inf_nan=False,
            description="a long tail: training images of class 0 to those of the last class, and "
            "exponentially fewer from class to class",
        ),
    ] = None
    largest: Annotated[
        int | None,
        Field(
            ge=1,
            description="images of class 0 in a long tail; left out: as many as every class has",
        ),
    ] = None
    label_noise: Annotated[
        float,
        Field(ge=0, lt=1, allow_inf_nan=False, description="share of training labels made wrong"),
    ] = 0.0
    augment: Annotated[
        Literal["none", "flip", "crop", "crop-flip", "scaled-flip", "imagenet"],
        Field(
            description="crops with 4 pixels of the mean colour around, or at random of streamed "
            "images; mirrored at random; flip: whole squares, also in the test; scaled-flip: "
            "random parts of streamed images in place of crops; imagenet: colours and light too"
        ),
    ] = "none"
    blacklist: Annotated[
        str | None, Field(description="a file of test images to leave out, of a streamed set")
    ] = None

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return each([name], check_image_set_name)[0]

    @model_validator(mode="after")
    def _fits(self) -> "ImageData":
        ways = loading_modes(self.name)
        if self.load is not None and self.load not in ways:
            raise ValueError(f"data.load = {self.load} of {self.name}: expected {ways[0]}")
        of_files = ("none", "flip", "crop-flip", "scaled-flip", "imagenet")
        kinds = of_files if self.streamed else ("none", "flip", "crop", "crop-flip")
        if self.augment not in kinds:
            how = "streamed" if self.streamed else "held in memory"
            raise ValueError(
                f"data.augment = {self.augment} of {self.name}, {how}: expected one of "
                f"{', '.join(kinds)}"
            )
        if self.test_share is not None and not self.name.startswith(FOLDER_PREFIX):
            raise ValueError(
                f"data.test_share = {self.test_share:g} of {self.name}: expected "
                f"{FOLDER_PREFIX}PATH: other sets have a test part"
            )
        if self.imbalance is None and self.largest is not None:
            raise ValueError(
                f"data.largest = {self.largest} without data.imbalance: it is of a long tail: "
                "say how long, such as data.imbalance = 100"
            )
        if self.imbalance is not None and (self.samples is not None or self.share < 1):
            said = (
                f"share = {self.share:g}" if self.samples is None else f"samples = {self.samples}"
            )
            raise ValueError(
                f"data.imbalance = {self.imbalance:g} and data.{said}: expected one of the two: a "
                "long tail is made smaller by data.largest"
            )
        if self.blacklist is not None and not self.streamed:
            raise ValueError(
                f"data.blacklist = {self.blacklist} of {self.name}: expected a streamed set"
            )
        return self

    @property
    def streamed(self) -> bool:
        """Whether the images stay in their files."""
        return (self.load or loading_modes(self.name)[0]) == "stream"

    @property
    def side(self) -> int:
        """The side of images in files."""
        return self.pixels or (224 if self.streamed else 64)
