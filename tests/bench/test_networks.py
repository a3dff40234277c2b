"""The benchmark of networks: what is begun in time, and what its counting leaves as it was."""

import copy

import pytest
import torch

from marginctl.bench import networks
from marginctl.bench.throughput import Pace
from marginctl.experiments import execution
from tests.training.made import trainer

MODEL = "mlp:width=16"


@pytest.fixture
def bench(marginctl, tmp_path, monkeypatch):
    """The command on digits; every epoch and evaluation takes as long as the test says."""
    recipe = tmp_path / "two.yaml"
    recipe.write_text(f"task: train\ntable: '2'\npaper: large-margin\nmodel: {MODEL}\n")
    monkeypatch.setattr(networks, "RECIPE", str(recipe))

    def run(*more, epoch=1.0, evaluation=0.0, whole=1):
        timed = []

        def pace(made, how, epochs, seconds):
            timed.append((made.recipe.model, seconds))
            return Pace([epoch], whole, 1, evaluation, 360)

        monkeypatch.setattr(networks, "pace", pace)
        small = ("--samples", "200", "--epochs", "2", "--seeds", "2", "--device", "cpu")
        ran = marginctl("bench", "networks", *small, "--out", tmp_path / "runs", *more)
        assert ran.status == 0
        return ran, timed

    return run


def test_the_tables_own_network_sets_the_pace_whichever_are_timed(bench):
    more = ("--model", "mlp:width=8", "--minutes", "1", "--json")
    ran, timed = bench(*more, epoch=20.0, evaluation=10.0)
    assert timed == [("mlp:width=8", 7.5), (MODEL, 7.5)]  # a quarter of a minute
    table = ran.json["table"]
    assert table["seconds_a_network"] == pytest.approx(1.1 * 2 * (20 + 10))
    assert (table["left_out"], table["cells"]) == (4, [])
    assert table["minutes_needed"] == pytest.approx(66 / 60 / 0.75, abs=0.1)
    ran, _ = bench("--model", "mlp:width=8", "--minutes", "1", epoch=20.0, evaluation=10.0)
    assert "no time for 4 networks: --minutes 2 is enough for one" in ran.out


def test_a_part_of_an_epoch_is_said(bench):
    ran, _ = bench("--model", MODEL, "--minutes", "0", "--json", whole=0)
    (row,) = ran.json["networks"]
    assert row["seconds_an_epoch"] == {"median": 1.0, "low": None, "high": None}
    assert (row["epochs"], row["steps"], row["steps_an_epoch"]) == (0, 1, 2)
    ran, _ = bench("--model", MODEL, "--minutes", "0", whole=0)
    assert "about 1 " in ran.out
    assert "1 of 2 steps" in ran.out


def test_time_is_looked_at_between_trainings(bench, monkeypatch):
    """Of 10 minutes each training was to take 2.2 s; the second one takes an hour."""

    class Clock:
        now, takes = 0.0, iter([2.0, 3600.0])

        @classmethod
        def monotonic(cls):
            return cls.now

    def run(*arguments, **options):
        found = execution.run(*arguments, **options)
        Clock.now += next(Clock.takes)
        return found

    monkeypatch.setattr(networks, "time", Clock)
    monkeypatch.setattr(networks, "run_trials", run)
    table = bench("--model", MODEL, "--json")[0].json["table"]
    assert table["left_out"] == 2
    assert sum(cell["n"] for cell in table["cells"]) == 2
    assert table["minutes_needed"] is None
    Clock.now, Clock.takes = 0.0, iter([0.0, 0.0])  # what is done is shown, and no time is left
    ran, _ = bench("--model", MODEL, epoch=1000.0)
    assert "no time for 2 networks: --minutes 49 is enough for one" in ran.out


def test_counting_operations_changes_nothing(monkeypatch):
    """Batch normalisation keeps its statistics, and dropout its stream."""
    made = trainer(model="resnet18", data={"name": "digits"})
    before = copy.deepcopy(made.model.state_dict())
    state = torch.get_rng_state()
    assert networks._operations(made) > 0
    assert any("running_mean" in name for name in before)
    assert all(torch.equal(value, before[name]) for name, value in made.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in made.model.parameters())
