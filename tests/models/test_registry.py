"""The registry of backbones: entries, names, options, and messages."""

import pickle
import subprocess
import sys

import pydantic
import pytest

from marginctl.errors import RequestError
from marginctl.models.backbone import Backbone
from marginctl.models.factory import check_image_shape
from marginctl.models.registry import BACKBONES, TORCHVISION, ModelSpec, find_backbone
from marginctl.utils.registry import import_object


def refusal(call, *arguments) -> str:
    with pytest.raises(RequestError) as caught:
        call(*arguments)
    (line,) = caught.value.lines
    assert "\n" not in line
    return line


def test_the_registry_imports_no_torch():
    code = (
        "import sys, marginctl.models.registry as r; str(r.ModelSpec.parse('timm/resnet18'));"
        "print({'torch', 'torchvision', 'timm'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", BACKBONES.builtin)
def test_entries(name):
    entry = BACKBONES[name]
    import_object(entry.path, name, Backbone)
    assert entry.description
    assert entry.channels == (3 if name.startswith(TORCHVISION) else None)
    defaults = {key: option.default for key, option in entry.all_options.items()}
    options = ModelSpec.parse(name).options
    assert options == defaults
    assert [type(value) for value in options.values()] == [type(v) for v in defaults.values()]


def test_a_model_is_parsed_with_all_options():
    assert ModelSpec.parse("wrn-28-10").options == {"dropout": 0.0, "embedding": 0}
    model = ModelSpec.parse(" mlp : depth=3")
    assert (model.name, model.options) == ("mlp", {"width": 128, "depth": 3, "embedding": 0})
    assert ModelSpec.parse("layer13:width=0.25,last=1x1").options == {
        "width": 0.25,
        "last": "1x1",
        "embedding": 0,
    }


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("mlp:width=64,depth=3", "mlp:depth=3,width=64"),
        ("layer13:last=3x3,width=1", "layer13"),
        ("torchvision/resnet50", "torchvision/resnet50"),
        ("timm/resnet18: embedding=512", "timm/resnet18:embedding=512"),
        ("resnet18:embedding=0", "resnet18"),
    ],
)
def test_the_canonical_text_of_a_model(text, canonical):
    model = ModelSpec.parse(text)
    assert str(model) == canonical
    assert model == ModelSpec.parse(canonical) == pickle.loads(pickle.dumps(model))
    assert len({model, ModelSpec.parse(canonical), ModelSpec.parse("mlp")}) == 2


def test_a_pydantic_field_reads_and_writes_a_model():
    field = pydantic.TypeAdapter(ModelSpec)
    model = field.validate_python("mlp:width=64")
    assert model == field.validate_python(model)
    assert field.dump_python(model) == "mlp:width=64"
    for value in ("mpl", 18):
        with pytest.raises(pydantic.ValidationError):
            field.validate_python(value)


def test_an_unknown_model_is_named_with_the_nearest():
    line = refusal(find_backbone, "resnet-18")
    assert line.startswith("unknown model 'resnet-18': expected one of layer13, resnet18, ")
    assert line.endswith(", or another torchvision/NAME or timm/NAME. Did you mean 'resnet18'?")
    nearest = refusal(find_backbone, "densenet161")
    assert nearest.endswith("Did you mean 'torchvision/densenet161'?")
    assert refusal(find_backbone, "timm/").startswith("unknown model 'timm/': expected one of ")
    assert refusal(find_backbone, "timm/resnet50.a1_in1k") == (
        "model 'timm/resnet50.a1_in1k': expected letters, digits and underscores after timm/: "
        "leave out the tag after the dot, and name weights by --weights timm/NAME.TAG"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "layer13:widht=1",
            "model 'layer13': unknown option 'widht': its options are width, last, embedding. "
            "Did you mean 'width'?",
        ),
        (
            "resnet18:width=1",
            "model 'resnet18': unknown option 'width': its options are embedding.",
        ),
        (
            "timm/resnet18:width=1",
            "model 'timm/resnet18': unknown option 'width': its options are embedding.",
        ),
        (
            "layer13:last=5x5",
            "model 'layer13': last = '5x5': expected one of 3x3, 1x1",
        ),
        (
            "wrn-16-8:dropout=1.5",
            "model 'wrn-16-8': dropout = '1.5': expected a finite number at least 0 and at most 1",
        ),
        (
            "mnist-cnn:feature_dim=2.5",
            "model 'mnist-cnn': feature_dim = '2.5': expected an integer at least 1 and at "
            "most 65536",
        ),
        (
            "mobilenet:width=0",
            "model 'mobilenet': width = '0': expected a finite number above 0 and at most 8",
        ),
        (
            "mlp:64",
            "model 'mlp:64': '64' is not option=value: expected NAME:option=value,option=value",
        ),
    ],
)
def test_refused_options(text, line):
    assert refusal(ModelSpec.parse, text) == line


@pytest.mark.parametrize(
    ("name", "channels", "size", "line"),
    [
        (
            "vgg16",
            3,
            28,
            "model 'vgg16': images of 28 x 28 pixels: expected at least 32 x 32: enlarge them, or "
            "choose a model that pools less, such as 'resnet18'",
        ),
        (
            "torchvision/resnet50",
            1,
            28,
            "model 'torchvision/resnet50': images of 1 channel: expected 3: convert them to RGB, "
            "or choose a model such as 'resnet18'",
        ),
        ("resnet18", 0, 28, "model 'resnet18': images of 0 channels: expected at least 1"),
    ],
)
def test_refused_images(name, channels, size, line):
    assert refusal(check_image_shape, ModelSpec.parse(name), channels, size) == line


def test_accepted_images():
    check_image_shape(ModelSpec.parse("resnet18"), 1, 1)
    check_image_shape(ModelSpec.parse("torchvision/vgg16"), 3, 32)
