"""The optimiser of a training: it holds every trainable tensor, once."""

from collections import Counter

import torch
from torch import nn

from marginctl.recipe.train import Optim


def optimizer_of(optim: Optim, network: nn.Module) -> torch.optim.Optimizer:
    """The optimiser of a recipe, at a learning rate of 1 until the loop sets one.

    Args:
        optim: what the recipe says of it.
        network: backbone and objective; a class weight, a center that is trained and a learned
            scale are the objective's.

    Raises:
        AssertionError: a trainable tensor is not in exactly one parameter group.
    """
    parameters = list(network.parameters())
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


def _check_groups(optimizer: torch.optim.Optimizer, network: nn.Module) -> None:
    held = Counter(id(p) for group in optimizer.param_groups for p in group["params"])
    for name, parameter in network.named_parameters():
        if parameter.requires_grad and held[id(parameter)] != 1:
            raise AssertionError(
                f"'{name}' is in {held[id(parameter)]} parameter groups: expected 1"
            )
