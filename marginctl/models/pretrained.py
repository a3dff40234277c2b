"""Published weights by name: those of torchvision, of timm, and EfficientNet-Lite0's."""

import contextlib
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import torch
from torch import Tensor, nn

from marginctl.data.images.resizing import CENTER, Resizing
from marginctl.errors import RequestError
from marginctl.models import state_dicts
from marginctl.models.backbone import last_linear, replace_module
from marginctl.models.backbones import efficientnet_lite
from marginctl.models.backbones.external import find_library
from marginctl.models.registry import TIMM, TORCHVISION
from marginctl.utils.text import did_you_mean, join_names, one_line

FORCE_WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch's own switch
LITE_MEAN, LITE_STD = [127 / 255] * 3, [128 / 255] * 3  # (x - 127) / 128, of pixel values x
HUB_FILES = ("model.safetensors", "pytorch_model.bin")  # as timm looks for them
TIMEOUT = 10.0  # seconds for an answer of Hugging Face


@dataclass(frozen=True)
class PretrainedClassifier:
    """A classifier with pretrained weights, and the preparation of its images."""

    name: str
    model: str
    url: str | None  # where the weights are; None where a package contains them
    categories: tuple[str, ...]  # none where the network was published without a classifier
    network: Callable[[], nn.Module]  # builds the network with its weights, which gives logits
    image_size: int
    mean: list[float]  # of each channel, for pixels in [0, 1]
    std: list[float]
    resizing: Resizing = CENTER
    # of weights in a user's file, the tensors of the backbone and of the classifier
    in_file: tuple[Mapping[str, Tensor], Mapping[str, Tensor]] | None = None

    def weights(self) -> tuple[Mapping[str, Tensor], Tensor, Tensor]:
        """Return the backbone's weights by name, the class weights (C, d) and the biases (C,)."""
        backbone, classifier = self.in_file or state_dicts.split_classifier(self.network())
        if not classifier and self.categories:
            raise RequestError(
                f"{self.name}: has no linear layer at the end: choose another network"
            )
        weight = classifier.get("weight", torch.zeros(0, 1))
        return backbone, weight, classifier.get("bias", torch.zeros(len(weight)))


def is_weights_name(text: str) -> bool:
    """Return whether a text can name pretrained weights and is no existing path.

    A folder that has the name of a model, and no runs in it, does not hide the model.
    """
    pattern = rf"({TORCHVISION}|{TIMM})?[A-Za-z]\w*(\.(?!(pth?|bin|safetensors|tar)$)\w+)?"
    name, _, _ = text.partition("=")
    if name != efficientnet_lite.NAME and not re.fullmatch(pattern, name):
        return False
    if not os.path.lexists(text):
        return True
    if not os.path.isdir(text) or any(Path(text).rglob("run.json")):
        return False
    with contextlib.suppress(RequestError):
        return bool(pretrained_classifier(text))
    return False


def pretrained_classifier(name: str) -> PretrainedClassifier:
    """Return the classifier of weights, or of a model's best weights; none is downloaded yet.

    Args:
        name: `resnet50`, `ResNet50_Weights.IMAGENET1K_V2`, `timm/NAME`, `timm/NAME.TAG` or
            `efficientnet-lite0`; or one of them, `=` and the path of a file with other weights for
            that model.
    """
    name, separator, path = name.partition("=")
    if separator:
        return _with_weights_in(Path(path), pretrained_classifier(name))
    if name == efficientnet_lite.NAME:  # resized and cropped by torchvision's default transform
        network, classes = efficientnet_lite.pretrained_network, _imagenet_categories()
        return PretrainedClassifier(
            name, name, None, classes, network, 224, mean=LITE_MEAN, std=LITE_STD
        )
    if name.startswith(TIMM):
        return _timm_classifier(name)
    from torchvision.models import get_model

    model, weights = _find_weights(name.removeprefix(TORCHVISION))
    transform = weights.transforms()
    size = transform.crop_size[0]
    load = partial(get_model, model, weights=weights)
    mode = transform.interpolation.value
    return PretrainedClassifier(
        name=str(weights),
        model=f"{TORCHVISION}{model}",
        url=weights.url,
        categories=tuple(weights.meta["categories"]),
        network=partial(_load_network, str(weights), _hub_file(weights.url), weights.url, load),
        image_size=size,
        mean=list(transform.mean),
        std=list(transform.std),
        resizing=Resizing(crop_fraction=size / transform.resize_size[0], interpolation=mode),
    )


def find_published(model: str) -> PretrainedClassifier | None:
    """Return the classifier of a model's best published weights, None if there are none."""
    try:
        published = pretrained_classifier(model)
    except RequestError:
        return None
    return published if published.model == model else None


