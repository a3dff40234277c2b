"""The 13-layer network of Large Margin in Softmax."""

from torch import nn

from marginctl.models.backbones.layers import Pooled, convolution, scaled


class Layer13(Pooled):
    """Nine convolutions in three groups, with max pooling between them.

    The author's port has 3x3 convolutions throughout; Mean Teacher, which the paper cites for the
    network, has 1x1 for the last two.

    Args:
        last: kernel of the last two convolutions, `3x3` or `1x1`.
    """

    def __init__(self, channels: int, image_size: int, *, width: float, last: str) -> None:
        few, some, many = (scaled(c, width) for c in (128, 256, 512))
        kernel = 1 if last == "1x1" else 3
        layers = nn.Sequential(
            convolution(channels, few),
            convolution(few, few),
            convolution(few, few),
            nn.MaxPool2d(2),
            convolution(few, some),
            convolution(some, some),
            convolution(some, some),
            nn.MaxPool2d(2),
            convolution(some, many, padding=0),
            convolution(many, some, kernel),
            convolution(some, few, kernel),
        )
        super().__init__(layers, few)
