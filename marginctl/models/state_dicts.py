"""Weights files: state dicts of torchvision, timm and others, read without running code."""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from marginctl.errors import RequestError
from marginctl.models.backbone import last_linear
from marginctl.models.backbones import efficientnet_lite
from marginctl.models.backbones.external import library_network
from marginctl.models.registry import TIMM, TORCHVISION
from marginctl.utils.text import one_line

_WRAPPERS = re.compile(r"(?:module\.|_orig_mod\.)+")  # of data-parallel and compiled networks
# torchvision's published DenseNets have the names of an older version
_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.(?=[12]\.)")


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a weights file by name; code in it is never run.

    It is a `.safetensors` file, or a state dict saved by torch.save, by itself or as an item
    `state_dict` or `model`. Prefixes such as `module.` are removed from the names.

    Raises:
        RequestError: there is no such file, or it is none of these.
    """
    if not path.is_file():  # reading a pipe would block
        state = "is missing" if not path.exists() else "is no file"
        raise RequestError(f"{path}: {state}: expected weights in .safetensors or by torch.save")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(path)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about files that are rejected below anyway
                content = torch.load(path, map_location="cpu", weights_only=True)
        for key in ("state_dict", "model"):
            if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
                content = content[key]
        tensors = {_WRAPPERS.sub("", name, count=1): value for name, value in content.items()}
        if not tensors or not all(
            isinstance(v, Tensor) and v.layout is torch.strided and not v.is_complex()
            for v in tensors.values()
        ):
            raise TypeError("not a dictionary of dense tensors, or an empty one")
    except Exception as error:  # a corrupt file can raise anything
        reason = one_line(str(error).partition(". ")[0])[:100] or type(error).__name__
        raise RequestError(
            f"{path}: holds no weights ({reason}): expected .safetensors, or a state dict saved by "
            "torch.save, by itself or as its item 'state_dict' or 'model'"
        ) from None
    return tensors


def read_library_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a weights file by the names of today's torchvision and timm.

    Raises:
        RequestError: as `read_state_dict`.
    """
    state = {_OLD_DENSENET.sub(r"\1", name): v for name, v in read_state_dict(path).items()}
    for name in [name for name in state if name.endswith(".running_var")]:
        counter = f"{name.removesuffix('running_var')}num_batches_tracked"
        state.setdefault(counter, torch.tensor(0))  # torch before 0.4.1 did not count them
    return state


def original_network(model: str) -> nn.Module | None:
    """Return a model's network as its library builds it; None for marginctl's own models."""
    if model == efficientnet_lite.NAME:
        network: nn.Module = efficientnet_lite.package_network(3)
        return network
    return library_network(model) if model.startswith((TORCHVISION, TIMM)) else None


def read_backbone(model: str, path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors of a weights file for a backbone, and those of its classifier.

    The backbone's have its names, the others are `weight` and `bias`. Whether the file holds that
    model is not checked.

    Raises:
        RequestError: the file cannot be read, or the library has no such model.
    """
    state = read_library_weights(path)
    with torch.device("meta"):
        network = original_network(model)
    return (state, {}) if network is None else split_classifier(network, state)


def split_classifier(
    network: nn.Module, state: Mapping[str, Tensor] | None = None
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return a state dict by the backbone's names, and the `weight` and `bias` of the classifier.

    Args:
        network: of a library, with the names of the state dict.
        state: the state dict; None for the network's.
    """
    path, _ = last_linear(network) or (None, None)
    names = efficientnet_lite.package_names(network) if hasattr(network, "_conv_stem") else {}
    backbone, classifier = dict[str, Tensor](), dict[str, Tensor]()
    for name, value in (network.state_dict() if state is None else state).items():
        module, _, kind = name.rpartition(".")
        if module == path:
            classifier[kind] = value
        else:
            backbone[names.get(name, f"network.{name}")] = value
    return backbone, classifier


def check_shapes(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless a state has the tensors of a module, by name and shape.

    The message has the first missing, unexpected and different tensor, and how many more there are.
    """
    expected, differences = module.state_dict(), dict[tuple[bool, bool], list[str]]()
    for name in dict.fromkeys((*expected, *state)):
        shape, wanted = (_shape(tensors.get(name)) for tensors in (state, expected))
        if shape != wanted:
            difference = f"'{name}' is {shape} in it, and {wanted} in this network"
            differences.setdefault((name in state, name in expected), []).append(difference)
    if differences:
        kinds = (
            first + (f" (and {len(more)} more)" if more else "")
            for first, *more in differences.values()
        )
        raise ValueError("; ".join(kinds))


def _shape(value: Tensor | None) -> str:
    return "absent" if value is None else " x ".join(map(str, value.shape)) or "a number"
