"""Floating-point operations of backbones, against those of their layers."""

import pytest
import torch
from torch import nn

from marginctl.models.factory import create_backbone
from marginctl.models.registry import ModelSpec
from marginctl.models.stages import forward_operations, frozen_modules

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
