"""The four stages of every backbone: each tensor once, in the order of execution."""

import pytest
import torch
from torch import nn

from marginctl.errors import RequestError
from marginctl.models.factory import create_backbone
from marginctl.models.registry import BACKBONES, ModelSpec
from marginctl.models.stages import backbone_stages, forward_operations, frozen_modules

SMALL = {
    "wrn-28-10": "wrn-16-8",
    "torchvision/densenet161": "torchvision/densenet121",
    "torchvision/densenet169": "torchvision/densenet121",
}
EMBEDDED = "mobilenet:embedding=8"
MODELS = [*(SMALL.get(name, name) for name in BACKBONES), "timm/resnet18", "mlp:depth=5", EMBEDDED]


def create(text):
    model = ModelSpec.parse(text)
    with torch.device("meta"):
        return model, create_backbone(model, 3, 64)


@pytest.mark.parametrize("text", dict.fromkeys(MODELS))
def test_every_tensor_is_in_one_stage_and_stages_are_in_order(text):
    model, backbone = create(text)
    stages = backbone_stages(model, backbone)
    paths = [path for stage in stages for path in stage]
    for tensor in backbone.state_dict():
        assert sum(tensor == p or tensor.startswith(f"{p}.") for p in paths) == 1, tensor
    assert all(stages) or text == "mlp"
    assert ("embedding" in stages[3]) == (text == EMBEDDED)
    called = []
    for path in paths:
        module = backbone.get_submodule(path)
        module.register_forward_pre_hook(lambda *_, path=path: called.append(path))
    with torch.device("meta"), torch.no_grad():
        backbone.eval()(torch.empty(2, 3, 64, 64))
    assert called == [path for path in paths if path in called]
    assert {path for stage in stages for path in stage[:1]} <= set(called)


def test_stages_of_a_resnet():
    stages = backbone_stages(*create("torchvision/resnet50"))
    assert [[p[-1] for p in stage if "layer" in p] for stage in stages] == [
        ["1"],
        ["2"],
        ["3"],
        ["4"],
    ]
    assert stages[0][0] == "network.conv1"


def test_frozen_modules_precede_the_trainable_stages():
    resnet = create("resnet18")
    assert frozen_modules(*resnet, "1-4") == ((), None)
    frozen, first = frozen_modules(*resnet, "4")
    assert frozen == tuple(f"layers.{i}" for i in range(7))
    assert first == "layers.7"


def test_a_network_without_stages_can_only_be_fine_tuned_whole():
    network = create("torchvision/shufflenet_v2_x0_5")
    assert frozen_modules(*network, "1-4") == ((), None)
    with pytest.raises(RequestError, match=r"not divided into stages.*1-4.*torchvision's resnet"):
        frozen_modules(*network, "3-4")


BLOCKS = ["1-4", "2-4", "3-4", "4", "head"]


@pytest.mark.parametrize("text", ["mnist-cnn:feature_dim=16", "resnet18", "torchvision/resnet18"])
@pytest.mark.parametrize("blocks", BLOCKS)
def test_operations_are_those_of_the_layers(text, blocks):
    """Two for each product of an output: those of linear layers and convolutions."""
    model = ModelSpec.parse(text)
    backbone = create_backbone(model, 3, 32).eval()
    by_path = {}

    def count(path):
        def hook(module, inputs, output):
            by_path[path] = 2 * output.numel() * module.weight[0].numel()

        return hook

    for path, module in backbone.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            module.register_forward_hook(count(path))
    backbone(torch.zeros(1, 3, 32, 32))
    frozen = tuple(
        f"{path}." if path else "" for path in frozen_modules(model, backbone, blocks)[0]
    )
    total, of_frozen = forward_operations(model, 3, 32, blocks)
    assert total == sum(by_path.values())
    assert of_frozen == sum(n for path, n in by_path.items() if f"{path}.".startswith(frozen))
