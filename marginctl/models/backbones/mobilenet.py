"""MobileNet, the first version (Howard et al. 2017)."""

from torch import nn

from marginctl.models.backbones.layers import Pooled, convolution, scaled

# channels and stride of each depthwise separable convolution: Howard's table 1
SEPARABLE = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
SMALL = 64  # up to this side, the first layer does not halve the image: our choice


class MobileNet(Pooled):
    """A 3x3 convolution, then 13 depthwise ones, each with a 1x1 convolution after it.

    Args:
        channels: of an image.
        pixels: its side.
        width: the paper's multiplier of the channels.
    """

    def __init__(self, channels: int, pixels: int, *, width: float) -> None:
        inputs = scaled(32, width)
        layers = [convolution(channels, inputs, stride=1 if pixels <= SMALL else 2)]
        for full, stride in SEPARABLE:
            outputs = scaled(full, width)
            layers.append(convolution(inputs, inputs, stride=stride, groups=inputs))
            layers.append(convolution(inputs, outputs, 1))
            inputs = outputs
        super().__init__(nn.Sequential(*layers), inputs)
