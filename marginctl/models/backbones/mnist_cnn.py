"""A small convolutional network for digits whose features can be plotted."""

from torch import Tensor, nn

from marginctl.models.backbones.layers import Pooled, convolution


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
