"""Classifiers of torchvision as backbones."""

import functools
import warnings

import torch
import torchvision
from torch import Tensor, nn

from marginctl.errors import RequestError
from marginctl.models.backbone import Backbone
from marginctl.utils.text import did_you_mean


class FromTorchvision(Backbone):
    """A classifier of torchvision without its last linear layer, whose input is the feature.

    What stands before that layer stays: the dropout of MobileNet v2 and VGG acts on the feature.

    Args:
        name: as torchvision calls it; one that `check` takes.

    Raises:
        RequestError: the classifier has no linear layer.
    """

    def __init__(self, name: str) -> None:
        network: nn.Module = torchvision.models.get_model(name, weights=None)
        linear = [(p, m) for p, m in network.named_modules() if isinstance(m, nn.Linear)]
        if not linear:
            raise RequestError(
                f"model 'torchvision/{name}': ends in no linear layer, whose input would be the "
                "feature: take another model, such as 'torchvision/resnet18'"
            )
        path, last = linear[-1]
        super().__init__(last.in_features)
        parent, _, own = path.rpartition(".")
        setattr(network.get_submodule(parent), own, nn.Identity())
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network(images)
        return features


@functools.cache
def check(name: str, pixels: int) -> None:
    """Refuses a name that is none of a classifier with a last linear layer, or other images.

    The network is built as shapes alone, on torch's meta device, and asked in training and in
    evaluation, which differ where a classifier has auxiliary heads.

    Raises:
        RequestError: torchvision has no such classifier, or it does not take such images.
    """
    classifiers = torchvision.models.list_models(module=torchvision.models)
    if name not in classifiers:
        near = did_you_mean(
            f"torchvision/{name}", [f"torchvision/{known}" for known in classifiers]
        )
        raise RequestError(
            f"unknown model 'torchvision/{name}': torchvision {torchvision.__version__} has no "
            f"such classifier.{near}"
        )
    asked = f"model 'torchvision/{name}': images of 3 x {pixels} x {pixels}"
    found = []
    try:
        with torch.device("meta"), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of weights that are drawn anew in later versions
            network = FromTorchvision(name)
            for training in (True, False):
                found.append(network.train(training)(torch.empty(2, 3, pixels, pixels)))
    except RequestError:
        raise
    except Exception as error:  # each architecture says in its own way what it cannot take
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise RequestError(
            f"{asked}: it does not take them ({said}): enlarge them, or take another model"
        ) from None
    for features in found:
        if not isinstance(features, Tensor) or features.shape != (2, network.feature_dim):
            raise RequestError(
                f"{asked}: it gives no single feature of each: take another model, such as "
                "'torchvision/resnet18'"
            )
