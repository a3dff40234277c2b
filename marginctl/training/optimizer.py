"""The optimizer of a training run, which holds every trainable tensor exactly once."""

from collections import Counter
from typing import Any

import torch
from torch import nn

from marginctl.recipe.image_recipe import Optim
from marginctl.recipe.transfer import TransferOptim

OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}  # names in torch.optim


def build_optimizer(
    optim: Optim, module: nn.Module, backbone: nn.Module | None = None, *, fused: bool = False
) -> torch.optim.Optimizer:
    """Return the optimizer of a recipe, with a learning rate of 1 until the trainer sets one.

    In transfer learning the backbone's parameters are a group of their own, whose `lr_factor`
    multiplies the recipe's learning rate.

    Args:
        module: backbone and objective; class weights, trained centers and a learned scale belong
            to the objective. Frozen parameters take no gradient and are left out.
        fused: one kernel for all parameters, which with fp16 also reads whether a gradient
            overflowed; otherwise the host waits for that in every step.
    """
    groups = _parameter_groups(optim, module, backbone)
    options: dict[str, Any] = {"lr": 1.0, "weight_decay": optim.weight_decay}
    if optim.optimizer == "sgd":
        options |= {"momentum": optim.momentum, "nesterov": optim.nesterov}
    if fused:
        options["fused"] = True
    create = getattr(torch.optim, OPTIMIZERS[optim.optimizer])
    optimizer: torch.optim.Optimizer = create(groups, **options)
    _check_groups(optimizer, module)
    if fused and options.get("momentum"):
        # torch leaves it uninitialised where the first step is skipped, as with fp16
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def _parameter_groups(optim: Optim, module: nn.Module, backbone: nn.Module | None) -> list[Any]:
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not isinstance(optim, TransferOptim) or backbone is None:
        return parameters
    backbone_ids = {id(p) for p in backbone.parameters()}
    groups = (
        ([p for p in parameters if id(p) in backbone_ids], optim.backbone_lr_factor),
        ([p for p in parameters if id(p) not in backbone_ids], 1.0),
    )
    return [{"params": params, "lr_factor": factor} for params, factor in groups if params]


def _check_groups(optimizer: torch.optim.Optimizer, module: nn.Module) -> None:
    counts = Counter(id(p) for group in optimizer.param_groups for p in group["params"])
    for name, parameter in module.named_parameters():
        count = counts[id(parameter)]
        if parameter.requires_grad and count != 1:
            raise AssertionError(f"'{name}' is in {count} parameter groups: expected 1")
