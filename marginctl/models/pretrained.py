"""Pretrained classifiers: those of torchvision, and EfficientNet-Lite0."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from torch import Tensor, nn

from marginctl.errors import RequestError
from marginctl.models.backbone import last_linear
from marginctl.models.backbones import efficientnet_lite
from marginctl.models.registry import TORCHVISION
from marginctl.utils.text import did_you_mean

FORCE_WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch's own switch
LITE_MEAN, LITE_STD = [127 / 255] * 3, [128 / 255] * 3  # (x - 127) / 128, of pixel values x


@dataclass(frozen=True)
class PretrainedClassifier:
    """A classifier with pretrained weights, and the preparation of its images.

    Attributes:
        mean, std: the normalisation of each channel, for pixels in [0, 1].
    """

    name: str
    model: str
    url: str | None  # where the weights are; None where a package contains them
    categories: tuple[str, ...]
    transform: Any  # prepares an image as (3, image_size, image_size) float32, normalised
    image_size: int
    mean: list[float]
    std: list[float]
    network: Callable[[], nn.Module]  # builds the network with its weights, which gives logits

    def weights(self) -> tuple[Mapping[str, Tensor], Tensor, Tensor]:
        """Return the backbone's weights by name, the class weights (C, d) and the biases (C,)."""
        if self.model == efficientnet_lite.NAME:
            return efficientnet_lite.pretrained_weights()
        network = self.network()
        classifier = last_linear(network)
        if classifier is None:
            raise RequestError(
                f"{self.name}: has no linear layer at the end: choose another network"
            )
        path, layer = classifier
        state = {
            f"network.{name}": value
            for name, value in network.state_dict().items()
            if not name.startswith(f"{path}.")
        }
        bias = torch.zeros(layer.out_features) if layer.bias is None else layer.bias
        return state, layer.weight.detach(), bias.detach()


def is_weights_name(text: str) -> bool:
    """Return whether a text can name pretrained weights and is no existing path.

    A folder that has the name of a model, and no runs in it, does not hide the model.
    """
    if text != efficientnet_lite.NAME and not re.fullmatch(r"[A-Za-z]\w*(\.\w+)?", text):
        return False
    if not os.path.lexists(text):
        return True
    if not os.path.isdir(text) or any(Path(text).rglob("run.json")):
        return False
    with contextlib.suppress(RequestError):
        return bool(pretrained_classifier(text))
    return False


def pretrained_classifier(name: str) -> PretrainedClassifier:
    """Return the classifier of weights, or of a model's best weights; nothing is loaded yet."""
    if name == efficientnet_lite.NAME:
        return _efficientnet_lite()
    model, weights = _find_weights(name)
    transform = weights.transforms()
    return PretrainedClassifier(
        name=str(weights),
        model=f"{TORCHVISION}{model}",
        url=weights.url,
        categories=tuple(weights.meta["categories"]),
        transform=transform,
        image_size=transform.crop_size[0],
        mean=list(transform.mean),
        std=list(transform.std),
        network=lambda: _load_network(model, weights),
    )


def _efficientnet_lite() -> PretrainedClassifier:
    """EfficientNet-Lite0; images are resized and cropped by torchvision's default transform."""
    from torchvision.models import ResNet18_Weights
    from torchvision.transforms._presets import ImageClassification

    def network() -> nn.Module:
        state, weight, bias = efficientnet_lite.pretrained_weights()
        backbone = efficientnet_lite.EfficientNetLite0(3, 224)
        backbone.load_state_dict(state)
        classifier = nn.Linear(backbone.feature_dim, len(weight))
        classifier.load_state_dict({"weight": weight, "bias": bias})
        return nn.Sequential(backbone, classifier)

    return PretrainedClassifier(
        name=efficientnet_lite.NAME,
        model=efficientnet_lite.NAME,
        url=None,
        categories=tuple(ResNet18_Weights.DEFAULT.meta["categories"]),  # ImageNet's
        transform=ImageClassification(crop_size=224, mean=tuple(LITE_MEAN), std=tuple(LITE_STD)),
        image_size=224,
        mean=LITE_MEAN,
        std=LITE_STD,
        network=network,
    )


def _find_weights(name: str) -> tuple[str, Any]:
    """Return the name of a torchvision classifier and its weights."""
    from torchvision import models

    known = models.list_models(module=models)
    kinds = {models.get_model_weights(model).__name__: model for model in known}
    kind, _, version = name.partition(".")
    model = name if name in known else kinds.get(kind)
    if model is None:
        raise RequestError(
            f"{name}: neither a run directory nor a classifier of torchvision: expected a path, a "
            "model such as resnet50, or weights such as ResNet50_Weights.IMAGENET1K_V2."
            + did_you_mean(name, [*known, *kinds])
        )
    weights = models.get_model_weights(model)
    versions = list(weights.__members__)
    version = version or "DEFAULT"
    if version not in versions:
        raise RequestError(
            f"{name}: expected one of {', '.join(f'{weights.__name__}.{v}' for v in versions)}"
        )
    return model, weights[version]


def _load_network(model: str, weights: Any) -> nn.Module:
    """Return the network with its weights, from torch.hub's cache or downloaded."""
    from torchvision import models

    cached = Path(torch.hub.get_dir()) / "checkpoints" / weights.url.rpartition("/")[2]
    was_cached = cached.is_file()
    try:
        # torch.hub reports a download on stdout, which is for results
        with _weights_only(), contextlib.redirect_stdout(sys.stderr):
            network: nn.Module = models.get_model(model, weights=weights)
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        reason = getattr(reason, "strerror", None) or reason
        raise RequestError(
            f"{weights}: no file {cached}, and {weights.url} cannot be downloaded ({reason}): put "
            "the file there"
        ) from None
    except Exception as error:  # a corrupt file can raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        source = "" if was_cached else "was downloaded, but "
        raise RequestError(
            f"{cached}: {source}does not hold {weights} ({reason[:100]}): delete it to download it "
            "again"
        ) from None
    return network


@contextlib.contextmanager
def _weights_only() -> Iterator[None]:
    """Make torch unpickle tensors only, whatever torchvision passes to it."""
    before = os.environ.get(FORCE_WEIGHTS_ONLY)
    os.environ[FORCE_WEIGHTS_ONLY] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[FORCE_WEIGHTS_ONLY]
        else:
            os.environ[FORCE_WEIGHTS_ONLY] = before
