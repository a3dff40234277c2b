"""How many workers and threads the trials of a session get."""

from dataclasses import replace

import pytest

from marginctl.experiments import trial_workers
from marginctl.experiments.request import Request
from marginctl.experiments.training_session import prepare_train
from marginctl.experiments.trial_workers import trial_threads, worker_count


def estimate(monkeypatch, seconds, not_timed=0):
    document = {"seconds": seconds, "not_timed": not_timed}
    monkeypatch.setattr(
        trial_workers, "estimate_training", lambda session, budget, with_operations: document
    )


@pytest.fixture
def session(tmp_path, monkeypatch):
    """Eight trials on a machine of four cores."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(trial_workers, "usable_cores", lambda: 4)
    monkeypatch.setattr(trial_workers.torch.cuda, "device_count", lambda: 3)
    estimate(monkeypatch, seconds=100.0)
    options = {"data.name": ("--data", "digits"), "seeds": ("--seeds", list(range(8)))}
    return prepare_train(Request(None, options, ["data.subset_size=50"], tmp_path, tmp_path, "cpu"))


def test_one_worker_a_core(session):
    trials = session.trials
    assert worker_count(session, trials, None) == 4
    assert worker_count(session, trials, 2) == 2
    assert worker_count(session, trials, 100) == 8
    assert worker_count(session, trials[:3], None) == 3
    assert worker_count(session, trials[:1], None) == worker_count(session, trials, 1) == 0


def test_threads_depend_on_all_trials_of_a_session_alone(session, monkeypatch):
    """Not on workers or finished trials: the last bits of a result depend on threads."""
    assert trial_threads(session) == 1
    few = replace(session, trials=session.trials[:2])
    assert (trial_threads(few), worker_count(few, few.trials, None)) == (2, 2)
    assert trial_threads(replace(session, trials=session.trials[:1])) is None
    assert trial_threads(replace(session, device="cuda")) is None
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert (trial_threads(few), worker_count(session, session.trials, None)) == (None, 4)


def test_trials_of_a_few_seconds_need_no_workers(session, monkeypatch):
    estimate(monkeypatch, seconds=3.0)
    assert worker_count(session, session.trials, None) == 0
    assert worker_count(session, session.trials, 2) == 2
    estimate(monkeypatch, seconds=0.0, not_timed=1)
    assert worker_count(session, session.trials, None) == 4


def test_one_worker_a_gpu(session):
    assert worker_count(replace(session, device="cuda"), session.trials, None) == 3
    assert worker_count(replace(session, device="cuda"), session.trials, 6) == 6
    assert worker_count(replace(session, device="cuda:1"), session.trials, None) == 0
    assert worker_count(replace(session, device="mps"), session.trials, None) == 0


def test_processes_of_torchrun_have_no_workers(session, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert worker_count(session, session.trials, None) == 0
    assert trial_threads(session) is None
