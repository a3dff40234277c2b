"""timm's models as backbones: their features, what they take, and what is said without timm."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

from marginctl.errors import RequestError
from marginctl.models.backbone import create_backbone
from marginctl.models.backbones.timm_backbone import FromTimm, feature_length
from marginctl.models.registry import canonical_model, check_image_shape, check_model

try:
    import timm
except ModuleNotFoundError:
    timm = None

needs_timm = pytest.mark.skipif(timm is None, reason="timm is not installed")


def refusal(call, *arguments) -> str:
    with pytest.raises(RequestError) as caught:
        call(*arguments)
    (line,) = caught.value.lines
    assert "\n" not in line
    return line


def test_a_name_is_read_without_timm_and_without_torch():
    code = """
import sys
sys.modules["timm"] = None
from marginctl.models.registry import canonical_model
print(canonical_model("timm/resnet18"), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["timm/resnet18", "False"]
    assert canonical_model("timm/resnet18") == "timm/resnet18"


def test_names_that_are_none():
    assert refusal(check_model, "timm/", {}).startswith("unknown model 'timm/': expected one of ")
    assert refusal(check_model, "timm/resnet50.a1_in1k", {}) == (
        "model 'timm/resnet50.a1_in1k': expected letters, digits and underscores after timm/: "
        "networks start without weights, so leave out the tag of weights after a dot"
    )
    assert "its options are embedding" in refusal(check_model, "timm/resnet18", {"width": 1})


def test_without_timm_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    feature_length.cache_clear()
    for call, arguments in ((check_image_shape, (3, 32)), (create_backbone, ({}, 3, 32))):
        assert refusal(call, "timm/resnet18", *arguments) == (
            "model 'timm/resnet18': timm is not installed: pip install 'marginctl[timm]', or take "
            "one of marginctl's own models or of torchvision's"
        )


@needs_timm
def test_an_unknown_model_is_named_with_the_nearest():
    assert refusal(check_image_shape, "timm/resnet_18", 3, 32) == (
        f"unknown model 'timm/resnet_18': timm {timm.__version__} has none. "
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
def test_lengths_of_features(name, length, channels):
    assert feature_length(name, channels, 32) == length


@needs_timm
def test_a_network_is_timms_without_its_last_layer():
    torch.manual_seed(0)
    own = create_backbone("timm/resnet18", {}, 3, 32).eval()
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
    """Also where its shape was asked for in between."""
    found = []
    for name in ("timm/test_vit", "timm/test_vit"):
        feature_length.cache_clear()
        torch.manual_seed(0)
        found.append(create_backbone(name, {}, 1, 32).state_dict())
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


@needs_timm
def test_images_that_it_does_not_take():
    line = refusal(check_image_shape, "timm/inception_v3", 3, 32)
    assert line.startswith(
        "model 'timm/inception_v3': images of 3 x 32 x 32: it does not take them"
    )
    assert line.endswith("enlarge them, or take another model")
    assert "channels = 0" in refusal(check_image_shape, "timm/resnet18", 0, 32)


@needs_timm
def test_its_parameters_are_trained():
    network = FromTimm(3, 32, "test_vit")
    network(torch.randn(2, 3, 32, 32)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@needs_timm
def test_a_training_with_one(marginctl, tmp_path):
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
