"""Four blocks of a backbone, as fine-tuning of a part of them counts (Temperature, Tables 10, 15).

The paper names the four stages of ResNet-50. What the blocks of other networks are is our choice:
layers that work on maps of one size are one block, and what makes the maps smaller begins the next
one. Of more than four sizes the finest ones are one block, so that a ResNet's stem is in block 1.
What follows the last convolution (pooling, hidden layers, a feature layer) is in block 4.
"""

import itertools
import re

from torch import nn

from marginctl.errors import RequestError
from marginctl.models.backbone import Backbone, Embedded
from marginctl.models.backbones.efficientnet_lite import EfficientNetLite0
from marginctl.models.backbones.layer13 import Layer13
from marginctl.models.backbones.mlp import MLP
from marginctl.models.backbones.mnist_cnn import MnistCNN
from marginctl.models.backbones.mobilenet import MobileNet
from marginctl.models.backbones.resnet import ResNet
from marginctl.models.backbones.vgg import VGG16, VGG16Mod
from marginctl.models.backbones.wide_resnet import WideResNet

Block = tuple[str, ...]  # paths of modules in a backbone

# Networks with three sizes of maps, and the module with which one more block begins.
_THREE = {
    Layer13: "layers.9",  # the last two convolutions are block 4
    WideResNet: "layers.1",  # the stem is block 1, and the stages are the others
    MnistCNN: "feature",  # the linear layer is block 4
}
_FOUR = (ResNet, VGG16, VGG16Mod, MobileNet, EfficientNetLite0)
_OTHERS = re.compile(
    r"torchvision/(resnet|resnext|wide_resnet|densenet|vgg|mobilenet_v2$).*"
    r"|timm/(resnet|resnext|wide_resnet)\d\w*"
)
FAMILIES = "marginctl's own, torchvision's resnet, resnext, wide_resnet, densenet, vgg and "
FAMILIES += "mobilenet_v2, timm's resnets"


def backbone_stages(name: str, backbone: Backbone) -> tuple[Block, Block, Block, Block]:
    """The modules of each block, in the order in which they work; a block may have none.

    Every parameter and buffer of the backbone is in one of these modules.

    Args:
        name: of the model, without options.
        backbone: made by that name.

    Raises:
        RequestError: a network of another family, which has no blocks.
    """
    if isinstance(backbone, Embedded):
        inner = backbone_stages(name, backbone.backbone)
        one, two, three, four = (tuple(f"backbone.{path}" for path in block) for block in inner)
        return one, two, three, (*four, "embedding")
    units = _units(backbone)
    paths = [path for path, _ in units]
    if isinstance(backbone, MLP):  # from the end: the last hidden layer is block 4
        starts = [i for i, (_, unit) in enumerate(units) if isinstance(unit, nn.Linear)]
        starts = [0] * (4 - len(starts)) + starts if len(starts) < 4 else starts
    else:
        known = isinstance(backbone, (*_FOUR, *_THREE)) or _OTHERS.fullmatch(name)
        last = max((i for i, (_, u) in enumerate(units) if _has(u, nn.Conv2d)), default=0)
        starts = [0, *(i for i in range(1, last + 1) if _halves(units[i][1]))]
        more = next((path for kind, path in _THREE.items() if isinstance(backbone, kind)), None)
        starts = sorted({*starts, *([] if more is None else [paths.index(more)])})
        if not known or len(starts) < 4:
            raise RequestError(
                f"model '{name}': has no four blocks: fine-tune all of it with blocks = 1-4; those "
                f"that have blocks are {FAMILIES}"
            )
    ends = [0, *starts[-3:], len(units)]
    first, second, third, fourth = (tuple(paths[a:b]) for a, b in itertools.pairwise(ends))
    return first, second, third, fourth


def frozen_modules(name: str, backbone: Backbone, chosen: str) -> tuple[Block, str | None]:
    """The modules before the blocks that are fine-tuned, and the first one that is.

    Args:
        name, backbone: as `backbone_stages` takes them.
        chosen: `1-4`, `2-4`, `3-4` or `4`; or `head`, the classifier alone.

    Returns:
        None, and no modules, where there are none before; the whole backbone, and None, for `head`.

    Raises:
        RequestError: as `backbone_stages`; all networks have `1-4` and `head`.
    """
    if chosen == "head":
        return ("",), None
    before = int(chosen[0]) - 1
    blocks = backbone_stages(name, backbone) if before else ()
    frozen = tuple(path for block in blocks[:before] for path in block)
    after = [path for block in blocks[before:] for path in block]
    return frozen, after[0] if frozen else None


def _units(backbone: Backbone) -> list[tuple[str, nn.Module]]:
    """The modules of which it is made, sequences of layers taken apart, by their paths."""
    network = getattr(backbone, "network", backbone)
    start = "" if network is backbone else "network."
    found: list[tuple[str, nn.Module]] = []
    for name, child in network.named_children():
        if name in ("layers", "features"):
            found += [(f"{start}{name}.{own}", unit) for own, unit in child.named_children()]
        else:
            found.append((f"{start}{name}", child))
    return found


def _has(unit: nn.Module, kind: type[nn.Module]) -> bool:
    return any(isinstance(module, kind) for module in unit.modules())


def _halves(unit: nn.Module) -> bool:
    """Whether maps are smaller after it."""
    for module in unit.modules():
        if isinstance(module, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d):
            stride = module.stride
            if max(stride if isinstance(stride, tuple | list) else (stride,)) > 1:
                return True
    return False
