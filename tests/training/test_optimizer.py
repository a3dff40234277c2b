"""The optimiser holds every trainable tensor of backbone and objective, once."""

import pytest
import torch
from torch import nn

from marginctl.objectives.parsing import available
from marginctl.recipe.image_recipe import Optim
from marginctl.recipe.transfer import TransferOptim
from marginctl.training.optimizer import build_optimizer
from tests.training.factories import trainer


def held(optimizer):
    return [id(p) for group in optimizer.param_groups for p in group["params"]]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("objective", [*available(), "soft:bias=true"])
def test_each_trainable_tensor_is_in_one_group(objective, compiled):
    """Ledger 4: class weights, biases and learned scales too, whatever the objective."""
    made = trainer(objective, train={"compile": compiled}, model="mlp:width=4")
    wanted = [p for m in (made.model, made.objective) for p in m.parameters() if p.requires_grad]
    assert sorted(held(made.optimizer)) == sorted(map(id, wanted))
    assert id(made.objective.weight) in held(made.optimizer)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("kept", [0, 2])
def test_a_missing_or_duplicate_tensor_is_an_error(monkeypatch, optimizer, kept):
    """Ledger 4: what an optimiser of torch makes of the tensors is counted, not believed."""
    kind = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}[optimizer]
    real = getattr(torch.optim, kind)

    def other(parameters, *rest, **named):
        made = real(parameters, *rest, **named)
        group = made.param_groups[0]["params"]
        group[:] = group[:-1] + kept * group[-1:]
        return made

    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3, bias=False))
    monkeypatch.setattr(torch.optim, kind, other)
    with pytest.raises(AssertionError, match=rf"'1.weight' is in {kept} parameter groups"):
        build_optimizer(Optim(optimizer=optimizer), network)


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_fused_one_skips_overflowed_steps(nesterov):
    """As with fp16: the first step too, after which torch's momentum would not be initialised."""
    weights = []
    for fused in (False, True):
        torch.manual_seed(0)
        network = nn.Linear(3, 2)
        made = build_optimizer(Optim(nesterov=nesterov), network, fused=fused)
        made.param_groups[0]["lr"] = 0.1
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for step in range(8):
            made.zero_grad()
            # uninitialised memory is likely to be this
            torch.full_like(network.weight, torch.nan), torch.full_like(network.bias, torch.nan)
            x = torch.randn(5, 3) * (torch.inf if step in (0, 1, 4) else 1)
            scaler.scale(network(x).square().sum()).backward()
            scaler.step(made)
            scaler.update()
        weights.append(network.weight.detach())
    assert torch.allclose(*weights, rtol=1e-5)


def test_the_backbone_has_its_own_learning_rate_in_transfer():
    """Table 8 of the temperature paper: 0.1 for the class weights, 0.001 for the backbone."""
    network = nn.ModuleDict({"model": nn.Linear(2, 2), "objective": nn.Linear(2, 3)})
    made = build_optimizer(TransferOptim(), network, network["model"])
    backbone, classes = made.param_groups
    assert [id(p) for p in backbone["params"]] == [id(p) for p in network["model"].parameters()]
    assert (backbone["lr_factor"], classes["lr_factor"]) == (0.01, 1.0)
    assert sorted(held(made)) == sorted(map(id, network.parameters()))
    network["model"].requires_grad_(False)
    (classes,) = build_optimizer(TransferOptim(), network, network["model"]).param_groups
    assert classes["lr_factor"] == 1.0
