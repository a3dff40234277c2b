"""The loop: against a plain one, resumed at every step, and where it must stop."""

import gc
import weakref

import pytest
import torch

from marginctl.models.factory import create_backbone
from marginctl.models.registry import ModelSpec
from marginctl.objectives.module import Objective
from marginctl.objectives.parsing import parse
from marginctl.training import trainer as trainer_module
from marginctl.training.epoch_metrics import accuracy_record, objective_record
from marginctl.training.running_metrics import top1_top5_hits
from marginctl.training.trainer import EVALUATION_BATCH, DivergedError
from marginctl.utils.precision import DeviceConfig, device_config_for
from marginctl.utils.seed import generator
from tests.training.factories import images, run, trainer

BF16 = DeviceConfig(torch.device("cpu"), "bf16", channels_last=True)
# `train` refuses it on a CPU, where it trains badly; its scaler goes on there as on a GPU
FP16 = DeviceConfig(torch.device("cpu"), "fp16", channels_last=True)


def test_equals_a_plain_loop():
    """SGD with momentum and decay on a schedule, by hand, from the same initial weights."""
    data = images()
    changes = {
        "optim": {"lr": "exponential(start=0.1,end=0.001)", "lr_interval": "epoch"},
        "model": "mlp:width=6",
    }
    ours = trainer("lm-softmax:bias=true", of=data, **changes)
    run(ours)

    torch.manual_seed(int(generator(0, "weights").integers(2**63)))
    model = create_backbone(ModelSpec.parse("mlp:width=6"), 1, 8)
    torch.manual_seed(int(generator(0, "class weights").integers(2**63)))
    objective = Objective(parse("lm-softmax:bias=true").spec, 3, model.feature_dim)
    parameters = [*model.parameters(), *objective.parameters()]
    optimizer = torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=5e-4)
    x = torch.as_tensor(data.train.x).permute(0, 3, 1, 2).float() / 255
    x = (x - data.mean[0]) / data.std[0]
    y = torch.as_tensor(data.train_y)
    for epoch, lr in enumerate([0.1, 0.01, 0.001]):
        optimizer.param_groups[0]["lr"] = lr
        order = torch.as_tensor(generator(0, "order", epoch).permutation(len(y)))
        for rows in order.split(8):
            optimizer.zero_grad()
            objective(model(x[rows]), y[rows]).backward()
            optimizer.step()
    for a, b in zip(model.parameters(), ours.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    assert torch.allclose(objective.weight, ours.objective.weight, atol=1e-5)


def test_a_finished_network_is_freed_at_once():
    gc.collect()
    gc.disable()
    try:
        made = trainer("soft")
        run(made)
        network = weakref.ref(made.model)
        del made
        assert network() is None
    finally:
        gc.enable()


def test_an_accelerator_evaluates_in_batches_of_a_stated_memory(monkeypatch):
    made = trainer("soft", model="mnist-cnn:feature_dim=8", of=images(pixels=28))
    assert made.evaluation_batch == EVALUATION_BATCH
    layer = made._classifier.activation_bytes((1, 28, 28))
    assert layer == 32 * 28 * 28 * 4
    del made.evaluation_batch
    monkeypatch.setattr(trainer_module, "EVALUATION_BYTES", 7 * layer)
    # the type of a device that the network is not on: the first layer stays on the CPU
    monkeypatch.setattr(made, "device_config", DeviceConfig(torch.device("mps"), "fp32", False))
    assert made.evaluation_batch == 7


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_gradient_accumulation_equals_the_whole_batch(optimizer):
    changes = {"model": "mlp:width=6", "optim": {"optimizer": optimizer, "lr": 0.01}}
    whole, parts = (
        trainer(train={"grad_accum_steps": n, "batch_size": 10}, **changes) for n in (1, 3)
    )
    run(whole)
    run(parts)
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-4)


