"""Models of timm as backbones. timm is an extra: it is imported when one of them is asked for."""

import functools
from typing import Any

import torch
from torch import Tensor

from marginctl.errors import RequestError
from marginctl.models.backbone import Backbone
from marginctl.utils.text import did_you_mean


class FromTimm(Backbone):
    """A model of timm without its last linear layer, whose input is the feature.

    What stands before that layer stays, as its pooling and its dropout do. A model that is made
    for one size of images, as vision transformers are, is made for these.

    Args:
        channels: of an image.
        pixels: an image's side.
        name: as timm calls it.

    Raises:
        RequestError: as `feature_length`.
    """

    def __init__(self, channels: int, pixels: int, name: str) -> None:
        super().__init__(feature_length(name, channels, pixels))
        self.network = _made(name, channels, pixels)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network(images)
        return features


@functools.cache
def feature_length(name: str, channels: int, pixels: int) -> int:
    """The length of the features that a model gives for images of a shape.

    What timm itself says (`num_features`) is the length before the last layers of some heads, so a
    network without memory, on torch's meta device, is asked.

    Raises:
        RequestError: timm is not installed or has no such model, or the model does not take
            such images.
    """
    timm = _timm(name)
    if not timm.is_model(name):
        near = did_you_mean(f"timm/{name}", [f"timm/{known}" for known in timm.list_models()])
        raise RequestError(f"unknown model 'timm/{name}': timm {timm.__version__} has none.{near}")
    asked = f"model 'timm/{name}': images of {channels} x {pixels} x {pixels}"
    try:
        with torch.device("meta"), torch.no_grad():
            network = _made(name, channels, pixels).eval()
            features = network(torch.empty(2, channels, pixels, pixels))
    except Exception as error:  # each architecture says in its own way what it cannot take
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise RequestError(
            f"{asked}: it does not take them ({said}): enlarge them, or take another model"
        ) from None
    if not isinstance(features, Tensor) or features.dim() != 2:
        raise RequestError(f"{asked}: it gives no single feature of each: take another model")
    return features.shape[1]


def _made(name: str, channels: int, pixels: int) -> Any:
    """timm's network on the default device, with weights from torch's global stream."""
    timm = _timm(name)
    known = timm.get_pretrained_cfg(name)
    sized = {"img_size": pixels} if known is not None and known.fixed_input_size else {}
    return timm.create_model(name, pretrained=False, num_classes=0, in_chans=channels, **sized)


def _timm(name: str) -> Any:
    try:
        import timm
    except ModuleNotFoundError as error:
        if error.name != "timm":
            raise
        raise RequestError(
            f"model 'timm/{name}': timm is not installed: pip install 'marginctl[timm]', or take "
            "one of marginctl's own models or of torchvision's"
        ) from None
    return timm
