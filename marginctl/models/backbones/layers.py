"""Layers that several backbones share."""

import math

from torch import Tensor, nn

from marginctl.models.backbone import Backbone


class Pooled(Backbone):
    """Convolutional layers, then global average pooling."""

    def __init__(self, layers: nn.Sequential, feature_dim: int) -> None:
        super().__init__(feature_dim)
        self.layers = layers
        init_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.layers(images)
        return maps.mean((2, 3))


def init_convolutions(network: nn.Module) -> None:
    """Draw Kaiming's normal weights by fan-out (He 2015) and set biases to zero.

    torch's `kaiming_normal_` ignores the groups of a convolution when it counts the fan-out.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * math.prod(module.kernel_size) / module.groups
            nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def convolution(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    *,
    stride: int = 1,
    padding: int | None = None,
    groups: int = 1,
    relu: bool = True,
) -> nn.Sequential:
    """Return a convolution without bias, batch normalisation, and a ReLU if wanted."""
    padding = kernel // 2 if padding is None else padding
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([nn.ReLU(inplace=True)] if relu else []))


def scaled(channels: int, width: float) -> int:
    """Return `channels` times the width multiplier, at least 1."""
    return max(1, round(channels * width))