@pytest.mark.parametrize(
    ("objective", "changes"),
    [
        ("adacos", {}),
        ("center", {"optim": {"optimizer": "adam", "lr": 0.01}}),
        ("cosine-learned", {"optim": {"optimizer": "adamw", "lr": 0.01}}),
        ("gradient-decay:beta=warm-up(end=1)", {"data": {"augment": "random-crop-flip"}}),
        ("soft", {"optim": {"lr": "one-cycle(max_lr=0.1)"}, "train": {"grad_accum_steps": 2}}),
        ("l-gm", {"optim": {"optimizer": "adam", "lr": "cosine(start=0.01,end=0)"}}),
        ("center", {"device_config": FP16, "optim": {"optimizer": "adamw", "lr": 0.01}}),
        ("adacos", {"device_config": FP16, "train": {"grad_accum_steps": 2}}),
    ],
)
def test_resuming_is_bit_identical(objective, changes):
    whole = trainer(objective, **changes)
    records = run(whole)
    for at in (1, 6, 7, 10, whole.total_steps - 1):
        first = trainer(objective, **changes)
        run(first, until=at)
        again = trainer(objective, **changes)
        again.load_state_dict(first.state_dict())
        assert again.step == at
        assert run(again) == records[at // len(whole.batch_sizes) :][-len(records) :]
        assert again.weights_digest() == whole.weights_digest()
        assert again.state_dict()["scaler"] == whole.state_dict()["scaler"]


def test_dropout_resumes_identically():
    changes = {"model": "wrn-16-8:dropout=0.5", "train": {"epochs": 1, "batch_size": 10}}
    data = images(n=30, tests=5)
    whole = trainer("soft", of=data, **changes)
    run(whole)
    first = trainer("soft", of=data, **changes)
    run(first, until=2)
    again = trainer("soft", of=data, **changes)
    again.load_state_dict(first.state_dict())
    torch.rand(7)  # something else draws in between
    run(again)
    assert again.weights_digest() == whole.weights_digest()


def test_a_seed_reproduces_the_weights():
    one, same, other = trainer(seed=0), trainer(seed=0), trainer(seed=1)
    for made in (one, same, other):
        run(made)
    assert one.weights_digest() == same.weights_digest() != other.weights_digest()


def test_objectives_share_the_initial_weights():
    soft, arcgrad = trainer("soft"), trainer("arcgrad")
    for a, b in zip(soft.model.parameters(), arcgrad.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(soft.objective.weight, arcgrad.objective.weight)


def test_every_parameter_moves():
    made = trainer("cosine-learned")
    before = {n: p.clone() for m in (made.model, made.objective) for n, p in m.named_parameters()}
    run(made, until=2)
    after = {n: p for m in (made.model, made.objective) for n, p in m.named_parameters()}
    assert all(not torch.equal(before[n], after[n]) for n in before)


def test_bf16_trains_and_keeps_its_weights_in_float32():
    made = trainer("arcface", device_config=BF16)
    records = run(made)
    assert records[-1]["loss"] < records[0]["loss"]
    assert {p.dtype for p in made.model.parameters()} == {torch.float32}
    assert made.predict().logits.dtype == torch.float32


def test_a_loss_that_is_not_finite_stops_at_once():
    made = trainer("soft", optim={"lr": 1e6})
    with pytest.raises(DivergedError, match=r"the loss is not finite at step \d+ \(epoch \d\)"):
        run(made)
    assert made.step < made.total_steps


def test_predict_changes_nothing_and_covers_every_image():
    made = trainer("adacos")
    run(made, until=9)
    before = made.weights_digest()
    whole = made.predict()
    made.evaluation_batch = 4
    tested = made.predict()
    assert made.weights_digest() == before
    assert len(tested.labels) == 21
    assert torch.allclose(tested.logits, whole.logits, atol=1e-5)
    record = accuracy_record(tested)
    right = (tested.similarities.argmax(1) == tested.labels).float().mean().item()
    assert record["top1"] == pytest.approx(100 * right)
    nll = -tested.logits.double().log_softmax(1).gather(1, tested.labels[:, None]).mean().item()
    assert record["nll"] == pytest.approx(nll)
    assert record["n"] == 21


def test_the_state_of_the_objective_is_recorded():
    learned = trainer("cosine-learned")
    assert objective_record(learned.objective, learned.predict())["scale"] == pytest.approx(16)
    least = trainer("cosine-ls")
    found = objective_record(least.objective, least.predict())
    quantiles = list(found["optimal_scale"]["quantiles"].values())
    assert quantiles == sorted(quantiles)
    assert sum(found["target_angle"]["histogram"]) == 21
    assert 0 <= found["rho"] <= 0.6932  # ln(C - 1)
    angle = trainer("arcgrad")
    tested = angle.predict()
    own = -tested.similarities.gather(1, tested.labels[:, None]).mean().item()
    mean = objective_record(angle.objective, tested)["target_angle"]["mean"]
    assert mean == pytest.approx(own * 180 / torch.pi, abs=1e-3)
    means = trainer("l-gm")
    assert "target_angle" not in objective_record(means.objective, means.predict())


@pytest.mark.parametrize("name", ["soft:bias=true", "l-softmax", "cosine", "arcgrad", "sphereface"])
def test_the_target_angle_is_that_of_the_feature_and_its_class_weight(name):
    """Against the arccosine in float64; a zero feature has no angle."""
    network = trainer(name)
    if network.objective.bias is not None:
        network.objective.bias.data.fill_(7)
    tested = network.predict()
    x, w = tested.features.double(), network.objective.weight.detach().double()
    cosine = torch.cosine_similarity(x, w[tested.labels])
    expected = torch.rad2deg(cosine.clamp(-1, 1).acos())
    found = objective_record(network.objective, tested)["target_angle"]
    assert found["mean"] == pytest.approx(expected.mean().item(), abs=1e-2)
    bins = torch.histc(expected, 18, 0, 180).long().tolist()
    assert sum(abs(a - b) for a, b in zip(found["histogram"], bins, strict=True)) <= 2
    assert sum(found["histogram"]) == 21


def test_zero_features_have_no_target_angle():
    soft = trainer("soft")
    tested = soft.predict()
    tested.features[:5] = 0
    assert sum(objective_record(soft.objective, tested)["target_angle"]["histogram"]) == 16
    tested.features.zero_()
    assert "target_angle" not in objective_record(soft.objective, tested)


def test_hits_break_ties_as_argmax():
    scores = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]).repeat(4, 1)
    labels = torch.tensor([0, 1, 4, 5])
    one, five = top1_top5_hits(scores, labels)
    assert (int(one), int(five)) == (1, 3)


