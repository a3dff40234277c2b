"""Wide residual networks (Zagoruyko and Komodakis 2016)."""

from torch import Tensor, nn

from marginctl.models.backbones.layers import Pooled


class WideResNet(Pooled):
    """A 3x3 convolution, then three stages of 16, 32 and 64 channels times `widening`.

    Each stage after the first halves the resolution; normalisation and ReLU precede convolutions.

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
                layers.append(_Block(inputs, outputs, 2 if stage and not i else 1, dropout))
                inputs = outputs
        layers += [nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)]
        super().__init__(nn.Sequential(*layers), inputs)


class _Block(nn.Module):
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
