"""Several processes with one command share its trials, each of which is done once."""

import threading
import time

import pytest

from marginctl.runs.run_dir import RunDir

pytestmark = pytest.mark.smoke
TWICE = "similarity=cosine;scale=fixed(from_run=cosine-ls,times=2)"
COMMAND = ["train", "--data", "digits", "--model", "mlp:width=8", "--device", "cpu", "--json"]
COMMAND += ["--no-tune"]
COMMAND += ["--objective", "cosine-ls", "--objective", TWICE]
COMMAND += ["--seeds", "2", "--epochs", "1", "--set", "data.subset_size=100"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_trial_that_is_taken_comes_last_and_so_does_what_needs_it(marginctl, tmp_path, workers):
    first = marginctl(*COMMAND, "--out", tmp_path / "alone")
    assert first.status == 0, first.err
    trials = sorted((tmp_path / "alone").rglob("result.json"))
    assert len(trials) == 4
    taken = next(p.parent for p in trials if "cosine-ls-0" in p.parent.name)
    store = tmp_path / "shared"
    folder = RunDir(store / taken.relative_to(tmp_path / "alone"))
    assert folder.try_lock()

    def leave_when_the_others_are_done():
        while len(list(store.rglob("result.json"))) < 2:
            time.sleep(0.01)
        time.sleep(0.3)
        folder.unlock()

    thread = threading.Thread(target=leave_when_the_others_are_done)
    thread.start()
    ran = marginctl(*COMMAND, "--workers", workers, "--out", store)
    thread.join()
    assert ran.status == 0, ran.err
    assert ran.err.count("locked by another process") == 1
    assert "other processes hold 2 of the trials: waiting for their results" in ran.err
    assert _untimed(ran) == _untimed(first)


def _untimed(ran):
    return [{k: v for k, v in c.items() if "second" not in k} for c in ran.json["cells"]]
