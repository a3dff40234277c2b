"""What a backbone is, and how one is made by name."""

import importlib
from collections.abc import Mapping

from torch import Tensor, nn

from marginctl.models.registry import (
    EMBEDDING,
    OF_TORCHVISION,
    check_image_shape,
    check_model,
    find_backbone,
)


class Backbone(nn.Module):
    """Maps images (N, channels, H, W) to features (N, feature_dim).

    A class that `names.MODELS` names is built with `channels` and `pixels`, the model's settings
    and its options. Where it averages over all pixels at the end, it takes images of other sizes
    than `pixels` too, and rectangles.

    Attributes:
        feature_dim: the length of a feature.
    """

    def __init__(self, feature_dim: int) -> None:
        super().__init__()
        self.feature_dim = feature_dim

    def forward(self, images: Tensor) -> Tensor:
        raise NotImplementedError


class Embedded(Backbone):
    """A backbone and a feature layer: linear without bias, then normalised over the batch.

    As is usual for faces, with a length of 512; that no dropout stands before it and that the
    normalisation has its factor and shift is ours.

    Args:
        backbone: what gives the features (N, d).
        feature_dim: their length after the layer.
    """

    def __init__(self, backbone: Backbone, feature_dim: int) -> None:
        super().__init__(feature_dim)
        self.backbone = backbone
        self.embedding = nn.Sequential(
            nn.Linear(backbone.feature_dim, feature_dim, bias=False), nn.BatchNorm1d(feature_dim)
        )

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.embedding(self.backbone(images))
        return features


def create_backbone(
    name: str, options: Mapping[str, object], channels: int, pixels: int
) -> Backbone:
    """The model `name` with initial weights drawn from torch's global stream.

    Args:
        name: one of `names.MODELS`, another classifier of torchvision, or one of timm's.
        options: those of the model that differ from their defaults.
        channels: of an image; torchvision's models take 3.
        pixels: an image's side.

    Raises:
        RequestError: no such model or option, a value outside its range, or images that the model
            cannot take.
    """
    accepted = check_model(name, options)
    check_image_shape(name, channels, pixels)
    model = find_backbone(name)
    length = accepted.pop(EMBEDDING)
    if model.made_by is None:
        from marginctl.models.backbones.torchvision_backbone import FromTorchvision

        backbone: Backbone = FromTorchvision(name.removeprefix(OF_TORCHVISION))
    else:
        module, _, named = model.made_by.partition(":")
        made = getattr(importlib.import_module(module), named)
        backbone = made(channels, pixels, **model.settings, **accepted)
    return Embedded(backbone, length) if length else backbone
