"""Residual networks for small images (He et al. 2016)."""

from collections.abc import Sequence

from torch import Tensor, nn

from marginctl.models.backbones.layers import Pooled, convolution


class ResNet(Pooled):
    """A 3x3 convolution, then four stages of 64, 128, 256 and 512 channels.

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
                branch = _bottleneck if bottleneck else _basic
                layers.append(_Block(branch(inputs, inner, stride), inputs, outputs, stride))
                inputs = outputs
        super().__init__(nn.Sequential(*layers), inputs)


class _Block(nn.Module):
    """relu(branch(x) + x); a 1x1 convolution projects x where the shapes differ."""

    def __init__(self, branch: nn.Module, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        same = inputs == outputs and stride == 1
        self.branch = branch
        self.shortcut = (
            nn.Identity() if same else convolution(inputs, outputs, 1, stride=stride, relu=False)
        )
        self.relu = nn.ReLU(inplace=True)

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
