"""Backbone: the base class of networks that map images to features."""

from torch import Tensor, nn


class Backbone(nn.Module):
    """Maps images (N, channels, H, W) to features (N, feature_dim).

    A subclass that the registry names is built as `Class(channels, image_size, **settings,
    **options)`. Most backbones average over all positions at the end, so that they also accept
    images of other sizes than `image_size`, and rectangles.
    """

    def __init__(self, feature_dim: int) -> None:
        super().__init__()
        self.feature_dim = feature_dim

    def forward(self, images: Tensor) -> Tensor:
        raise NotImplementedError


class EmbeddedBackbone(Backbone):
    """A backbone and an embedding layer: linear without bias, then batch normalisation.

    This is usual for face recognition, with a length of 512. That no dropout comes before it and
    that the normalisation has scale and shift is our choice.
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


def replace_module(network: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, attribute = path.rpartition(".")
    setattr(network.get_submodule(parent), attribute, module)


def last_linear(network: nn.Module) -> tuple[str, nn.Linear] | None:
    """Return the path and the module of a classifier's last linear layer, None without any.

    A model of timm names its classifier; one without classes has none.
    """
    linear = [(path, m) for path, m in network.named_modules() if isinstance(m, nn.Linear)]
    if callable(head := getattr(network, "get_classifier", None)):
        linear = [(path, m) for path, m in linear if m is head()]
    return linear[-1] if linear else None
