"""ImageTransform: the augmentation of decoded images on disk."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from marginctl.data.images.folders import centre_square
from marginctl.data.images.resizing import CENTER, Resizing
from marginctl.utils.seed import generator

if TYPE_CHECKING:
    from PIL.Image import Image

# Szegedy 2014 (Going Deeper with Convolutions, section 6): a crop of 8 % to 100 % of the area with
# an aspect ratio between 3/4 and 4/3.
CROP_AREA = (0.08, 1.0)
CROP_RATIO = (3 / 4, 4 / 3)

# The author's port of Large Margin in Softmax on ImageNet: colour jitter 0.4, PCA lighting (std
# 0.1) along the principal components of ImageNet's colours, for pixels in [0, 1] (Krizhevsky 2012
# gives the method; the numbers are those in common use).
JITTER = 0.4
LIGHTING_STD = 0.1
PCA_EIGENVALUES = (0.2175, 0.0188, 0.0045)
PCA_EIGENVECTORS = (
    (-0.5675, 0.7192, 0.4009),
    (-0.5808, -0.0045, -0.8140),
    (-0.5836, -0.6948, 0.4203),
)


@dataclass(frozen=True)
class ImageTransform:
    """Resizes and crops an image to a square, at random for training.

    - `none` resizes and crops as `resizing` says, as for test images.
    - `random-crop-flip` crops at random instead, and flips horizontally at random.
    - `random-resized-crop-flip` resizes a random crop (Szegedy 2014) and flips at random, as is
      usual for ImageNet.
    - `imagenet` adds colour jitter and PCA lighting to that.
    - `flip` resizes the largest centred square and flips it at random: aligned faces lose nothing.

    Random draws are a function of (seed, epoch, draw), whichever process makes them; `draw` is
    explained in `DecodedImages`.
    """

    image_size: int
    augment: str = "none"
    seed: int = 0
    epoch: int = 0
    resizing: Resizing = CENTER

    def __call__(self, image: "Image", draw: int) -> tuple[Tensor, Tensor]:
        """Return x (3, image_size, image_size) uint8, and a shift (3,) of its colours in [0, 1]."""
        with torch.random.fork_rng(devices=[]):
            if self.augment != "none":
                stream = generator(self.seed, "augment image", self.epoch, draw)
                torch.default_generator.manual_seed(int(stream.integers(2**63)))
            x = compose(self.image_size, self.augment, self.resizing)(image)
            shift = _pca_lighting() if self.augment == "imagenet" else torch.zeros(3)
        return x, shift


@functools.cache
def compose(image_size: int, augment: str, resizing: Resizing) -> Callable[["Image"], Tensor]:
    """Return torchvision's transform to (3, image_size, image_size) uint8."""
    from torchvision.transforms import v2  # takes seconds

    flip, mode = v2.RandomHorizontalFlip(), v2.InterpolationMode(resizing.interpolation)
    if augment in ("imagenet", "random-resized-crop-flip"):
        steps = [v2.RandomResizedCrop(image_size, CROP_AREA, CROP_RATIO, mode), flip]
        if augment == "imagenet":
            steps.append(v2.ColorJitter(JITTER, JITTER, JITTER))
    elif augment == "flip" or (augment == "none" and resizing.crop_mode == "square"):
        square = partial(centre_square, image_size=image_size)
        steps = [square, flip] if augment == "flip" else [square]
    else:
        side = round(image_size / resizing.crop_fraction)
        resize = v2.Resize([side, side] if resizing.crop_mode == "squash" else side, mode)
        crop = v2.CenterCrop if augment == "none" else v2.RandomCrop
        steps = [resize, crop(image_size)]
        if augment == "random-crop-flip":
            steps.append(flip)
    composed: Callable[[Image], Tensor] = v2.Compose([*steps, v2.PILToTensor()])
    return composed


def _pca_lighting() -> Tensor:
    """Return the shift (3,) of red, green and blue: sum_i a_i lambda_i p_i, a_i ~ N(0, 0.1^2)."""
    coefficients = LIGHTING_STD * torch.randn(3)
    return torch.tensor(PCA_EIGENVECTORS) @ (coefficients * torch.tensor(PCA_EIGENVALUES))
