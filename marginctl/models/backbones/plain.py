"""Networks without skip connections."""

from torch import Tensor, nn

from marginctl.models.backbone import Backbone
from marginctl.models.backbones.layers import Pooled, convolution, scaled

# Channels of each stage of VGG-16.
VGG_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
# Channels of MobileNet's depthwise separable convolutions (Howard 2017, Table 1).
SEPARABLE = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
SMALL = 64  # up to this image size the first layer has stride 1: our choice


class MLP(Backbone):
    """Hidden layers with ReLU; the last one is the feature."""

    def __init__(self, channels: int, image_size: int, *, width: int, depth: int) -> None:
        super().__init__(width)
        layers: list[nn.Module] = []
        inputs = channels * image_size**2
        for _ in range(depth):
            layers += [nn.Linear(inputs, width), nn.ReLU(inplace=True)]
            inputs = width
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images.flatten(1))
        return features


class MnistCNN(Pooled):
    """Three convolutions with max pooling between them, average pooling, and a linear layer.

    No activation follows the linear layer, so that features can have any sign and angle.
    """

    def __init__(self, channels: int, image_size: int, *, feature_dim: int) -> None:
        layers = nn.Sequential(
            convolution(channels, 32),
            nn.MaxPool2d(2),
            convolution(32, 64),
            nn.MaxPool2d(2),
            convolution(64, 128),
        )
        super().__init__(layers, feature_dim)
        self.feature = nn.Linear(128, feature_dim)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.feature(super().forward(images))
        return features


class Layer13(Pooled):
    """Nine convolutions in three groups, with max pooling between them (Large Margin in Softmax).

    The author's port has 3x3 convolutions throughout; Mean Teacher, which the paper cites for the
    network, has 1x1 for the last two.
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


class VGG16(Pooled):
    """The 13 convolutions of VGG-16 with their five max poolings."""

    def __init__(self, channels: int, image_size: int, *, norm: bool) -> None:
        super().__init__(nn.Sequential(*_trunk(channels, norm=norm), nn.MaxPool2d(2)), 512)


class VGG16Mod(Pooled):
    """VGG-16 with a 1x1 convolution to 4096 channels instead of its last pooling.

    Global average pooling and a hidden layer of 4096 units follow. As in the author's port, batch
    normalisation with eps 1e-4 follows every layer, and initial weights are N(0, 0.01^2).
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
            elif isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.eps = 1e-4

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.hidden(super().forward(images))
        return features


def _trunk(channels: int, *, norm: bool) -> list[nn.Module]:
    """Return all convolutions and the poolings between stages, without the last pooling."""
    layers: list[nn.Module] = []
    for stage, widths in enumerate(VGG_STAGES):
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


class MobileNet(Pooled):
    """A 3x3 convolution, then 13 depthwise convolutions, each followed by a 1x1 convolution.

    The first version (Howard et al. 2017). A layer that changes the channels halves the resolution.
    """

    def __init__(self, channels: int, image_size: int, *, width: float) -> None:
        inputs = scaled(32, width)
        layers = [convolution(channels, inputs, stride=1 if image_size <= SMALL else 2)]
        before = SEPARABLE[0]
        for full in SEPARABLE:
            outputs, stride = scaled(full, width), 1 if full == before else 2
            layers.append(convolution(inputs, inputs, stride=stride, groups=inputs))
            layers.append(convolution(inputs, outputs, 1))
            inputs, before = outputs, full
        super().__init__(nn.Sequential(*layers), inputs)
