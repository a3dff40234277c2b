"""Backbones by name, as data: import paths, options, smallest images, stages. No torch here.

A backbone is added by its module in `backbones/` and an entry in `BACKBONES`, or by a plug-in.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from marginctl.errors import RequestError
from marginctl.objectives.options import (
    Option,
    TextForm,
    Value,
    format_options,
    parse_options,
    validate_options,
)
from marginctl.utils.registry import Registry
from marginctl.utils.text import shorten

EMBEDDING = "embedding"
TIMM, TORCHVISION = "timm/", "torchvision/"
STAGED_FAMILIES = (
    "marginctl's own, torchvision's resnet, resnext, wide_resnet, densenet, vgg and mobilenet_v2, "
    "and timm's resnets"
)
_BACKBONES = "marginctl.models.backbones"
_WIDTH = Option(1.0, "channel multiplier", minimum=0.0, exclusive_minimum=True, maximum=8.0)
_EMBEDDING = Option(
    0, "length of a linear embedding layer after the backbone; 0: none", 0, 65536, integer=True
)
_NAME = re.compile(r"timm/[A-Za-z0-9_]+|torchvision/[a-z0-9_]+")
_STAGED = re.compile(
    r"torchvision/(resnet|resnext|wide_resnet|densenet|vgg|mobilenet_v2$).*"
    r"|timm/(resnet|resnext|wide_resnet)\d\w*"
)


@dataclass(frozen=True)
class Stages:
    """How a backbone divides into four stages; see `models/stages.py`."""

    # what begins a stage: a layer that reduces the resolution, or each of the last 4 linear layers
    begin_at: Literal["resolution", "linear-layer"] = "resolution"
    # the module that begins one more stage, for networks with only three resolutions
    extra: str | None = None


@dataclass(frozen=True)
class BackboneEntry:
    description: str
    # import path `module:Class` of a subclass of `Backbone`, which is called with the image
    # channels, the image size, `settings` and the options
    path: str
    min_size: int = 1  # the smallest image height and width that all its layers can process
    channels: int | None = None
    settings: Mapping[str, Value] = field(default_factory=dict)
    options: Mapping[str, Option] = field(default_factory=dict)
    stages: Stages | None = None  # how it divides into four stages; None where it does not

    @property
    def all_options(self) -> Mapping[str, Option]:
        """The options of this backbone and those of every backbone."""
        return {**self.options, EMBEDDING: _EMBEDDING}


def _count(default: int, help: str, maximum: int) -> Option:
    return Option(default, help, minimum=1, maximum=maximum, integer=True)


def _resnet(depth: int, blocks: tuple[int, ...], *, bottleneck: bool = False) -> BackboneEntry:
    return BackboneEntry(
        f"ResNet-{depth} (He 2016), the usual variant for CIFAR: a 3x3 stem without pooling",
        f"{_BACKBONES}.residual:ResNet",
        settings={"blocks": blocks, "bottleneck": bottleneck},
        stages=Stages(),
    )


def _wide_resnet(depth: int, widening: int) -> BackboneEntry:
    return BackboneEntry(
        f"Wide ResNet {depth}-{widening} (Zagoruyko and Komodakis 2016)",
        f"{_BACKBONES}.residual:WideResNet",
        settings={"depth": depth, "widening": widening},
        options={
            "dropout": Option(
                0.0, "dropout between the two convolutions of a block", minimum=0.0, maximum=1.0
            )
        },
        stages=Stages(extra="layers.1"),  # the stem is stage 1
    )


def _external(name: str, min_size: int = 1) -> BackboneEntry:
    library, _, model = name.partition("/")
    is_timm = library == "timm"
    return BackboneEntry(
        f"{library}'s {model}, without weights and without its last layer",
        f"{_BACKBONES}.external:{'TimmBackbone' if is_timm else 'TorchvisionBackbone'}",
        min_size=min_size,
        channels=None if is_timm else 3,
        settings={"name": model},
        stages=Stages() if _STAGED.fullmatch(name) else None,
    )


BACKBONES = Registry(
    "backbone",
    BackboneEntry,
    {
        "layer13": BackboneEntry(
            "Large Margin in Softmax's 13-layer network, after Mean Teacher's (Tarvainen 2017)",
            f"{_BACKBONES}.plain:Layer13",
            min_size=12,
            options={
                "width": _WIDTH,
                "last": Option(
                    "3x3",
                    "last two convolutions: 3x3 as in the author's port, 1x1 as in Mean Teacher",
                    choices=("3x3", "1x1"),
                ),
            },
            stages=Stages(extra="layers.9"),  # the last two convolutions are stage 4
        ),
        "resnet18": _resnet(18, (2, 2, 2, 2)),
        "resnet34": _resnet(34, (3, 4, 6, 3)),
        "resnet50": _resnet(50, (3, 4, 6, 3), bottleneck=True),
        "wrn-28-10": _wide_resnet(28, 10),
        "wrn-16-8": _wide_resnet(16, 8),
        "cifar-cnn": BackboneEntry(
            "three convolutions and a residual block, ours, for CIFAR on CPUs; after Page (2018)",
            f"{_BACKBONES}.residual:CifarCNN",
            min_size=8,
            options={"width": _WIDTH},
            stages=Stages(extra="layers.3"),  # the residual block is stage 4
        ),
        "mnist-cnn": BackboneEntry(
            "three convolutions and a linear feature, ours; features of length 2 can be plotted",
            f"{_BACKBONES}.plain:MnistCNN",
            min_size=4,
            options={"feature_dim": _count(2, "length of a feature", 65536)},
            stages=Stages(extra="feature"),  # the linear layer is stage 4
        ),
        "vgg16": BackboneEntry(
            "VGG-16 (Simonyan and Zisserman 2015), the usual variant for CIFAR: convolutions only",
            f"{_BACKBONES}.plain:VGG16",
            min_size=32,
            settings={"norm": False},
            stages=Stages(),
        ),
        "vgg16-bn": BackboneEntry(
            "vgg16 with batch normalisation after each convolution",
            f"{_BACKBONES}.plain:VGG16",
            min_size=32,
            settings={"norm": True},
            stages=Stages(),
        ),
        "vgg16-mod": BackboneEntry(
            "Large Margin in Softmax's VGG-16-mod (Kobayashi 2018), as in the author's port",
            f"{_BACKBONES}.plain:VGG16Mod",
            min_size=16,
            stages=Stages(),
        ),
        "mobilenet": BackboneEntry(
            "MobileNet (Howard 2017); its first layer keeps the size of images up to 64 pixels",
            f"{_BACKBONES}.plain:MobileNet",
            options={"width": _WIDTH},
            stages=Stages(),
        ),
        "efficientnet-lite0": BackboneEntry(
            "EfficientNet-Lite0 (Google 2020); needs the extra `pretrained`",
            f"{_BACKBONES}.efficientnet_lite:EfficientNetLite0",
            stages=Stages(),
        ),
        "mlp": BackboneEntry(
            "hidden layers with ReLU on all pixels of an image",
            f"{_BACKBONES}.plain:MLP",
            options={
                "width": _count(128, "units of a hidden layer", 65536),
                "depth": _count(2, "hidden layers", 1000),
            },
            stages=Stages("linear-layer"),
        ),
        **{
            f"{TORCHVISION}{model}": _external(f"{TORCHVISION}{model}", min_size)
            for min_size, models in (
                (1, ("mobilenet_v2", "resnet18", "resnet50", "resnext50_32x4d")),
                (29, ("densenet161", "densenet169")),  # they pool without padding
                (32, ("vgg16", "vgg16_bn")),
            )
            for model in models
        },
    },
    label="model",
    also=f"another {TORCHVISION}NAME or {TIMM}NAME",
)


def find_backbone(name: str) -> BackboneEntry:
    """Return the entry of a backbone, of another classifier of torchvision, or of a timm model.

    Reading a name needs neither library: `check_image_shape` looks it up there.
    """
    if name not in BACKBONES and _NAME.fullmatch(name):
        return _external(name)
    if name not in BACKBONES and name.startswith(TIMM) and name != TIMM:
        raise RequestError(
            f"model '{shorten(name)}': expected letters, digits and underscores after {TIMM}: "
            f"leave out the tag after the dot, and name weights by --weights {TIMM}NAME.TAG"
        )
    return BACKBONES.find(name)


@dataclass(frozen=True, eq=False)
class ModelSpec(TextForm):
    """A backbone's name and options, as a recipe or an option names it.

    The canonical text has sorted options, and no defaults.
    """

    name: str  # a name of `BACKBONES`, torchvision/NAME or timm/NAME
    options: Mapping[str, Value]

    @classmethod
    def parse(cls, text: str) -> "ModelSpec":
        """Return the model in `NAME:option=value,option=value`."""
        name, colon, rest = (piece.strip() for piece in text.partition(":"))
        known = find_backbone(name).all_options
        given = parse_options(
            f"model '{text}'", rest if colon else None, "NAME:option=value,option=value"
        )
        values = validate_options(f"model '{name}'", known, given)
        return cls(name, {key: int(v) if known[key].integer else v for key, v in values.items()})

    @classmethod
    def read(cls, value: object) -> "ModelSpec":
        if isinstance(value, ModelSpec):
            return value
        if not isinstance(value, str):
            raise RequestError(f"expected NAME:option=value, not {shorten(repr(value))}")
        return cls.parse(value)

    @property
    def entry(self) -> BackboneEntry:
        """The backbone's entry in the registry."""
        return find_backbone(self.name)

    @property
    def plugin_origin(self) -> str | None:
        """The plug-in that the backbone comes from, None for a built-in one."""
        return BACKBONES.origin(self.name)

    @cached_property
    def _text(self) -> str:
        options = format_options(self.entry.all_options, self.options)
        return f"{self.name}:{options}" if options else self.name
