"""The four blocks of every backbone: all of it, once, in the order in which it works."""

import pytest
import torch

from marginctl.errors import RequestError
from marginctl.models.backbone import create_backbone
from marginctl.models.registry import BACKBONES
from marginctl.models.stages import backbone_stages, frozen_modules

SMALL = {"wrn-28-10": "wrn-16-8", "torchvision/densenet169": "torchvision/densenet121"}
NAMES = [*(SMALL.get(name, name) for name in BACKBONES), "timm/resnet18", "mlp-5", "mobilenet-e"]


def made(name):
    options = {"mlp-5": {"depth": 5}, "mobilenet-e": {"embedding": 8}}.get(name, {})
    with torch.device("meta"):
        return create_backbone(name.removesuffix("-5").removesuffix("-e"), options, 3, 64)


@pytest.mark.parametrize("name", dict.fromkeys(NAMES))
def test_every_tensor_is_in_one_block_and_blocks_work_in_order(name):
    backbone = made(name)
    blocks = backbone_stages(name, backbone)
    paths = [path for block in blocks for path in block]
    for tensor in backbone.state_dict():
        assert sum(tensor == p or tensor.startswith(f"{p}.") for p in paths) == 1, tensor
    assert all(blocks) or name == "mlp"
    assert ("embedding" in blocks[3]) == (name == "mobilenet-e")
    called = []
    for path in paths:
        module = backbone.get_submodule(path)
        module.register_forward_pre_hook(lambda *_, path=path: called.append(path))
    with torch.device("meta"), torch.no_grad():
        backbone.eval()(torch.empty(2, 3, 64, 64))
    assert called == [path for path in paths if path in called]
    assert {path for block in blocks for path in block[:1]} <= set(called)


def test_the_stages_of_a_resnet_are_the_blocks():
    blocks = backbone_stages("torchvision/resnet50", made("torchvision/resnet50"))
    stages = [[p[-1] for p in block if "layer" in p] for block in blocks]
    assert stages == [["1"], ["2"], ["3"], ["4"]]
    assert blocks[0][0] == "network.conv1"


def test_what_is_frozen_is_all_that_comes_before():
    backbone = made("resnet18")
    assert frozen_modules("resnet18", backbone, "1-4") == ((), None)
    frozen, first = frozen_modules("resnet18", backbone, "4")
    assert frozen == tuple(f"layers.{i}" for i in range(7))
    assert first == "layers.7"


def test_a_network_without_blocks_can_be_fine_tuned_as_a_whole_alone():
    backbone = made("torchvision/shufflenet_v2_x0_5")
    assert frozen_modules("torchvision/shufflenet_v2_x0_5", backbone, "1-4") == ((), None)
    with pytest.raises(RequestError, match=r"no four blocks.*1-4.*torchvision's resnet"):
        frozen_modules("torchvision/shufflenet_v2_x0_5", backbone, "3-4")
