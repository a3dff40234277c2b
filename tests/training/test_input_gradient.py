"""The gradient of the loss by image, against image by image in plain torch."""

import numpy as np
import pytest
import torch

from marginctl.training import input_gradient
from marginctl.training.diagnostics import as_test_images
from marginctl.training.trainer import DivergedError
from marginctl.utils.distributed import World
from tests.training.made import CPU, images, run, trainer


@pytest.mark.parametrize("beta", [1, 0.1])
def test_norms_are_those_of_each_image_alone(beta):
    data = images(n=30)
    made = trainer(f"gradient-decay:beta={beta}", of=data)
    run(made, until=5)  # batch normalisation has statistics, and is not in evaluation mode
    rows = np.array([2, 3, 11, 29, 17, 5, 8, 20, 26])  # in two batches of 8 and 1
    looked = trainer(of=as_test_images(data, rows)).batches
    looked.set_normalization(made.batches.mean, made.batches.std)
    found = input_gradient.record(made, looked, World())
    assert not made.model.training
    weight, norms = made.objective.weight.detach(), []
    for row in rows:
        x = torch.as_tensor(data.train_x[row]).permute(2, 0, 1)[None].float() / 255
        x = ((x - data.mean[0]) / data.std[0]).requires_grad_()
        z = (made.model(x) @ weight.T)[0]
        others = torch.cat([z[: data.train_y[row]], z[data.train_y[row] + 1 :]])
        loss = torch.log(beta + torch.exp(others - z[data.train_y[row]]).sum())
        (gradient,) = torch.autograd.grad(loss, x)
        norms.append(gradient.norm().item())
    assert found["n"] == 9
    assert found["mean"] == pytest.approx(np.mean(norms), rel=1e-3)
    assert found["quantile95"] == pytest.approx(np.quantile(norms, 0.95), rel=1e-3)
    assert found["max"] == pytest.approx(max(norms), rel=1e-3)


def test_a_network_that_is_not_finite_has_diverged():
    data = images(n=30)
    made = trainer("soft", of=data)
    with torch.no_grad():
        made.objective.weight.fill_(float("nan"))
    looked = trainer(of=as_test_images(data, np.arange(4)), device_config=CPU).batches
    with pytest.raises(DivergedError, match="the loss's gradient is not finite at step 0"):
        input_gradient.record(made, looked, World())