def _with_weights_in(path: Path, published: PretrainedClassifier) -> PretrainedClassifier:
    """Return the classifier in a file of weights; its images are prepared as for published ones.

    As many classes as the published weights have are taken for the same in the same order; else
    classes are numbers.
    """
    backbone, classifier = state_dicts.read_backbone(published.model, path)
    classes = len(classifier.get("weight", ()))
    same = classes == len(published.categories)
    return replace(
        published,
        name=f"{published.name}={path}",
        url=None,
        categories=published.categories if same else tuple(map(str, range(classes))),
        network=partial(_network_in, path, published.model, classes),
        in_file=(backbone, classifier),
    )


def _network_in(path: Path, model: str, classes: int) -> nn.Module:
    network = state_dicts.original_network(model)
    assert network is not None
    name, layer = last_linear(network) or ("", nn.Linear(0, 0))
    replace_module(network, name, nn.Linear(layer.in_features, classes, layer.bias is not None))
    state = state_dicts.read_library_weights(path)
    try:
        state_dicts.check_shapes(network, state)
    except ValueError as error:
        raise RequestError(f"{path}: is no {model} ({error}): name the model that it is") from None
    network.load_state_dict(state)
    return network


def _imagenet_categories() -> tuple[str, ...]:
    from torchvision.models import ResNet18_Weights

    return tuple(ResNet18_Weights.DEFAULT.meta["categories"])


def _timm_classifier(name: str) -> PretrainedClassifier:
    """Return the classifier of `timm/NAME.TAG`, or of timm's default tag."""
    model, _, tag = name.removeprefix(TIMM).partition(".")
    timm = find_library(f"{TIMM}{model}")
    tagged = [TIMM + known for known in timm.list_pretrained(f"{model}.*")]
    if not tagged or (tag and name not in tagged):
        raise RequestError(
            f"{name}: timm {timm.__version__} has no such weights: expected "
            f"{join_names(tagged) or 'another model'}.{did_you_mean(name, tagged)}"
        )
    config = timm.get_pretrained_cfg(name.removeprefix(TIMM))
    full = f"{model}.{config.tag}"
    settings = timm.data.resolve_data_config({}, pretrained_cfg=config.to_dict())
    size, classes = settings["input_size"][1], config.num_classes
    if settings["input_size"] != (3, size, size) or settings["crop_mode"] == "border":
        raise RequestError(f"{name}: takes no squares cropped from RGB images: choose others")
    file, url = _timm_file(config)

    def load() -> Any:
        overlay = {"state_dict": state_dicts.read_state_dict(file)} if file.is_file() else {}
        if not overlay and config.hf_hub_id:
            with urlopen(url.partition("/resolve/")[0], timeout=TIMEOUT):
                pass  # fails at once, where the client of timm tries for a minute
        return timm.create_model(full, pretrained=True, pretrained_cfg_overlay=overlay)

    return PretrainedClassifier(
        name=f"{TIMM}{full}",
        model=f"{TIMM}{model}",
        url=url,
        categories=_imagenet_categories() if classes == 1000 else tuple(map(str, range(classes))),
        network=partial(_load_network, f"{TIMM}{full}", file, url, load),
        image_size=size,
        mean=list(settings["mean"]),
        std=list(settings["std"]),
        resizing=Resizing(
            crop_fraction=size / math.floor(size / settings["crop_pct"]),  # as timm rounds it
            interpolation=settings["interpolation"],
            crop_mode=settings["crop_mode"],
        ),
    )


def _timm_file(config: Any) -> tuple[Path, str]:
    """Return the cached file of timm's weights, or where it is expected, and its address."""
    if not config.hf_hub_id:
        return _hub_file(config.url), config.url
    from huggingface_hub import constants, try_to_load_from_cache

    repository = config.hf_hub_id
    folder = Path(constants.HF_HUB_CACHE, f"models--{repository.replace('/', '--')}")
    placed = [folder / "snapshots" / "main" / name for name in HUB_FILES]
    cached = [try_to_load_from_cache(repository, name) for name in HUB_FILES]
    files = [Path(file) for file in [*placed, *cached] if isinstance(file, str | Path)]
    file = next((file for file in files if file.is_file()), placed[0])
    return file, f"{constants.ENDPOINT}/{repository}/resolve/main/{file.name}"


def _hub_file(url: str) -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]


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


def _load_network(name: str, file: Path, url: str, load: Callable[[], nn.Module]) -> nn.Module:
    """Return the network with its weights, from their cached file or downloaded by `load`."""
    was_cached = file.is_file()
    try:
        # torch.hub reports a download on stdout, which is for results
        with _weights_only(), contextlib.redirect_stdout(sys.stderr):
            return load()
    except RequestError:
        raise
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        reason = getattr(reason, "strerror", None) or reason
        raise RequestError(
            f"{name}: no file {file}, and {url} cannot be downloaded ({reason}): put the file there"
        ) from None
    except Exception as error:  # a corrupt file can raise anything
        reason = one_line(str(error)) or type(error).__name__
        source = "" if was_cached else "was downloaded, but "
        raise RequestError(
            f"{file}: {source}does not hold {name} ({reason[:160]}): delete it to download it again"
        ) from None


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