def test_auto_precision():
    assert device_config_for("cpu", "auto").precision in ("bf16", "fp32")
    assert device_config_for("cpu", "fp32").precision == "fp32"


@pytest.mark.parametrize(
    ("objective", "loss_is_nll"),
    [
        ("soft", True),
        ("cosine-ls", True),
        ("gradient-decay:beta=0.1", False),
        ("lm-softmax:bias=true", False),
        ("label-smoothing", False),
        ("cosface", False),
        ("adacos", True),
        ("cosine-learned", True),
        ("sphereface", False),
        ("l-gm", False),
        ("hinge", False),
        ("arcface:scale=10", False),
    ],
)
def test_the_training_nll_uses_logits_without_margin(objective, loss_is_nll):
    made = trainer(objective, train={"epochs": 1, "batch_size": 10, "grad_accum_steps": 2})
    seen = []

    def look(module, arguments, loss):
        logits = module.logits(arguments[0].detach()).detach().double()
        seen.append(torch.nn.functional.cross_entropy(logits, arguments[1], reduction="sum"))

    made.objective.register_forward_hook(look)
    (record,) = run(made)
    assert record["nll"] == pytest.approx(sum(seen).item() / 50, rel=1e-5)
    assert (record["nll"] == record["loss"]) == loss_is_nll


def test_a_least_squares_scale_with_a_margin_has_no_nll():
    made = trainer(
        "similarity=cosine;scale=least-squares;margin=additive-cosine", train={"epochs": 1}
    )
    (record,) = run(made)
    assert set(record) == {"loss", "top1"}


def test_a_checkpoint_has_the_image_size(tmp_path):
    """Other images are scaled to it, whatever a folder has by itself."""
    from marginctl.experiments.evaluate import _other_data
    from marginctl.recipe.image_data import ImageData

    made = trainer("soft")
    assert made.state_dict()["image_size"] == made.batches.train.x.shape[-1]
    assert (
        _other_data("folder:pictures", ImageData(name="cifar-100"), 32, tmp_path)[0].resolved_size
        == 32
    )
