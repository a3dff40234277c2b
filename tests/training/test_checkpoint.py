"""Checkpoints: the last good one is found, nothing in one is run, and so many stay."""

import json
import pickle

import pytest
import torch

from marginctl.errors import RequestError, StorageError
from marginctl.training import checkpoint
from marginctl.training.checkpoint import BEST, LAST

STATE = {
    "trial": "one",
    "steps_per_epoch": 4,
    "world_size": 1,
    "device": "cpu",
    "precision": "fp32",
    "versions": {"torch": "2"},
    "metrics": "[]",
    "normalization": [[0.5], [0.2]],
    "classes": ["a", "b"],
    "image_size": 8,
    "optimizer": {},
    "scaler": {},
    "model": {"w": torch.ones(3)},
    "objective": {"weight": torch.zeros(2, 3)},
}


def save(folder, step, kind=LAST, keep=1):
    return checkpoint.save(folder, kind, step, {**STATE, "step": step}, keep)


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_the_number_of_kept_checkpoints(tmp_path, keep):
    save(tmp_path, 2, BEST)
    for step in range(1, 6):
        save(tmp_path, step, keep=keep)
    kept = [checkpoint.load(p)["step"] for p in checkpoint.list_checkpoints(tmp_path, LAST)]
    assert kept == [5, 4, 3][: max(keep, 1)]
    assert [checkpoint.load(p)["step"] for p in checkpoint.list_checkpoints(tmp_path, BEST)] == [2]


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_a_new_checkpoint_is_kept_despite_a_later_corrupt_one(tmp_path, keep):
    """A corrupt later one was skipped, and training resumes before it."""
    save(tmp_path, 1, keep=2)
    later = save(tmp_path, 9, keep=2)
    later.write_bytes(later.read_bytes()[:-50])
    for step in (2, 3, 4):
        path = save(tmp_path, step, keep=keep)
        assert path.exists()
        (_, state), _ = checkpoint.load_latest(tmp_path)
        assert state["step"] == step


def steps_in(out, kind):
    return [
        checkpoint.load(path)["step"]
        for run_trial in out.rglob("run.json")
        for path in checkpoint.list_checkpoints(run_trial.parent, kind)
    ]


TRAIN = ("train", "--data", "digits", "--model", "mlp:width=8", "--device", "cpu", "--epochs", "3")
TRAIN += (
    "--set",
    "data.subset_size=100",
    "--set",
    "train.batch_size=50",
    "--checkpoint-minutes",
    "0",
)


@pytest.mark.parametrize("keep", [1, 2])
def test_training_keeps_the_last_checkpoints_and_the_best(marginctl, tmp_path, keep):
    """A checkpoint after each of 6 steps; the best of the epochs after 2, 4 and 6 steps."""
    assert marginctl(*TRAIN, "--keep", keep, "--out", tmp_path).status == 0
    assert steps_in(tmp_path, LAST) == [6, 5][:keep]
    (result,) = (json.loads(path.read_text()) for path in tmp_path.rglob("result.json"))
    assert steps_in(tmp_path, BEST) == [2 * result["best"]["epoch"]]


def test_the_best_checkpoint_is_the_network_alone(marginctl, tmp_path):
    assert marginctl(*TRAIN, "--out", tmp_path).status == 0
    (path,) = tmp_path.rglob("best-*.pt")
    state = checkpoint.load(path)
    assert state["model"]
    assert not state.keys() & {"optimizer", "scaler", "running_metrics"}


def test_an_error_of_the_writing_thread_is_raised_when_it_is_awaited(tmp_path):
    (tmp_path / checkpoint.CHECKPOINTS).write_text("a file in place of the folder")
    writer = checkpoint.BackgroundWriter()
    writer.save(tmp_path, BEST, 1, STATE | {"step": 1}, keep=1)
    with pytest.raises(StorageError):
        writer.wait()
    writer.wait()  # once


