"""Training by CUDA graphs, on a stand-in for them, equals training without."""

import pytest
import torch
from torch import nn

from marginctl.errors import RequestError
from marginctl.experiments.checks import check_device
from marginctl.objectives.presets import PRESETS
from marginctl.training.graphed_step import WARM_UP
from marginctl.training.resource_errors import ResourceError, one_line_errors
from marginctl.utils.precision import DeviceConfig
from tests import cuda_graphs
from tests.training.factories import CPU, images, recipe, run, trainer

BF16 = DeviceConfig(torch.device("cpu"), "bf16", channels_last=True)
SCHEDULED = ("arcface:margin=linear(start=0,end=0.5)", "gradient-decay:beta=warm-up(end=1)")
SCHEDULED += ("center:strength=linear(start=0.01,end=1)",)
EPOCHS, FULL, SIZE = 3, 4, 8  # batches of SIZE an epoch, before a smaller one


def train(objective, graphs, **changes):
    """Train to the end; return the records and the weights."""
    data = images(n=FULL * SIZE + 3, classes=4, pixels=16)
    made = trainer(objective, of=data, train={"cuda_graphs": graphs, "epochs": EPOCHS}, **changes)
    records = run(made)
    assert made.batch_sizes == [SIZE] * FULL + [3]
    return records, made.weights_digest(), made


@pytest.mark.parametrize("objective", [*PRESETS, *SCHEDULED])
def test_replayed_steps_equal_eager_ones(monkeypatch, objective):
    cuda_graphs.install(monkeypatch)
    eager = train(objective, False, model="mlp:width=4")
    graphed = train(objective, True, model="mlp:width=4")
    assert cuda_graphs.RecordedGraph.replays == EPOCHS * FULL - WARM_UP
    assert graphed[:2] == eager[:2]


@pytest.mark.parametrize(("device_config", "optimizer"), [(CPU, "sgd"), (BF16, "adamw")])
def test_batch_norm_and_dropout_equal_eager_ones(monkeypatch, device_config, optimizer):
    cuda_graphs.install(monkeypatch)
    changes = {"model": "wrn-16-8:dropout=0.5", "device_config": device_config}
    changes |= {"optim": {"optimizer": optimizer, "lr": "cosine(start=0.01,end=0)"}}
    monkeypatch.setattr("tests.training.test_graphed_step.EPOCHS", 2)
    eager, graphed = (train("adacos", graphs, **changes) for graphs in (False, True))
    assert cuda_graphs.RecordedGraph.replays == 2 * FULL - WARM_UP
    assert graphed[:2] == eager[:2]


def test_a_graphed_training_resumes(monkeypatch):
    cuda_graphs.install(monkeypatch)
    records, digest, whole = train("adacos", True, model="mlp:width=4")
    data = images(n=FULL * SIZE + 3, classes=4, pixels=16)
    for at in (1, FULL + 1, 2 * FULL):
        first, again = (
            trainer("adacos", of=data, model="mlp:width=4", train=whole.recipe.train.model_dump())
            for _ in range(2)
        )
        run(first, until=at)
        again.load_state_dict(first.state_dict())
        assert run(again) == records[at // (FULL + 1) :]
        assert again.weights_digest() == digest


def test_a_step_that_cannot_be_captured_is_one_line(monkeypatch):
    cuda_graphs.install(monkeypatch)
    made = trainer("soft", train={"cuda_graphs": True, "batch_size": SIZE})

    def forward(self, x):
        return x if x.sum().item() else -x

    monkeypatch.setattr(nn.ReLU, "forward", forward)
    with (
        pytest.raises(ResourceError, match=r"^trial: train\.cuda_graphs = true: .* is capturing: "),
        one_line_errors("trial", made.recipe.train, "cuda:0"),
    ):
        run(made)


@pytest.mark.parametrize(
    "train", [{"grad_accum_steps": 2}, {"compile": True}, {"precision": "fp16"}]
)
def test_what_a_graph_cannot_hold_is_refused(train):
    with pytest.raises(ValueError, match=r"train\.cuda_graphs = true with .*leave one of them"):
        recipe(train={"cuda_graphs": True, **train})


@pytest.mark.parametrize("key", ["gpu_fast_path", "cuda_graphs"])
def test_other_devices_are_refused(marginctl, tmp_path, key):
    option = f"--{key.replace('_', '-')}"
    ran = marginctl("train", "--data", "digits", "--device", "cpu", option, "--out", tmp_path)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == f"error: train.{key} = true on cpu: it is for CUDA only: leave it out\n"
    check_device(recipe(train={key: True}), "cuda:0")


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setattr("marginctl.experiments.checks.world_size", lambda: 2)
    with pytest.raises(RequestError, match=r"train\.cuda_graphs = true with 2 processes"):
        check_device(recipe(train={"cuda_graphs": True}), "cuda:0")
