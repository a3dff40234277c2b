"""Classifiers of torchvision and models of timm as backbones.

timm is an extra: it is imported only when one of its models is used.
"""

import functools
import importlib
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from marginctl.errors import RequestError
from marginctl.models.backbone import Backbone, last_linear, replace_module
from marginctl.utils.text import did_you_mean


class _ExternalBackbone(Backbone):
    network: nn.Module

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network(images)
        return features


class TorchvisionBackbone(_ExternalBackbone):
    """A classifier of torchvision without its last linear layer, whose input is the feature.

    The layers before it stay: the dropout of MobileNet v2 and VGG acts on the feature.
    """

    def __init__(self, channels: int, image_size: int, *, name: str) -> None:
        network = library_network(f"torchvision/{name}")
        classifier = last_linear(network)
        if classifier is None:
            raise RequestError(
                f"model 'torchvision/{name}': has no linear layer at the end, whose input would be "
                "the feature: choose another model, such as 'torchvision/resnet18'"
            )
        path, layer = classifier
        super().__init__(layer.in_features)
        replace_module(network, path, nn.Identity())
        self.network = network


class TimmBackbone(_ExternalBackbone):
    """A model of timm without its last linear layer, whose input is the feature.

    The layers before it stay, such as pooling and dropout. A model for one image size, such as a
    vision transformer, is built for `image_size`.
    """

    def __init__(self, channels: int, image_size: int, *, name: str) -> None:
        super().__init__(external_feature_dim(f"timm/{name}", channels, image_size))
        self.network = _timm_network(name, channels, image_size)


def library_network(model: str) -> nn.Module:
    """Return the network of torchvision/NAME or timm/NAME with its classifier and new weights."""
    library, _, name = model.partition("/")
    module = find_library(model)
    build = module.create_model if library == "timm" else module.models.get_model
    network: nn.Module = build(name)
    return network


def find_library(model: str) -> Any:
    """Return the module torchvision or timm, or raise RequestError: it has no such model."""
    library, _, name = model.partition("/")
    try:
        module = importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name != "timm":
            raise
        raise RequestError(
            f"model '{model}': timm is not installed: pip install 'marginctl[timm]', or choose "
            "one of marginctl's own models or of torchvision's"
        ) from None
    is_timm = library == "timm"
    known = module.list_models() if is_timm else module.models.list_models(module=module.models)
    if not (name in known or (is_timm and module.is_model(name))):  # by an old name
        kind = "model" if is_timm else "classifier"
        near = did_you_mean(model, [f"{library}/{other}" for other in known])
        raise RequestError(
            f"unknown model '{model}': {library} {module.__version__} has no such {kind}.{near}"
        )
    return module


@functools.cache
def external_feature_dim(model: str, channels: int, image_size: int) -> int:
    """Return the length of the features of torchvision/NAME or timm/NAME for images of a shape.

    timm's `num_features` is the length before the last layers of some heads, so the model is run on
    torch's meta device, which computes shapes only.

    Raises:
        RequestError: the library lacks the model, or it gives no feature vector for such images.
    """
    (library, _, name), _ = model.partition("/"), find_library(model)
    is_timm = library == "timm"
    shape = (channels if is_timm else 3, image_size, image_size)
    images = " x ".join(map(str, shape))
    try:
        with torch.device("meta"), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about initial weights that change in later versions
            network = (
                _timm_network(name, channels, image_size)
                if is_timm
                else TorchvisionBackbone(3, image_size, name=name)
            )
            # both modes of torchvision: auxiliary heads give more outputs in training
            modes = [False] if is_timm else [True, False]
            outputs = [network.train(training)(torch.empty(2, *shape)) for training in modes]
    except RequestError:
        raise
    except Exception as error:  # each architecture reports unsuitable images in its own way
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RequestError(
            f"model '{model}': does not accept images of {images} ({reason}): enlarge them, or "
            "choose another model"
        ) from None
    length = getattr(network, "feature_dim", None)
    for features in outputs:
        is_vector = isinstance(features, Tensor) and features.dim() == 2
        if not is_vector or length not in (None, features.shape[1]):
            raise RequestError(
                f"model '{model}': does not return one feature vector for an image of {images}: "
                "choose another model, such as 'torchvision/resnet18'"
            )
    return int(outputs[0].shape[1])


def _timm_network(name: str, channels: int, image_size: int) -> Any:
    """Return timm's network on the default device; its weights come from torch's global stream."""
    timm = find_library(f"timm/{name}")
    config = timm.get_pretrained_cfg(name)
    fixed_size = config is not None and config.fixed_input_size
    sized = {"img_size": image_size} if fixed_size else {}
    return timm.create_model(name, pretrained=False, num_classes=0, in_chans=channels, **sized)
