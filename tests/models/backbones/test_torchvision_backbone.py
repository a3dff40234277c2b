"""Torchvision's classifiers by name: those that are listed, and any other."""

import warnings

import pytest
import torch

from marginctl.errors import RequestError
from marginctl.models.backbone import create_backbone
from marginctl.models.registry import canonical_model, check_image_shape


@pytest.mark.parametrize(
    ("name", "length", "parameters"),
    [
        # torchvision's documentation, less the last layer of 1,000 classes
        ("efficientnet_b0", 1280, 5_288_548 - 1_281_000),
        ("mobilenet_v3_small", 1024, 2_542_856 - 1_025_000),
        ("resnet34", 512, 21_797_672 - 513_000),
    ],
)
def test_any_classifier_gives_its_features(name, length, parameters):
    assert canonical_model(f"torchvision/{name}") == f"torchvision/{name}"
    network = create_backbone(f"torchvision/{name}", {}, 3, 64).eval()
    assert network.feature_dim == length
    assert sum(p.numel() for p in network.parameters()) == parameters
    with torch.no_grad():
        assert network(torch.zeros(2, 3, 64, 64)).shape == (2, length)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("resnet_34", "has no such classifier. Did you mean 'torchvision/resnet34'?"),
        ("googlenet", "it gives no single feature of each"),  # auxiliary heads in training
        ("inception_v3", "it does not take them (Given input size"),
        ("squeezenet1_0", "': ends in no linear layer, whose input would be the feature: take"),
        ("fasterrcnn_resnet50_fpn", "has no such classifier"),
    ],
)
def test_what_is_none_is_one_line(name, said):
    with pytest.raises(RequestError) as caught, warnings.catch_warnings(action="error"):
        check_image_shape(f"torchvision/{name}", 3, 64)
    (line,) = caught.value.lines
    assert said in line
    assert f"torchvision/{name}" in line


def test_images_have_three_channels():
    with pytest.raises(RequestError, match="channels = 1"):
        check_image_shape("torchvision/efficientnet_b0", 1, 64)
