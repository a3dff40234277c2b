"""Weights files: what is read, by which names, and what is refused without running code."""

import os
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn
from torchvision import models

from marginctl.errors import RequestError
from marginctl.models.factory import create_backbone
from marginctl.models.registry import ModelSpec
from marginctl.models.state_dicts import check_shapes, read_backbone, read_state_dict

STATE = {"a.weight": torch.arange(6.0).view(2, 3), "a.bias": torch.ones(2)}


def saved(path, content):
    torch.save(content, path)
    return path


def prefixed(prefix):
    return {f"{prefix}{name}": value for name, value in STATE.items()}


@pytest.mark.parametrize(
    "content",
    [
        STATE,
        {"state_dict": STATE, "epoch": 3},
        {"model": STATE, "optimizer": {"lr": 0.1}},
        {"state_dict": prefixed("module.")},
        {"model": prefixed("_orig_mod.module.")},
    ],
)
def test_state_dicts_are_unwrapped(tmp_path, content):
    state = read_state_dict(saved(tmp_path / "w.pth", content))
    assert state.keys() == STATE.keys()
    assert all(torch.equal(state[name], STATE[name]) for name in STATE)


def test_safetensors_are_read(tmp_path):
    save_file(prefixed("module."), tmp_path / "w.safetensors")
    assert read_state_dict(tmp_path / "w.safetensors").keys() == STATE.keys()


class Harmful:
    def __reduce__(self):
        return (Path.touch, (Path("was-run"),))


def make_bad_file(kind, folder):
    path = folder / ("w.safetensors" if kind == "cut safetensors" else "w.pth")
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "cut safetensors":
        save_file(STATE, path)
        path.write_bytes(path.read_bytes()[:-4])
    elif kind == "cut":
        saved(path, STATE)
        path.write_bytes(path.read_bytes()[:200])
    elif kind in ("text", "page", "no bytes"):
        text = {"text": "weights\n", "page": "<!doctype html><html></html>", "no bytes": ""}
        path.write_text(text[kind])
    elif kind != "missing":
        contents = {
            "code": {"x": Harmful()},
            "empty": {},
            "numbers": {"lr": 0.1},
            "list": [1],
            "sparse": {"x": torch.eye(2).to_sparse()},
        }
        saved(path, contents[kind])
    return path


BAD = ["missing", "folder", "pipe", "cut", "cut safetensors", "text", "page", "no bytes", "code"]
BAD += ["empty", "numbers", "list", "sparse"]


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_a_line(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    path = make_bad_file(kind, tmp_path)
    with pytest.raises(RequestError) as caught:
        read_state_dict(path)
    (line,) = caught.value.lines
    wanted = {"missing": "is missing: ", "folder": "is no file: ", "pipe": "is no file: "}
    assert line.startswith(f"{path}: {wanted.get(kind, 'holds no weights (')}")
    assert "\n" not in line
    assert not Path("was-run").exists()


def network_of(name):
    library, _, model = name.partition("/")
    torch.manual_seed(0)
    return timm.create_model(model) if library == "timm" else models.get_model(model)


@pytest.mark.parametrize(
    "name",
    [
        "torchvision/resnet18",
        "torchvision/mobilenet_v3_small",
        "timm/resnet18",
        "timm/vit_tiny_patch16_224",
        "timm/mobilenetv3_small_050",
        "timm/convnext_atto",
    ],
)
def test_a_librarys_state_dict_is_the_backbones(tmp_path, name):
    network, model = network_of(name).eval(), ModelSpec.parse(name)
    state, classifier = read_backbone(name, saved(tmp_path / "w.pth", network.state_dict()))
    backbone = create_backbone(model, 3, 224).eval()
    check_shapes(backbone, state)
    backbone.load_state_dict(state)
    assert {n: len(tensor) for n, tensor in classifier.items()} == {"weight": 1000, "bias": 1000}
    features = []
    last = [m for m in network.modules() if isinstance(m, nn.Linear)][-1]
    last.register_forward_pre_hook(lambda _, given: features.append(given[0]))
    x = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        network(x)
        torch.testing.assert_close(backbone(x), features[0])


def test_old_names_and_missing_counters(tmp_path):
    """torchvision's published DenseNets, and files of before torch 0.4.1."""
    network = models.densenet121().state_dict()
    old = {
        name.replace("norm1.", "norm.1.").replace("conv2.", "conv.2."): value
        for name, value in network.items()
        if not name.endswith("num_batches_tracked")
    }
    assert any(".norm.1." in name for name in old)
    model = ModelSpec.parse("torchvision/densenet121")
    state, _ = read_backbone(model.name, saved(tmp_path / "w.pth", old))
    check_shapes(create_backbone(model, 3, 64), state)


def test_efficientnet_lite_in_the_names_of_its_package(tmp_path):
    package = pytest.importorskip("efficientnet_lite_pytorch")
    network = package.EfficientNet.from_name("efficientnet-lite0", num_classes=5)
    model = ModelSpec.parse("efficientnet-lite0")
    path = saved(tmp_path / "w.pth", network.state_dict())
    state, classifier = read_backbone("efficientnet-lite0", path)
    check_shapes(create_backbone(model, 3, 64), state)
    assert len(classifier["weight"]) == 5


def test_other_networks_are_told_by_missing_unexpected_and_other_tensors(tmp_path):
    model = ModelSpec.parse("torchvision/resnet18")
    other = models.resnet50().state_dict()
    state, _ = read_backbone(model.name, saved(tmp_path / "w.pth", other))
    with pytest.raises(ValueError, match="in this network") as caught:
        check_shapes(create_backbone(model, 3, 64), state)
    kinds = str(caught.value).split("; ")
    assert kinds[0].startswith("'network.layer1.0.conv1.weight' is 64 x 64 x 1 x 1 in it, and 64 x")
    assert "' is absent in this network" not in kinds[0]
    assert any("in it, and absent in this network (and " in kind for kind in kinds)
    assert len(kinds) == 2  # a ResNet-50 has all tensors of a ResNet-18
