"""The floating-point operations of a backbone, by torch's own counter."""

import functools

import torch
from torch.utils.flop_counter import FlopCounterMode

from marginctl.models.factory import create_backbone
from marginctl.models.registry import ModelSpec
from marginctl.models.stages import frozen_modules


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
