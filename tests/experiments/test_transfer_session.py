"""The progress of a probe: the batches of features that it computes."""

from marginctl.experiments.request import Request
from marginctl.experiments.run_trial import CheckpointPolicy, SignalHandler, TrialContext
from marginctl.experiments.transfer_session import prepare_transfer
from marginctl.utils.distributed import World
from tests.training.factories import CPU


class Callback:
    def __init__(self):
        self.steps = []

    def message(self, text):
        pass

    note = message

    def step(self, trial, step, total, candidate=None):
        self.steps.append((step, total))


def run(session, trial):
    """Run a trial; return the steps that its callback got."""
    callback = Callback()
    context = TrialContext(CPU, CheckpointPolicy(), SignalHandler(), callback, World())
    run_dir = session.run_dir(trial)
    run_dir.path.mkdir(parents=True, exist_ok=True)
    run_dir.start(session.run_info(trial))
    session.run_trial(trial, run_dir, context)
    return callback.steps


def test_batches_of_features_are_steps(marginctl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ("--model", "mlp:width=8", "--epochs", "1", "--device", "cpu", "--quiet")
    assert marginctl("train", "--data", "digits", *small, "--out", "source").status == 0
    options = {
        "source_models": ("--from", ["source"]),
        "data.name": ("--data", "digits"),
        "seeds": ("--seed", [0, 1]),
    }
    session = prepare_transfer(Request(None, options, device="cpu"))
    first, second = session.trials
    batches = 15 + 4  # 1437 training and 360 test images, by 100
    assert (session.steps(first), session.steps(second)) == (1 + batches, 1)
    assert run(session, first) == [(step, 1 + batches) for step in range(1, 1 + batches)]
    assert session.steps(first) == 1  # the features are kept
    assert run(session, second) == []
