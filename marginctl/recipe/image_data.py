"""The `data` section of an image recipe: which images, and how they are prepared."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from marginctl.data.images import registry
from marginctl.data.images.resizing import CENTER, SQUARE, Resizing
from marginctl.recipe.fields import Section, map_all

_IN_MEMORY_AUGMENTS = ("none", "flip", "random-crop", "random-crop-flip", "reflect-crop-flip")
_STREAMED_AUGMENTS = ("none", "flip", "random-crop-flip", "random-resized-crop-flip", "imagenet")


class ImageData(Section):
    """The images to train and test on."""

    name: str = "digits"
    """an image data set, folder:PATH or list:PATH"""
    load: Literal["memory", "stream"] | None = None
    """memory: all images are held in memory; stream: images are decoded batch by batch; default: as
    the data set allows"""
    image_size: Annotated[int | None, Field(ge=4, le=1024)] = None
    """height and width of images read from files, in pixels; default: 64, or 224 if streamed"""
    test_fraction: Annotated[float | None, Field(gt=0, lt=1, allow_inf_nan=False)] = None
    """fraction of each class of a folder PATH/CLASS/IMAGE that is its test part (default: 0.2)"""
    val_fraction: Annotated[float | None, Field(gt=0, lt=1, allow_inf_nan=False)] = None
    """fraction of the training images, drawn by the seed of a trial, that is its validation part:
    it chooses the epoch, and the test part is measured once"""
    groups: str | None = None
    """images of one person or object, which are held out together: a CSV file with the columns
    image and group, or re:PATTERN, whose first parentheses match the group in a file's name"""
    subset_fraction: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    """fraction of the training images of each class to use"""
    subset_size: Annotated[int | None, Field(ge=2)] = None
    """number of training images to use, instead of a fraction"""
    imbalance_factor: Annotated[float | None, Field(ge=1, le=1e6, allow_inf_nan=False)] = None
    """long tail: ratio of the training images of class 0 to those of the last class; counts fall
    exponentially from class to class"""
    max_per_class: Annotated[int | None, Field(ge=1)] = None
    """training images of class 0 in a long tail; default: as many as every class has"""
    label_noise: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    """fraction of training labels made wrong"""
    augment: Literal[
        "none",
        "flip",
        "random-crop",
        "random-crop-flip",
        "reflect-crop-flip",
        "random-resized-crop-flip",
        "imagenet",
    ] = "none"
    """random-crop: crops after padding with 4 pixels of the mean colour, or random crops of
    streamed images; reflect-crop-flip: the same with reflected pixels; flip: horizontal flips of
    the whole square, which is also the test image; random-resized-crop-flip: streamed images only;
    imagenet: with colour jitter and lighting noise"""
    resizing: Resizing | None = None
    """of streamed images; default: torchvision's, or that of weights by name"""
    exclude: str | None = None
    """file that lists test images of a streamed data set to leave out"""

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return map_all([name], registry.check_image_set_name)[0]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ways = registry.loading_modes(self.name)
        if self.load is not None and self.load not in ways:
            raise ValueError(f"data.load = {self.load} of {self.name}: expected {ways[0]}")
        augments = _STREAMED_AUGMENTS if self.streamed else _IN_MEMORY_AUGMENTS
        if self.augment not in augments:
            place = "streamed" if self.streamed else "held in memory"
            raise ValueError(
                f"data.augment = {self.augment} of {self.name}, {place}: expected one of "
                f"{', '.join(augments)}"
            )
        if self.test_fraction is not None and not self.name.startswith(registry.FOLDER_PREFIX):
            raise ValueError(
                f"data.test_fraction = {self.test_fraction:g} of {self.name}: expected "
                f"{registry.FOLDER_PREFIX}PATH: other data sets have a test part"
            )
        if self.groups is not None:
            if not self.name.startswith((registry.FOLDER_PREFIX, registry.LIST_PREFIX)):
                raise ValueError(
                    f"data.groups = {self.groups} of {self.name}: expected "
                    f"{registry.FOLDER_PREFIX}PATH or {registry.LIST_PREFIX}PATH, whose files have "
                    "names"
                )
            if self.groups.startswith(registry.PATTERN_PREFIX):
                map_all([self.groups], registry.parse_pattern)
        if self.imbalance_factor is None and self.max_per_class is not None:
            raise ValueError(
                f"data.max_per_class = {self.max_per_class} without data.imbalance_factor: it is "
                "the size of class 0 of a long tail: set data.imbalance_factor = 100"
            )
        if self.imbalance_factor is not None and (
            self.subset_size is not None or self.subset_fraction < 1
        ):
            key = "subset_fraction" if self.subset_size is None else "subset_size"
            raise ValueError(
                f"data.imbalance_factor = {self.imbalance_factor:g} and data.{key} = "
                f"{getattr(self, key):g}: expected one of the two: data.max_per_class makes a long "
                "tail smaller"
            )
        for key in ("exclude", "resizing"):
            if getattr(self, key) is not None and not self.streamed:
                raise ValueError(
                    f"data.{key} = {getattr(self, key)} of {self.name}: expected a streamed data "
                    "set"
                )
        if self.resizing is not None and self.augment == "flip":
            raise ValueError(
                f"data.resizing = {self.resizing} with data.augment = flip, which resizes the "
                "largest centered square: leave data.resizing out"
            )
        return self

    @property
    def streamed(self) -> bool:
        """Whether images are decoded from their files batch by batch."""
        return (self.load or registry.loading_modes(self.name)[0]) == "stream"

    @property
    def test_resizing(self) -> Resizing:
        """How a file is resized and cropped like the test images, in memory or streamed."""
        streamed = self.streamed and self.augment != "flip"
        return (self.resizing or CENTER) if streamed else SQUARE

    @property
    def resolved_size(self) -> int:
        """Height and width of images that are read from files, in pixels."""
        return self.image_size or (224 if self.streamed else 64)
