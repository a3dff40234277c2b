"""Four stages of a backbone, for fine-tuning a part of it (Temperature, Tables 10 and 15).

The paper names the four stages of ResNet-50 as blocks 1 to 4. For other networks they are our
choice: layers that work at one resolution form a stage, and the layer that reduces the resolution
begins the next one. With more than four resolutions, the finest ones form one stage, so that a
ResNet's stem is in stage 1. Layers after the last convolution (pooling, hidden layers, an embedding
layer) are in stage 4. The registry says by `Stages` how a backbone is divided. The floating-point
operations are counted by torch, of all modules and of the frozen ones.
"""

import functools
import itertools

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from marginctl.errors import RequestError
from marginctl.models.backbone import Backbone, EmbeddedBackbone
from marginctl.models.factory import create_backbone
from marginctl.models.registry import STAGED_FAMILIES, ModelSpec

Stage = tuple[str, ...]  # paths of modules in a backbone


def backbone_stages(model: ModelSpec, backbone: Backbone) -> tuple[Stage, ...]:
    """Return the modules of the four stages in their order of execution; a stage may be empty.

    Every parameter and buffer of the backbone is in one of these modules.
    """
    if isinstance(backbone, EmbeddedBackbone):
        inner = backbone_stages(model, backbone.backbone)
        *others, last_stage = (tuple(f"backbone.{path}" for path in stage) for stage in inner)
        return *others, (*last_stage, "embedding")
    modules = _top_modules(backbone)
    paths = [path for path, _ in modules]
    stages = model.entry.stages
    if stages is not None and stages.begin_at == "linear-layer":  # counted from the end
        starts = [i for i, (_, module) in enumerate(modules) if isinstance(module, nn.Linear)]
        starts = [0] * (4 - len(starts)) + starts
    else:
        convolutions = [i for i, (_, module) in enumerate(modules) if _has_convolution(module)]
        last = max(convolutions, default=0)
        reducing = {i for i in range(1, last + 1) if _reduces_resolution(modules[i][1])}
        extra = {paths.index(stages.extra)} if stages is not None and stages.extra else set()
        starts = sorted({0} | reducing | extra)
        if stages is None or len(starts) < 4:
            raise RequestError(
                f"model '{model.name}': is not divided into stages: fine-tune the whole network "
                f"with blocks = 1-4; models with stages are {STAGED_FAMILIES}"
            )
    bounds = [0, *starts[-3:], len(modules)]
    return tuple(tuple(paths[a:b]) for a, b in itertools.pairwise(bounds))


def frozen_modules(model: ModelSpec, backbone: Backbone, blocks: str) -> tuple[Stage, str | None]:
    """Return the frozen modules of a backbone, and the first trainable one.

    Args:
        blocks: the trainable stages: `1-4`, `2-4`, `3-4` or `4`; or `head`, the classifier alone.

    Returns:
        No modules and None where all are trainable; the whole backbone and None for `head`.
    """
    if blocks == "head":
        return ("",), None
    count = int(blocks[0]) - 1
    if not count:
        return (), None
    stages = backbone_stages(model, backbone)
    frozen = tuple(path for stage in stages[:count] for path in stage)
    trainable = [path for stage in stages[count:] for path in stage]
    return frozen, trainable[0] if frozen else None


@functools.cache
def forward_operations(
    model: ModelSpec, channels: int, side: int, blocks: str = "1-4"
) -> tuple[int, int]:
    """Return the operations for an image of all modules, and of the frozen ones among them.

    They are 0 for a plug-in's backbone that does not run on torch's meta device.

    Args:
        blocks: the trainable ones, as in `frozen_modules`.
    """
    try:
        with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
            backbone = create_backbone(model, channels, side).eval()
            backbone(torch.empty(1, channels, side, side))
    except Exception:  # a plug-in's code can raise anything
        return 0, 0
    counts, root = counter.get_flop_counts(), type(backbone).__name__
    paths = [f"{root}.{path}".rstrip(".") for path in frozen_modules(model, backbone, blocks)[0]]
    return counter.get_total_flops(), sum(sum(counts.get(path, {}).values()) for path in paths)


def _top_modules(backbone: Backbone) -> list[tuple[str, nn.Module]]:
    """Return the child modules with their paths; a sequence of layers gives its layers."""
    network = getattr(backbone, "network", backbone)
    prefix = "" if network is backbone else "network."
    modules: list[tuple[str, nn.Module]] = []
    for name, child in network.named_children():
        if name in ("layers", "features"):
            modules += [(f"{prefix}{name}.{inner}", m) for inner, m in child.named_children()]
        else:
            modules.append((f"{prefix}{name}", child))
    return modules


def _has_convolution(module: nn.Module) -> bool:
    return any(isinstance(inner, nn.Conv2d) for inner in module.modules())


def _reduces_resolution(module: nn.Module) -> bool:
    layers = (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d)
    strides = (inner.stride for inner in module.modules() if isinstance(inner, layers))
    return any(max(s if isinstance(s, tuple | list) else (s,)) > 1 for s in strides)
