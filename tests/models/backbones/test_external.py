"""Backbones of torchvision and timm: features, accepted images, and errors."""

import json
import sys
import warnings

import pytest
import torch
from torch import nn

from marginctl.errors import RequestError
from marginctl.models.backbones.external import TimmBackbone, external_feature_dim
from marginctl.models.factory import check_image_shape, create_backbone
from marginctl.models.registry import ModelSpec

try:
    import timm
except ModuleNotFoundError:
    timm = None

needs_timm = pytest.mark.skipif(timm is None, reason="timm is not installed")


def check(name, channels, size):
    check_image_shape(ModelSpec.parse(name), channels, size)


def create(name, channels, size):
    return create_backbone(ModelSpec.parse(name), channels, size)


def refusal(call, *arguments) -> str:
    with pytest.raises(RequestError) as caught:
        call(*arguments)
    (line,) = caught.value.lines
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("name", "length", "parameters"),
    [
        # torchvision's documentation, less the last layer of 1,000 classes
        ("efficientnet_b0", 1280, 5_288_548 - 1_281_000),
        ("mobilenet_v3_small", 1024, 2_542_856 - 1_025_000),
        ("resnet34", 512, 21_797_672 - 513_000),
    ],
)
def test_any_torchvision_classifier_gives_its_features(name, length, parameters):
    network = create(f"torchvision/{name}", 3, 64).eval()
    assert network.feature_dim == length
    assert sum(p.numel() for p in network.parameters()) == parameters
    with torch.no_grad():
        assert network(torch.zeros(2, 3, 64, 64)).shape == (2, length)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet_34", "has no such classifier. Did you mean 'torchvision/resnet34'?"),
        ("googlenet", "does not return one feature vector"),  # auxiliary heads in training
        ("inception_v3", "does not accept images of 3 x 64 x 64 (Given input size"),
        ("squeezenet1_0", "': has no linear layer at the end, whose input would be the feature"),
        ("fasterrcnn_resnet50_fpn", "has no such classifier"),
    ],
)
def test_an_unsuitable_torchvision_model_is_one_line(name, message):
    with warnings.catch_warnings(action="error"):
        line = refusal(check, f"torchvision/{name}", 3, 64)
    assert message in line
    assert f"torchvision/{name}" in line


def test_torchvision_classifiers_accept_three_channels():
    assert "1 channel: expected 3" in refusal(check, "torchvision/efficientnet_b0", 1, 64)


def test_without_timm_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    external_feature_dim.cache_clear()
    for call in (check, create):
        assert refusal(call, "timm/resnet18", 3, 32) == (
            "model 'timm/resnet18': timm is not installed: pip install 'marginctl[timm]', or "
            "choose one of marginctl's own models or of torchvision's"
        )


@needs_timm
def test_an_unknown_timm_model_is_named_with_the_nearest():
    assert refusal(check, "timm/resnet_18", 3, 32) == (
        f"unknown model 'timm/resnet_18': timm {timm.__version__} has no such model. "
        "Did you mean 'timm/resnet18'?"
    )


@needs_timm
@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("resnet18", 512),
        ("resnet50", 2048),
        ("mobilenetv3_small_050", 1024),  # its num_features are 288
        ("vgg11", 4096),  # its num_features are 512
        ("vit_tiny_patch16_224", 192),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_feature_dims_of_timm(name, length, channels):
    assert external_feature_dim(f"timm/{name}", channels, 32) == length


@needs_timm
def test_a_timm_backbone_is_the_network_without_its_last_layer():
    torch.manual_seed(0)
    own = create("timm/resnet18", 3, 32).eval()
    # published: 11,689,512 with the linear layer of 1000 classes
    assert sum(p.numel() for p in own.parameters()) == 11_689_512 - 513_000
    whole = timm.create_model("resnet18", pretrained=False).eval()
    whole.load_state_dict(own.network.state_dict() | whole.fc.state_dict(prefix="fc."))
    images = torch.randn(2, 3, 32, 32)
    features = own(images)
    assert features.shape == (2, own.feature_dim)
    assert torch.allclose(
        nn.functional.linear(features, whole.fc.weight, whole.fc.bias), whole(images)
    )


@needs_timm
def test_the_seed_alone_decides_the_weights():
    """Also where the feature length was probed in between."""
    found = []
    for name in ("timm/test_vit", "timm/test_vit"):
        external_feature_dim.cache_clear()
        torch.manual_seed(0)
        found.append(create(name, 1, 32).state_dict())
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


@needs_timm
def test_images_that_timm_refuses():
    line = refusal(check, "timm/inception_v3", 3, 32)
    assert line.startswith("model 'timm/inception_v3': does not accept images of 3 x 32 x 32 (")
    assert line.endswith("enlarge them, or choose another model")
    assert "0 x 32 x 32" in refusal(check, "timm/resnet18", 0, 32)


@needs_timm
def test_parameters_of_timm_are_trained():
    network = TimmBackbone(3, 32, name="test_vit")
    network(torch.randn(2, 3, 32, 32)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@needs_timm
def test_training_with_a_timm_backbone(marginctl, tmp_path):
    arguments = ("train", "--data", "digits", "--set", "data.subset_size=100", "--epochs", "1")
    arguments += ("--set", "train.precision=fp32")
    out = ("--out", tmp_path, "--device", "cpu", "--json")
    ran = marginctl(*arguments, "--model", "timm/test_resnet", *out)
    assert ran.status == 0, ran.err
    assert ran.json["cells"][0]["n"] == 1
    run = next(tmp_path.rglob("run.json"))
    assert json.loads(run.read_text())["recipe"]["model"] == "timm/test_resnet"
    assert marginctl("eval", run.parent, "--json").json["n"] == 360
    refused = marginctl(*arguments, "--model", "timm/resnet_18", *out)
    assert refused.status == 2
    assert "Did you mean 'timm/resnet18'?" in refused.err
