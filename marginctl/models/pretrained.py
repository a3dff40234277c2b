"""Classifiers that are published with weights: those of torchvision, and EfficientNet-Lite0."""

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
from marginctl.models.backbones import efficientnet_lite
from marginctl.models.registry import OF_TORCHVISION
from marginctl.utils.text import did_you_mean

FORCE_WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch's own switch
LITE_MOMENTS = ([127 / 255] * 3, [128 / 255] * 3)  # (x - 127) / 128, of pixel values x


@dataclass(frozen=True)
class PretrainedClassifier:
    """A classifier with weights, and how its images are prepared.

    Attributes:
        name: of the weights.
        model: as `models.names` calls its backbone.
        url: where they are; None where they come in a package.
        categories: the names of its classes, in order.
        preset: prepares an image: (3, pixels, pixels) float32, normalised.
        image_size: the side of a prepared image.
        mean, std: of each channel, of 0 to 1, in the preset.
        network: gives logits; with its weights, made when it is called.
    """

    name: str
    model: str
    url: str | None
    categories: tuple[str, ...]
    preset: Any
    image_size: int
    mean: list[float]
    std: list[float]
    network: Callable[[], nn.Module]

    def parts(self) -> tuple[Mapping[str, Tensor], Tensor, Tensor]:
        """The weights of the backbone by name, of the classes (C, d), and the biases (C,).

        Raises:
            RequestError: as `network`, or the classifier ends in no linear layer.
        """
        if self.model == efficientnet_lite.NAME:
            return efficientnet_lite.pretrained()
        network = self.network()
        linear = [(p, m) for p, m in network.named_modules() if isinstance(m, nn.Linear)]
        if not linear:
            raise RequestError(f"{self.name}: ends in no linear layer: take another network")
        path, last = linear[-1]
        state = {
            f"network.{name}": value
            for name, value in network.state_dict().items()
            if not name.startswith(f"{path}.")
        }
        bias = torch.zeros(last.out_features) if last.bias is None else last.bias
        return state, last.weight.detach(), bias.detach()


def is_weights_name(text: str) -> bool:
    """Whether this can be a name of weights, and is nothing that lies in a folder."""
    known = text == efficientnet_lite.NAME or re.fullmatch(r"[A-Za-z]\w*(\.\w+)?", text)
    return bool(known) and not os.path.lexists(text)


def pretrained_classifier(name: str) -> PretrainedClassifier:
    """The classifier by the name of its weights; nothing is loaded yet.

    Args:
        name: of weights, as ResNet50_Weights.IMAGENET1K_V2, of a model of torchvision, for its
            best ones, or efficientnet-lite0.

    Raises:
        RequestError: there is no such classifier, or no weights of it.
    """
    if name == efficientnet_lite.NAME:
        return _lite()
    model, weights = _named(name)
    preset = weights.transforms()
    return PretrainedClassifier(
        *(str(weights), f"{OF_TORCHVISION}{model}", weights.url),
        tuple(weights.meta["categories"]),
        preset,
        *(preset.crop_size[0], list(preset.mean), list(preset.std)),
        lambda: _loaded(model, weights),
    )


def _lite() -> PretrainedClassifier:
    """EfficientNet-Lite0; images are scaled and cut as torchvision does it by default."""
    from torchvision.models import ResNet18_Weights
    from torchvision.transforms._presets import ImageClassification

    mean, std = LITE_MOMENTS

    def network() -> nn.Module:
        state, weight, bias = efficientnet_lite.pretrained()
        backbone = efficientnet_lite.EfficientNetLite0(3, 224)
        backbone.load_state_dict(state)
        last = nn.Linear(backbone.feature_dim, len(weight))
        last.load_state_dict({"weight": weight, "bias": bias})
        return nn.Sequential(backbone, last)

    return PretrainedClassifier(
        *(efficientnet_lite.NAME, efficientnet_lite.NAME, None),
        tuple(ResNet18_Weights.DEFAULT.meta["categories"]),  # ImageNet's
        ImageClassification(crop_size=224, mean=tuple(mean), std=tuple(std)),
        *(224, mean, std),
        network,
    )


def _named(name: str) -> tuple[str, Any]:
    """The model's name and the weights.

    Raises:
        RequestError: torchvision has no such classifier, or no weights of it.
    """
    from torchvision import models

    known = models.list_models(module=models)
    kinds = {models.get_model_weights(model).__name__: model for model in known}
    kind, _, version = name.partition(".")
    model = name if name in known else kinds.get(kind)
    if model is None:
        raise RequestError(
            f"{name}: is neither there as a run's folder nor a classifier of torchvision: expected "
            "a path, a model such as resnet50, or weights such as ResNet50_Weights.IMAGENET1K_V2."
            + did_you_mean(name, [*known, *kinds])
        )
    of_model = models.get_model_weights(model)
    versions = list(of_model.__members__)
    wanted = version or "DEFAULT"
    if wanted not in versions:
        raise RequestError(
            f"{name}: expected one of {', '.join(f'{of_model.__name__}.{v}' for v in versions)}"
        )
    return model, of_model[wanted]


def _loaded(model: str, weights: Any) -> nn.Module:
    """The network with its weights: from torch.hub's cache, else fetched; nothing in them is run.

    Raises:
        RequestError: they are not there and cannot be fetched, or the file holds something else.
    """
    from torchvision import models

    cached = Path(torch.hub.get_dir()) / "checkpoints" / weights.url.rpartition("/")[2]
    there = cached.is_file()
    try:
        # what torch.hub says of a download is no part of the result
        with _weights_only(), contextlib.redirect_stdout(sys.stderr):
            network: nn.Module = models.get_model(model, weights=weights)
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        reason = getattr(reason, "strerror", None) or reason
        raise RequestError(
            f"{weights}: {cached} is not there, and {weights.url} cannot be fetched ({reason}): "
            "put that file there"
        ) from None
    except Exception as error:  # a damaged file makes the parser raise anything
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        what = "holds something else" if there else "was fetched, and holds something else"
        raise RequestError(
            f"{cached}: {what} than {weights} ({said[:100]}): remove it, to fetch it again"
        ) from None
    return network


@contextlib.contextmanager
def _weights_only() -> Iterator[None]:
    """torch unpickles tensors alone, whatever torchvision asks of it."""
    before = os.environ.get(FORCE_WEIGHTS_ONLY)
    os.environ[FORCE_WEIGHTS_ONLY] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[FORCE_WEIGHTS_ONLY]
        else:
            os.environ[FORCE_WEIGHTS_ONLY] = before
