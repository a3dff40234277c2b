"""The throughput benchmark: what is timed and trained within the minutes, and published peaks."""

import copy

import pytest
import torch

from marginctl.bench import throughput
from marginctl.bench.throughput import TrainingTime, flops_per_image, peak_flops
from tests.training.factories import CPU, images, recipe, trainer

MODEL = "mlp:width=16"


@pytest.fixture
def bench(marginctl, tmp_path, monkeypatch):
    """The benchmark on digits; every epoch and evaluation takes as long as the test says."""
    path = tmp_path / "two.yaml"
    path.write_text(f"task: train\ntable: '2'\npaper: large-margin\nmodel: {MODEL}\n")

    def run(*settings, epoch=1.0, evaluation=0.0, full=True, models=MODEL):
        timed = []

        def time_training(recipe, images, device_config, max_epochs, seconds):
            timed.append((str(recipe.model), seconds))
            return TrainingTime([epoch] if full else [], epoch, evaluation, 1e6)

        monkeypatch.setattr(throughput, "time_training", time_training)
        values = (f"recipe={path}", f"models=[{models}]", "subset_size=200", "epochs=2", "seeds=2")
        options = [word for value in (*values, *settings) for word in ("--set", value)]
        out = ("--out", tmp_path / "runs", "--device", "cpu")
        ran = marginctl("bench", "throughput", *options, *out, "--json")
        assert ran.status == 0, ran.err
        return ran.json["benchmarks"][0], timed

    return run


def note(result):
    return result["notes"][-1]


def test_the_estimate_uses_the_models_of_the_table(bench):
    settings = {"models": "'mlp:width=8'", "epoch": 20.0, "evaluation": 10.0}
    result, timed = bench("minutes=1.0", **settings)
    assert timed == [("mlp:width=8", 7.5), (MODEL, 7.5)]  # a quarter of a minute
    # a network needs 1.1 * 2 * (20 + 10) = 66 s, three quarters of 1.47 minutes
    assert "0 of 4 networks trained; --set minutes=2 is enough for the next one" in note(result)


def test_a_part_of_an_epoch_is_named(bench):
    result, _ = bench("minutes=0.0", full=False)
    measured = {m["measured"]: m["value"]["median"] for m in result["measurements"]}
    assert measured[f"epoch (scaled from 10 steps), {MODEL}"] == 1.0
    assert measured[f"training, {MODEL}"] == 200


def test_networks_are_trained_while_there_is_time(bench, monkeypatch):
    """Each network was estimated at 2.2 s of 10 minutes; the second one takes an hour."""
    run_trials = throughput.run_trials

    class Clock:
        now, takes = 0.0, iter([2.0, 3600.0])

        @classmethod
        def monotonic(cls):
            return cls.now

    def run(*arguments, **options):
        outcome = run_trials(*arguments, **options)
        Clock.now += next(Clock.takes)
        return outcome

    monkeypatch.setattr(throughput, "time", Clock)
    monkeypatch.setattr(throughput, "run_trials", run)
    assert "2 of 4 networks trained; run the same command again" in note(bench()[0])
    # finished networks are not trained again, and need no time
    Clock.now, Clock.takes = 0.0, iter([0.0, 0.0])
    assert "2 of 4 networks trained; --set minutes=49 is" in note(bench(epoch=1000.0)[0])
    Clock.now, Clock.takes = 0.0, iter([0.0] * 4)
    assert "4 of 4 networks trained; see marginctl report" in note(bench()[0])


def test_whole_epochs_are_timed_where_they_fit():
    data = {"name": "digits"}
    short = recipe(model="mlp:width=8", data=data)
    timing = throughput.time_training(short, images(n=200), CPU, 2, 60.0)
    assert len(timing.epochs) == 2
    assert timing.epoch == pytest.approx(sum(timing.epochs) / 2)
    none = throughput.time_training(short, images(n=200), CPU, 2, 0.0)
    assert (none.epochs, none.epoch) == ([], none.estimate)
    # two products of 2 operations forward, each with two backward, except for the input's gradient
    assert timing.flops == 3 * 2 * (64 * 8 + 8 * 8) - 2 * 64 * 8


def test_counting_operations_changes_nothing():
    """Running statistics of batch normalisation and the random stream stay as they are."""
    made = trainer(model="resnet18", data={"name": "digits"})
    before = copy.deepcopy(made.model.state_dict())
    state = torch.get_rng_state()
    assert flops_per_image(made) > 0
    assert any("running_mean" in name for name in before)
    assert all(torch.equal(value, before[name]) for name, value in made.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in made.model.parameters())


@pytest.mark.parametrize(
    ("gpu", "peak"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 SXM5 80GB", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA A100-PCIE-40GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA L40S", 362),
        ("NVIDIA L4", 121),
        ("NVIDIA A10", 125),
        ("NVIDIA GeForce RTX 4090", 165),
        ("NVIDIA GeForce RTX 3090", 71),
    ],
)
def test_published_peaks(gpu, peak):
    assert peak_flops(gpu) == (1e12 * peak, "")


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        ("NVIDIA RTX A1000", "no published peak"),
        ("NVIDIA A100X", "no published peak"),
        ("GRID A100-10C", "no published peak"),
        ("NVIDIA L40", "no published peak"),
        ("NVIDIA A10G", "no published peak"),
        ("NVIDIA GH200 480GB", "no published peak"),
        ("NVIDIA GeForce RTX 3090 Ti", "no published peak"),
        ("NVIDIA GeForce RTX 4090 D", "no published peak"),
        ("NVIDIA GeForce RTX 4080 SUPER", "no published peak"),
        ("Tesla V100-SXM2-16GB", "no published peak"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "laptop GPU depends on its power limit"),
        ("NVIDIA GeForce RTX 2080 with Max-Q Design", "laptop GPU"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "is a slice of a GPU"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "is a slice of a GPU"),
    ],
)
def test_other_gpus_have_no_peak(gpu, reason):
    peak, message = peak_flops(gpu)
    assert peak is None
    assert message.startswith(f"{gpu}: ")
    assert reason in message


def test_peaks_are_those_of_bf16():
    assert peak_flops("NVIDIA H200", "fp32") == (None, "fp32: the listed peaks are those of bf16")