def test_the_best_checkpoint_is_kept_when_later_epochs_are_worse(marginctl, tmp_path, monkeypatch):
    from marginctl.training import epoch_metrics

    accuracies = iter([50.0, 70.0, 60.0])
    real = epoch_metrics.accuracy_record
    monkeypatch.setattr(
        epoch_metrics, "accuracy_record", lambda tested: real(tested) | {"top1": next(accuracies)}
    )
    assert marginctl(*TRAIN, "--keep", 1, "--out", tmp_path).status == 0
    assert steps_in(tmp_path, LAST) == [6]
    assert steps_in(tmp_path, BEST) == [4]


def test_keeping_no_checkpoint_is_refused(marginctl, tmp_path):
    ran = marginctl(*TRAIN, "--keep", 0, "--out", tmp_path / "runs")
    assert ran.status == 2
    assert "--keep" in ran.err
    assert "'0': expected an integer of at least 1" in ran.err
    assert not (tmp_path / "runs").exists()


def test_saving_one_step_twice_writes_one_file(tmp_path):
    assert save(tmp_path, 7, keep=2) == save(tmp_path, 7, keep=2)
    assert len(checkpoint.list_checkpoints(tmp_path, LAST)) == 1


@pytest.mark.parametrize("damage", ["torn", "flipped", "empty"])
def test_corrupt_checkpoints_are_skipped(tmp_path, damage):
    save(tmp_path, 1, keep=2)
    path = save(tmp_path, 2, keep=2)
    data = path.read_bytes()
    flipped = data[:200] + bytes([data[200] ^ 1]) + data[201:]
    path.write_bytes({"torn": data[:-50], "flipped": flipped, "empty": b""}[damage])
    (_, state), problems = checkpoint.load_latest(tmp_path)
    assert state["step"] == 1
    assert len(problems) == 1
    assert "is corrupt: checksum mismatch" in problems[0]


def test_without_checkpoints_none_is_loaded(tmp_path):
    assert checkpoint.load_latest(tmp_path) == (None, [])


@pytest.mark.parametrize(
    "change",
    [
        *({"step": "1"}, {"step": -1}, {"model": [1]}, {"objective": 3}, {"versions": 3}),
        *({"normalization": 3}, {"steps_per_epoch": 0}, {"metrics": None}),
        *({"model": {"w": {"a": 1}}}, {"objective": {"weight": "text"}}),
        *({"model": {"w": torch.eye(2).to_sparse()}}, {"model": {"w": torch.ones(2) * 1j}}),
    ],
    ids=str,
)
def test_a_file_with_wrong_content_is_skipped(tmp_path, change):
    save(tmp_path, 1, keep=2)
    checkpoint.save(tmp_path, LAST, 2, {**STATE, "step": 2, **change}, 2)
    (_, state), problems = checkpoint.load_latest(tmp_path)
    assert state["step"] == 1
    assert "is not a checkpoint of marginctl train: skipped" in problems[0]


def test_a_checkpoint_of_another_trial_is_skipped(tmp_path):
    save(tmp_path, 1)
    found, problems = checkpoint.load_latest(tmp_path, trial="two")
    assert found is None
    assert "belongs to another trial, one: skipped" in problems[0]


def test_other_files_are_refused_and_their_code_is_not_run(tmp_path):
    class Hostile:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    hostile = tmp_path / "model.pt"
    hostile.write_bytes(pickle.dumps(Hostile()))
    torch.save({"w": torch.ones(2)}, tmp_path / "other.pt")
    for path in (hostile, tmp_path / "other.pt"):
        with pytest.raises(RequestError, match="is not a checkpoint of marginctl train"):
            checkpoint.load(path)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(RequestError, match="cannot be read"):
        checkpoint.load(tmp_path / "absent.pt")


def test_the_digest_depends_on_the_bits():
    a = {"x": torch.tensor([1.0, 2.0]), "n": torch.tensor(3)}
    same = {"n": torch.tensor(3), "x": torch.tensor([1.0, 2.0])}
    assert checkpoint.weights_digest(a) == checkpoint.weights_digest(same)
    assert checkpoint.weights_digest(a) != checkpoint.weights_digest({**a, "n": torch.tensor(4)})
    half = {**a, "x": a["x"].bfloat16()}
    assert checkpoint.weights_digest(a) != checkpoint.weights_digest(half)
