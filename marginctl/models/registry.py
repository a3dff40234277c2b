"""The models by name, with their options, as data. No torch here: a recipe's schema reads it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from marginctl.errors import RequestError
from marginctl.objectives.options import (
    Option,
    Value,
    format_options,
    parse_options,
    validate_options,
)
from marginctl.utils.text import did_you_mean, short

_WIDTH = Option(1.0, "multiplies the channels", minimum=0.0, exclusive_minimum=True, maximum=8.0)
EMBEDDING = "embedding"
_EMBEDDING = Option(
    0, "the length of a linear feature layer after it; 0: none", 0, 65536, integer=True
)


@dataclass(frozen=True)
class BackboneEntry:
    """A named backbone.

    Attributes:
        origin: where it was published.
        made_by: its class as `module:Class`, or None for one of torchvision's.
        pixels: the smallest side of an image that all its layers can compute.
        settings: what its class is built with and no recipe changes.
        own_options: what a recipe may change of this model.
    """

    origin: str
    made_by: str | None
    pixels: int = 1
    settings: Mapping[str, Value] = field(default_factory=dict)
    own_options: Mapping[str, Option] = field(default_factory=dict)

    @property
    def options(self) -> Mapping[str, Option]:
        """What a recipe may change: of this model, and of all."""
        return {**self.own_options, EMBEDDING: _EMBEDDING}


def _resnet(depth: int, blocks: tuple[int, ...], *, bottleneck: bool = False) -> BackboneEntry:
    return BackboneEntry(
        f"ResNet-{depth} (He 2016) as usual for CIFAR: a 3x3 stem without pooling",
        "marginctl.models.backbones.resnet:ResNet",
        settings={"blocks": blocks, "bottleneck": bottleneck},
    )


def _wide_resnet(depth: int, widening: int) -> BackboneEntry:
    return BackboneEntry(
        f"Wide ResNet {depth}-{widening} (Zagoruyko and Komodakis 2016)",
        "marginctl.models.backbones.wide_resnet:WideResNet",
        settings={"depth": depth, "widening": widening},
        own_options={
            "dropout": Option(
                0.0, "between the two convolutions of a block", minimum=0.0, maximum=1.0
            )
        },
    )


def _count(default: int, help: str, maximum: int) -> Option:
    return Option(default, help, minimum=1, maximum=maximum, integer=True)


TIMM, OF_TORCHVISION = "timm/", "torchvision/"
TORCHVISION = tuple(
    f"{OF_TORCHVISION}{name}"
    for name in (
        "mobilenet_v2",
        "resnet18",
        "resnet50",
        "resnext50_32x4d",
        "densenet161",
        "densenet169",
        "vgg16",
        "vgg16_bn",
    )
)

# of those that pool without padding
_TORCHVISION_PIXELS = {"densenet161": 29, "densenet169": 29, "vgg16": 32, "vgg16_bn": 32}


def _torchvision(name: str) -> BackboneEntry:
    own = name.removeprefix(OF_TORCHVISION)
    return BackboneEntry(
        f"torchvision's {own}, without weights and without its last layer",
        None,
        pixels=_TORCHVISION_PIXELS.get(own, 1),
    )


BACKBONES: Mapping[str, BackboneEntry] = {
    "layer13": BackboneEntry(
        "Large Margin in Softmax's 13-layer network, after Mean Teacher's (Tarvainen 2017)",
        "marginctl.models.backbones.layer13:Layer13",
        pixels=12,
        own_options={
            "width": _WIDTH,
            "last": Option(
                "3x3",
                "the last two convolutions: 3x3 as in the author's port, 1x1 as in Mean Teacher",
                choices=("3x3", "1x1"),
            ),
        },
    ),
    "resnet18": _resnet(18, (2, 2, 2, 2)),
    "resnet34": _resnet(34, (3, 4, 6, 3)),
    "resnet50": _resnet(50, (3, 4, 6, 3), bottleneck=True),
    "wrn-28-10": _wide_resnet(28, 10),
    "wrn-16-8": _wide_resnet(16, 8),
    "mnist-cnn": BackboneEntry(
        "three convolutions and a linear feature, ours; 2 numbers a feature can be plotted",
        "marginctl.models.backbones.mnist_cnn:MnistCNN",
        pixels=4,
        own_options={"feature_dim": _count(2, "the length of a feature", 65536)},
    ),
    "vgg16": BackboneEntry(
        "VGG-16 (Simonyan and Zisserman 2015) as usual for CIFAR: its convolutions alone",
        "marginctl.models.backbones.vgg:VGG16",
        pixels=32,
        settings={"norm": False},
    ),
    "vgg16-bn": BackboneEntry(
        "vgg16 with batch normalisation after each convolution",
        "marginctl.models.backbones.vgg:VGG16",
        pixels=32,
        settings={"norm": True},
    ),
    "vgg16-mod": BackboneEntry(
        "Large Margin in Softmax's VGG-16-mod (Kobayashi 2018), as in the author's port",
        "marginctl.models.backbones.vgg:VGG16Mod",
        pixels=16,
    ),
    "mobilenet": BackboneEntry(
        "MobileNet (Howard 2017); images of up to 64 pixels are not halved by its first layer",
        "marginctl.models.backbones.mobilenet:MobileNet",
        own_options={"width": _WIDTH},
    ),
    "efficientnet-lite0": BackboneEntry(
        "EfficientNet-Lite0 (Google 2020), with the extra `pretrained`",
        "marginctl.models.backbones.efficientnet_lite:EfficientNetLite0",
    ),
    "mlp": BackboneEntry(
        "hidden layers with ReLU on all pixels of an image",
        "marginctl.models.backbones.mlp:MLP",
        own_options={
            "width": _count(128, "units of a hidden layer", 65536),
            "depth": _count(2, "hidden layers", 1000),
        },
    ),
    **{name: _torchvision(name) for name in TORCHVISION},
}


_TIMM_NAME = re.compile(r"timm/[A-Za-z0-9_]+")
_TORCHVISION_NAME = re.compile(r"torchvision/[a-z0-9_]+")


def find_backbone(name: object) -> BackboneEntry:
    """The model `name`: one of `BACKBONES`, another one of torchvision's, or one of timm's.

    Reading a name needs neither library: `check_image_shape` looks it up there.

    Raises:
        RequestError: no such model, or a name with one of timm's tags, which are of weights.
    """
    if isinstance(name, str) and name in BACKBONES:
        return BACKBONES[name]
    if isinstance(name, str) and name.startswith(TIMM) and len(name) > len(TIMM):
        own = name.removeprefix(TIMM)
        if not _TIMM_NAME.fullmatch(name):
            raise RequestError(
                f"model {name!r}: expected letters, digits and underscores after {TIMM}: networks "
                "start without weights, so leave out the tag of weights after a dot"
            )
        return BackboneEntry(
            f"timm's {own}, without weights and without its last layer",
            "marginctl.models.backbones.timm_backbone:FromTimm",
            settings={"name": own},
        )
    if isinstance(name, str) and _TORCHVISION_NAME.fullmatch(name):
        return _torchvision(name)
    raise RequestError(
        f"unknown model {short(repr(name))}: expected one of {', '.join(BACKBONES)}, another "
        f"{OF_TORCHVISION}NAME, or {TIMM}NAME." + did_you_mean(str(name), BACKBONES)
    )


def check_model(name: object, options: Mapping[str, object]) -> dict[str, Value]:
    """All options of the model `name` with their values, defaults where none was given.

    Raises:
        RequestError: no such model or option, or a value outside its range.
    """
    known = find_backbone(name).options
    given = {str(key): value for key, value in options.items()}
    accepted = validate_options(f"model '{name}'", known, given)
    return {key: int(v) if known[key].integer else v for key, v in accepted.items()}


def parse_model(text: str) -> tuple[str, dict[str, Value]]:
    """Reads `NAME:option=value,option=value`: the name and all options, defaults included.

    Raises:
        RequestError: as `check_model`, or the text has another form.
    """
    name, colon, rest = (piece.strip() for piece in text.partition(":"))
    expected = "NAME:option=value,option=value"
    return name, check_model(
        name, parse_options(f"model '{text}'", rest if colon else None, expected)
    )


def canonical_model(text: str) -> str:
    """As `parse_model` reads it, with sorted options and without defaults.

    Raises:
        RequestError: as `parse_model`.
    """
    name, options = parse_model(text)
    written = format_options(find_backbone(name).options, options)
    return f"{name}:{written}" if written else name


def check_image_shape(name: str, channels: int, pixels: int) -> None:
    """Raises RequestError where the model `name` cannot take images of this shape.

    One of timm's, or of torchvision's that is not in `BACKBONES`, is built for it, as shapes alone:
    also where there is no such model, or no timm, this is where it is said.

    Args:
        name: one of `BACKBONES`, another classifier of torchvision, or one of timm's.
        channels: 3 for RGB, 1 for grey.
        pixels: an image's side, the smaller one where they differ.
    """
    model = find_backbone(name)
    if channels < 1 or (model.made_by is None and channels != 3):
        expected = "3" if model.made_by is None else "at least 1"
        raise RequestError(
            f"model '{name}': images with channels = {channels}: expected {expected}"
            + (": make them RGB, or take a model such as 'resnet18'" if channels > 0 else "")
        )
    if pixels < model.pixels:
        raise RequestError(
            f"model '{name}': images with side = {pixels}: expected at least {model.pixels} "
            "pixels: enlarge them, or take a model that pools less, such as 'resnet18'"
        )
    if name.startswith(TIMM):
        from marginctl.models.backbones.timm_backbone import feature_length

        feature_length(name.removeprefix(TIMM), channels, pixels)
    elif name.startswith(OF_TORCHVISION) and name not in BACKBONES:
        from marginctl.models.backbones.torchvision_backbone import check

        check(name.removeprefix(OF_TORCHVISION), pixels)
