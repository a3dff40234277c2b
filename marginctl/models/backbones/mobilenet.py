"""MobileNet, the first version (Howard et al. 2017)."""

from torch import nn

from marginctl.models.backbones.layers import Pooled, convolution, scaled

# Channels and stride of each depthwise separable convolution (Howard 2017, Table 1).
SEPARABLE = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (1024, 2),
    (1024, 1),
)
SMALL = 64  # up to this image size the first layer has stride 1: our choice


class MobileNet(Pooled):
    """A 3x3 convolution, then 13 depthwise convolutions, each followed by a 1x1 convolution."""

    def __init__(self, channels: int, image_size: int, *, width: float) -> None:
        inputs = scaled(32, width)
        layers = [convolution(channels, inputs, stride=1 if image_size <= SMALL else 2)]
        for full, stride in SEPARABLE:
            outputs = scaled(full, width)
            layers.append(convolution(inputs, inputs, stride=stride, groups=inputs))
            layers.append(convolution(inputs, outputs, 1))
            inputs = outputs
        super().__init__(nn.Sequential(*layers), inputs)
