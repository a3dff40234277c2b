"""The optimiser of a training: it holds every trainable tensor, once."""

from collections import Counter
from typing import Any

import torch
from torch import nn

from marginctl.recipe.image_recipe import Optim
from marginctl.recipe.transfer import TransferOptim


def build_optimizer(
    optim: Optim, network: nn.Module, backbone: nn.Module | None = None
) -> torch.optim.Optimizer:
    """The optimiser of a recipe, at a learning rate of 1 until the loop sets one.

    In fine-tuning on other images the backbone's parameters are a group of their own, which says
    under `times` how many rates of the recipe its rate is.

    Args:
        optim: what the recipe says of it.
        network: backbone and objective; a class weight, a center that is trained and a learned
            scale are the objective's. What is frozen takes no gradient, and is not held.
        backbone: in it; for fine-tuning alone.

    Raises:
        AssertionError: a trainable tensor is not in exactly one parameter group.
    """
    parameters = _groups(optim, network, backbone)
    made: torch.optim.Optimizer
    if optim.optimizer == "sgd":
        made = torch.optim.SGD(
            parameters,
            1.0,
            momentum=optim.momentum,
            nesterov=optim.nesterov,
            weight_decay=optim.weight_decay,
        )
    else:
        kind = torch.optim.Adam if optim.optimizer == "adam" else torch.optim.AdamW
        made = kind(parameters, 1.0, weight_decay=optim.weight_decay)
    _check_groups(made, network)
    return made


def _groups(optim: Optim, network: nn.Module, backbone: nn.Module | None) -> list[Any]:
    held = [p for p in network.parameters() if p.requires_grad]
    if not isinstance(optim, TransferOptim) or backbone is None:
        return held
    own = {id(p) for p in backbone.parameters()}
    parts = (
        ([p for p in held if id(p) in own], optim.backbone_lr_factor),
        ([p for p in held if id(p) not in own], 1.0),
    )
    return [{"params": some, "times": times} for some, times in parts if some]


def _check_groups(optimizer: torch.optim.Optimizer, network: nn.Module) -> None:
    held = Counter(id(p) for group in optimizer.param_groups for p in group["params"])
    for name, parameter in network.named_parameters():
        if parameter.requires_grad and held[id(parameter)] != 1:
            raise AssertionError(
                f"'{name}' is in {held[id(parameter)]} parameter groups: expected 1"
            )
