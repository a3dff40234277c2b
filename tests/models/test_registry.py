"""The models as data: what is accepted, what is refused and in which words."""

import importlib
import subprocess
import sys

import pytest

from marginctl.errors import RequestError
from marginctl.models.registry import (
    BACKBONES,
    TORCHVISION,
    canonical_model,
    check_image_shape,
    check_model,
    parse_model,
)


def refusal(call, *arguments) -> str:
    with pytest.raises(RequestError) as caught:
        call(*arguments)
    (line,) = caught.value.lines
    assert "\n" not in line
    return line


def test_names_import_no_torch():
    code = (
        "import sys, marginctl.models.registry; print({'torch', 'torchvision'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_model_is_made_by_a_class_that_exists():
    for name, model in BACKBONES.items():
        assert (model.made_by is None) == (name in TORCHVISION)
        if model.made_by is not None:
            module, _, made = model.made_by.partition(":")
            assert isinstance(getattr(importlib.import_module(module), made), type)
        assert model.origin


def test_defaults_are_their_own_accepted_values():
    for name, model in BACKBONES.items():
        values = check_model(name, {})
        assert values == {key: option.default for key, option in model.options.items()}
        assert all(type(values[key]) is type(o.default) for key, o in model.options.items())


def test_options_as_a_command_line_gives_them():
    assert check_model("mlp", {"width": "64"}) == {"width": 64, "depth": 2, "embedding": 0}
    assert check_model("layer13", {"width": 0.25, "last": "1x1"}) == {
        "width": 0.25,
        "last": "1x1",
        "embedding": 0,
    }


def test_a_model_is_written_as_an_objective_is():
    assert parse_model("wrn-28-10") == ("wrn-28-10", {"dropout": 0.0, "embedding": 0})
    assert parse_model(" mlp : depth=3") == (
        "mlp",
        {"width": 128, "depth": 3, "embedding": 0},
    )
    assert canonical_model("mlp:width=64,depth=3") == "mlp:depth=3,width=64"
    assert canonical_model("layer13:last=3x3,width=1") == "layer13"
    assert canonical_model("torchvision/resnet50") == "torchvision/resnet50"
    assert canonical_model("timm/resnet18: embedding=512") == "timm/resnet18:embedding=512"
    assert canonical_model("resnet18:embedding=0") == "resnet18"
    assert refusal(parse_model, "mlp:64") == (
        "model 'mlp:64': '64' is not option=value: expected NAME:option=value,option=value"
    )


def test_an_unknown_model_is_named_with_the_nearest():
    line = refusal(check_model, "resnet-18", {})
    assert line.startswith("unknown model 'resnet-18': expected one of layer13, resnet18, ")
    assert line.endswith("Did you mean 'resnet18'?")
    nearest = refusal(check_model, "densenet161", {})
    assert nearest.endswith("Did you mean 'torchvision/densenet161'?")
    assert refusal(check_model, 18, {}).startswith("unknown model 18: expected one of layer13, ")


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        (
            "layer13",
            {"widht": 1},
            "model 'layer13': unknown option 'widht': its options are width, last, embedding. "
            "Did you mean 'width'?",
        ),
        (
            "resnet18",
            {"width": 1},
            "model 'resnet18': unknown option 'width': its options are embedding.",
        ),
        (
            "mlp",
            {1: 2},
            "model 'mlp': unknown option '1': its options are width, depth, embedding.",
        ),
        (
            "layer13",
            {"last": "5x5"},
            "model 'layer13': last = '5x5': expected one of 3x3, 1x1",
        ),
        (
            "wrn-16-8",
            {"dropout": 1.5},
            "model 'wrn-16-8': dropout = 1.5: expected a finite number at least 0 and at most 1",
        ),
        (
            "mnist-cnn",
            {"feature_dim": 2.5},
            "model 'mnist-cnn': feature_dim = 2.5: expected an integer at least 1 and at "
            "most 65536",
        ),
        (
            "mobilenet",
            {"width": 0},
            "model 'mobilenet': width = 0: expected a finite number above 0 and at most 8",
        ),
    ],
)
def test_refused_options(name, options, line):
    assert refusal(check_model, name, options) == line


def test_refused_images():
    assert refusal(check_image_shape, "vgg16", 3, 28) == (
        "model 'vgg16': images with side = 28: expected at least 32 pixels: enlarge them, or take "
        "a model that pools less, such as 'resnet18'"
    )
    assert refusal(check_image_shape, "torchvision/resnet50", 1, 28) == (
        "model 'torchvision/resnet50': images with channels = 1: expected 3: make them RGB, or "
        "take a model such as 'resnet18'"
    )
    assert refusal(check_image_shape, "resnet18", 0, 28) == (
        "model 'resnet18': images with channels = 0: expected at least 1"
    )
    check_image_shape("resnet18", 1, 1)
    check_image_shape("torchvision/vgg16", 3, 32)
