"""Classifiers of torchvision as backbones."""

import torchvision
from torch import Tensor, nn

from marginctl.models.backbone import Backbone


class FromTorchvision(Backbone):
    """A classifier of torchvision without its last linear layer, whose input is the feature.

    What stands before that layer stays: the dropout of MobileNet v2 and VGG acts on the feature.

    Args:
        name: as torchvision calls it.
    """

    def __init__(self, name: str) -> None:
        network: nn.Module = torchvision.models.get_model(name, weights=None)
        path, last = [
            (path, module)
            for path, module in network.named_modules()
            if isinstance(module, nn.Linear)
        ][-1]
        super().__init__(last.in_features)
        parent, _, own = path.rpartition(".")
        setattr(network.get_submodule(parent), own, nn.Identity())
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network(images)
        return features
