"""Schedules: values over the training, how they are written, and what moves them."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch.optim import SGD, lr_scheduler

from marginctl.errors import RequestError
from marginctl.objectives import create
from marginctl.objectives.parsing import parse
from marginctl.objectives.schedules import Schedule, parse_learning_rate, rate_in_epoch


def values(written, steps=10):
    """Of the scale in `cosine:scale=...`, at every step."""
    schedule = parse(f"cosine:scale={written}").options["scale"]
    return [schedule.value(step, steps) for step in range(steps + 1)]


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ("linear(start=1,end=3)", [1 + 0.2 * i for i in range(11)]),
        ("linear(start=3,end=1,over=0.5)", [3 - 0.4 * min(i, 5) for i in range(11)]),
        ("cosine(start=1,end=3)", [2 - math.cos(math.pi * i / 10) for i in range(11)]),
        ("exponential(start=1,end=1024)", [2.0**i for i in range(11)]),
        ("step(start=8,factor=0.5,every=0.3)", [8, 8, 8, 4, 4, 4, 2, 2, 2, 1, 1]),
        ("l-softmax", [1000 * (1 + 1e-5 * i) ** -45 for i in range(1, 12)]),
        ("l-softmax(minimum=999.9)", [999.9] * 11),
        ("sphereface", [1000 / (1 + 0.12 * i) for i in range(1, 12)]),
        ("sphereface(base=6)", [6 / 1.12] + [5.0] * 10),
        ("l-gm(every=3)", [0.1] * 3 + [0.2] * 3 + [0.3] * 5),
        ("warm-up(end=1)", [0.01, 0.505] + [1.0] * 9),
    ],
)
def test_values(written, want):
    assert values(written) == pytest.approx(want)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("m-soft:margin=constant(value=0.3)", "m-soft:margin=0.3"),
        ("m-soft:margin=linear(end=1, start=0, over=1)", "m-soft:margin=linear(end=1,start=0)"),
        ("l-gm:margin=l-gm(every=5000)", "l-gm:margin=l-gm"),
        (
            "similarity=cosine;scale=fixed(value=linear(start=1,end=30))",
            "similarity=cosine;scale=fixed(value=linear(end=30,start=1))",
        ),
        (
            "similarity=angle;regularizers=center(strength=warm-up(end=1))+label-smoothing",
            "similarity=angle;regularizers=center(strength=warm-up(end=1))+label-smoothing",
        ),
    ],
)
def test_canonical_form(written, canonical):
    assert str(parse(written)) == canonical
    assert str(parse(canonical)) == canonical


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("lineer(start=1,end=2)", "unknown schedule 'lineer'"),
        ("linear(start=1)", "schedule linear: option 'end' is missing"),
        ("linear(start=1,end=2,ov=1)", "schedule linear: unknown option 'ov'"),
        ("linear(start=1,end=2,over=0)", "over = '0': expected a finite number above 0"),
        ("linear(start=-1,end=2)", "it has the value -1: expected a finite number at least 0"),
        ("exponential(start=0,end=1)", "start = '0': expected a finite number above 0"),
        ("step(start=1,factor=20,every=1e-9)", "it has the value inf"),
        ("l-gm(every=2.5)", "every = '2.5': expected an integer at least 1"),
        ("linear(start)", "'start' is not option=value"),
        ("linear", "option 'start' is missing"),
        ("soon", "expected a finite number at least 0, or a schedule"),
        ("l-gm(start=0.5)", "start is above end"),
        ("l-softmax(base=1e308)", "base = '1e308': expected a finite number at least 0"),
        ("linear(start=0,end=1", "unbalanced parentheses"),
    ],
)
def test_mistakes(written, message):
    with pytest.raises(RequestError) as caught:
        parse(f"cosine:scale={written}")
    assert message in str(caught.value)
    assert len(caught.value.lines) == 1


SCHEDULED = [
    "m-soft:margin=linear(start=0,end=2)",
    "cosface:margin=cosine(start=0,end=0.5),scale=10",
    "arcface:margin=linear(start=0,end=1)",
    "arcface:margin=linear(start=3,end=1),beyond=formula",
    "arcface:margin=linear(start=0,end=1),beyond=easy",
    "cosine:scale=exponential(start=1,end=40)",
    "arcgrad:scale=exponential(start=1,end=40)",
    "gradient-decay:beta=warm-up(end=3,over=0.5)",
    "l-gm:margin=l-gm(every=2),strength=linear(start=0,end=1)",
    "sphereface:annealing=sphereface",
    "l-softmax:annealing=l-softmax(gamma=0.1)",
    "center:strength=linear(start=0,end=1)",
    "label-smoothing:strength=linear(start=0,end=0.5)",
    "lm-softmax:strength=linear(start=0,end=1)",
    "super-symmetry:strength=linear(start=0,end=1)",
    "hinge:margin=linear(start=0,end=2)",
    "dense-hinge:margin=linear(start=0,end=2)",
]


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_scheduled_objective_is_the_constant_one_at_every_step(name):
    """Values, gradients and logits; and nothing but `set_progress` moves it."""
    torch.manual_seed(0)
    x, y = torch.randn(9, 6, dtype=torch.float64), torch.randint(4, (9,))
    module = create(name, 4, 6).double().eval()
    for step in (0, 3, 10):
        module.set_progress(step, 10)
        now = {
            key: value.value(step, 10) if isinstance(value, Schedule) else value
            for key, value in parse(name).options.items()
        }
        plain = create(parse(name).preset, 4, 6, **now).double().eval()
        plain.load_state_dict(module.state_dict(), strict=False)
        found = []
        for objective in (module, plain):
            loss = objective(x, y, reduction="none")
            (slope,) = torch.autograd.grad(loss.sum(), objective.weight)
            found.append((loss, slope, objective.logits(x)))
        for mine, want in zip(*found, strict=True):
            torch.testing.assert_close(mine, want)


def test_steps_outside_the_training():
    module = create("cosine", 6, 8, scale="linear(start=1,end=30)")
    module.set_progress(15, 10)
    assert module.scale_value.item() == 30
    for step, total in ((-5, 10), (5, -10)):
        with pytest.raises(ValueError, match="expected steps of at least 0"):
            module.set_progress(step, total)


def test_one_name_is_one_value():
    assert str(parse("cosine:scale=-0")) == str(parse("cosine:scale=0"))
    long = parse("m-soft:margin=0.1234567890123456")
    assert parse(str(long)).options == long.options


def test_a_training_batch_moves_no_schedule():
    module = create("center:strength=linear(start=0,end=1)", 4, 6)
    module.set_progress(5, 10)
    module(torch.randn(9, 6), torch.randint(4, (9,)))
    assert module.center_strength.item() == 0.5
    assert module.centers.any()


def test_a_schedule_is_part_of_the_state():
    module, other = (create("m-soft:margin=linear(start=0,end=2)", 3, 4) for _ in range(2))
    module.set_progress(5, 10)
    other.load_state_dict(module.state_dict())
    assert other.margin_margin.item() == 1


def drops(optimizer, epochs, at):
    milestones = [math.ceil(fraction * epochs - 1e-9) for fraction in at]
    return lr_scheduler.MultiStepLR(optimizer, milestones, 0.1)


@pytest.mark.parametrize("epochs", [4, 7, 10, 50])
@pytest.mark.parametrize(
    ("text", "scheduler"),
    [
        ("step(start=0.1,factor=0.1,every=0.25)", partial(drops, at=(0.25, 0.5, 0.75))),
        (
            "multi-step(start=0.1,factor=0.1,first=0.3,second=0.6,third=0.8)",
            partial(drops, at=(0.3, 0.6, 0.8)),
        ),
        ("cosine(start=0.1,end=0)", lr_scheduler.CosineAnnealingLR),
        ("polynomial(start=0.1,end=0)", partial(lr_scheduler.PolynomialLR, power=2.0)),
    ],
)
def test_rates_by_epoch_are_those_of_torch(text, scheduler, epochs):
    optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    torchs, rate = scheduler(optimizer, epochs), parse_learning_rate(text)
    for epoch in range(epochs):
        expected = optimizer.param_groups[0]["lr"]
        assert rate_in_epoch(rate, epoch, epochs) == pytest.approx(expected, rel=1e-9)
        assert expected > 0
        optimizer.step()
        torchs.step()


def test_four_drops_of_four_epochs_and_log_spaced_rates():
    rate = parse_learning_rate("step(start=0.1,factor=0.1,every=0.25)")
    assert [rate_in_epoch(rate, e, 4) for e in range(4)] == pytest.approx([0.1, 0.01, 1e-3, 1e-4])
    rate = parse_learning_rate("exponential(start=0.1,end=1e-4)")
    rates = [rate_in_epoch(rate, e, 50) for e in range(50)]
    assert rates == pytest.approx(np.logspace(-1, -4, 50).tolist())
