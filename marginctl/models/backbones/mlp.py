"""A multilayer perceptron on the pixels of an image."""

from torch import Tensor, nn

from marginctl.models.backbone import Backbone


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
