"""VGG-16 for small images, and the VGG-16-mod of Large Margin in Softmax."""

from torch import Tensor, nn

from marginctl.models.backbones.layers import Pooled

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(Pooled):
    """The 13 convolutions of VGG-16 with their five max poolings."""

    def __init__(self, channels: int, image_size: int, *, norm: bool) -> None:
        super().__init__(nn.Sequential(*_trunk(channels, norm=norm), nn.MaxPool2d(2)), 512)


class VGG16Mod(Pooled):
    """VGG-16 with a 1x1 convolution to 4096 channels instead of its last pooling.

    Global average pooling and a hidden layer of 4096 units follow. As in the author's port, batch
    normalisation follows every layer, and initial weights are N(0, 0.01^2).
    """

    def __init__(self, channels: int, image_size: int) -> None:
        trunk = _trunk(channels, norm=True)
        super().__init__(nn.Sequential(*trunk, *_convolution(512, 4096, 1, norm=True)), 4096)
        linear = nn.Linear(4096, 4096)
        nn.init.zeros_(linear.bias)
        self.hidden = nn.Sequential(linear, nn.BatchNorm1d(4096), nn.ReLU(inplace=True))
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.normal_(module.weight, std=0.01)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.hidden(super().forward(images))
        return features


def _trunk(channels: int, *, norm: bool) -> list[nn.Module]:
    """Return all convolutions and the poolings between stages, without the last pooling."""
    layers: list[nn.Module] = []
    for stage, widths in enumerate(STAGES):
        if stage:
            layers.append(nn.MaxPool2d(2))
        for outputs in widths:
            layers += _convolution(channels, outputs, 3, norm=norm)
            channels = outputs
    return layers


def _convolution(inputs: int, outputs: int, kernel: int, *, norm: bool) -> list[nn.Module]:
    # The published networks keep the bias before batch normalisation, where it has no effect.
    layer = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
    return [layer, *([nn.BatchNorm2d(outputs)] if norm else []), nn.ReLU(inplace=True)]
