"""Residual networks for small images."""

from collections.abc import Sequence

from torch import Tensor, nn

from marginctl.models.backbones.layers import Pooled, convolution, scaled


class ResNet(Pooled):
    """A 3x3 convolution, then four stages of 64, 128, 256 and 512 channels (He et al. 2016).

    Each stage after the first halves the resolution.

    Args:
        bottleneck: whether a block is 1x1, 3x3, 1x1 with four times the output channels, instead
            of 3x3, 3x3.
    """

    def __init__(
        self, channels: int, image_size: int, *, blocks: Sequence[int], bottleneck: bool
    ) -> None:
        layers: list[nn.Module] = [convolution(channels, 64)]
        inputs = 64
        for stage, count in enumerate(blocks):
            inner = 64 * 2**stage
            outputs = 4 * inner if bottleneck else inner
            for i in range(count):
                stride = 2 if stage and not i else 1
                branch = (_bottleneck if bottleneck else _basic)(inputs, inner, stride)
                layers.append(_ResidualBlock(branch, inputs, outputs, stride))
                inputs = outputs
        super().__init__(nn.Sequential(*layers), inputs)


class _ResidualBlock(nn.Module):
    """relu(branch(x) + x), or the sum alone; a 1x1 convolution projects x where shapes differ."""

    def __init__(
        self, branch: nn.Module, inputs: int, outputs: int, stride: int = 1, *, relu: bool = True
    ) -> None:
        super().__init__()
        same = inputs == outputs and stride == 1
        self.branch = branch
        self.shortcut = (
            nn.Identity() if same else convolution(inputs, outputs, 1, stride=stride, relu=False)
        )
        self.relu = nn.ReLU(inplace=True) if relu else nn.Identity()

    def forward(self, maps: Tensor) -> Tensor:
        out: Tensor = self.relu(self.branch(maps) + self.shortcut(maps))
        return out


def _basic(inputs: int, inner: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        convolution(inputs, inner, stride=stride), convolution(inner, inner, relu=False)
    )


def _bottleneck(inputs: int, inner: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        convolution(inputs, inner, 1),
        convolution(inner, inner, stride=stride),
        convolution(inner, 4 * inner, 1, relu=False),
    )


class CifarCNN(Pooled):
    """Three convolutions, each with max pooling, then a residual block; ours, for CPUs.

    A smaller relative of Page's ResNet-9 (2018, "How to train your ResNet"). The first convolution
    already pools, so that the work is at few pixels; pooling precedes batch normalisation and ReLU,
    which then have a quarter of the pixels.
    """

    def __init__(self, channels: int, image_size: int, *, width: float) -> None:
        layers: list[nn.Module] = []
        inputs = channels
        for outputs in (scaled(c, width) for c in (32, 64, 128)):
            layer, *rest = convolution(inputs, outputs)
            layers.append(nn.Sequential(layer, nn.MaxPool2d(2), *rest))
            inputs = outputs
        branch = nn.Sequential(convolution(inputs, inputs), convolution(inputs, inputs))
        block = _ResidualBlock(branch, inputs, inputs, relu=False)
        super().__init__(nn.Sequential(*layers, block), inputs)


class WideResNet(Pooled):
    """A 3x3 convolution, then three stages of 16, 32 and 64 channels times `widening`.

    Each stage after the first halves the resolution; normalisation and ReLU precede convolutions
    (Zagoruyko and Komodakis 2016).

    Args:
        depth: 6 n + 4 for n blocks a stage.
        widening: the paper's k.
    """

    def __init__(
        self, channels: int, image_size: int, *, depth: int, widening: int, dropout: float
    ) -> None:
        layers: list[nn.Module] = [_convolution(channels, 16)]
        inputs = 16
        for stage in range(3):
            outputs = 16 * 2**stage * widening
            for i in range((depth - 4) // 6):
                layers.append(_WideBlock(inputs, outputs, 2 if stage and not i else 1, dropout))
                inputs = outputs
        layers += [nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)]
        super().__init__(nn.Sequential(*layers), inputs)


class _WideBlock(nn.Module):
    """branch(a) + x with a = relu(norm(x)); a convolution of a replaces x where shapes differ."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.active = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True))
        self.branch = nn.Sequential(
            _convolution(inputs, outputs, stride=stride),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            _convolution(outputs, outputs),
        )
        self.shortcut: nn.Module | None = None
        if inputs != outputs:
            self.shortcut = _convolution(inputs, outputs, 1, stride=stride)

    def forward(self, maps: Tensor) -> Tensor:
        active = self.active(maps)
        out: Tensor = self.branch(active)
        return out + (maps if self.shortcut is None else self.shortcut(active))


def _convolution(inputs: int, outputs: int, kernel: int = 3, *, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
