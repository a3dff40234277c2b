"""Resizing: how an image in a file becomes the square that a network gets."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Resizing(BaseModel):
    """Resizing, antialiased, and cropping of images in files that are not augmented.

    Random crops take the resized side and the interpolation from it, too.

    - `center` resizes the short side to image_size / crop_fraction, rounded, and crops the center.
    - `squash` resizes both sides to that, whatever their ratio, and crops the center.
    - `square` resizes the largest centered square (bilinear), as for images in memory.

    The names are timm's, whose crop_pct is crop_fraction; the defaults are torchvision's.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    crop_fraction: Annotated[float, Field(gt=0, le=1)] = 224 / 256
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    crop_mode: Literal["center", "squash", "square"] = "center"


CENTER, SQUARE = Resizing(), Resizing(crop_mode="square")
