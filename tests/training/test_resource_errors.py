"""A machine without memory or compiler: one line, exit 1, and what was trained is kept."""

import pytest
import torch
from torch._inductor.exc import InvalidCxxCompiler

from marginctl.training import trainer

TRAIN = ("train", "--data", "digits", "--model", "mlp:width=8", "--device", "cpu", "--epochs", "2")
TRAIN += (
    "--set",
    "data.subset_size=100",
    "--set",
    "train.batch_size=50",
    "--checkpoint-minutes",
    "0",
)


def too_large():
    torch.empty(2**46)


def of_a_card():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def no_compiler():
    raise InvalidCxxCompiler


MEMORY = (
    "error: digits, mlp:width=8 / soft (seed 0): cpu has no memory for train.batch_size = 50 with "
    "train.grad_accum_steps = 1: raise the latter, or take a smaller model"
)
COMPILER = "error: digits, mlp:width=8 / soft (seed 0): train.compile = true: No working C++ compil"


@pytest.mark.parametrize(
    ("lack", "line"), [(too_large, MEMORY), (of_a_card, MEMORY), (no_compiler, COMPILER)]
)
def test_one_line_and_what_was_trained_is_kept(marginctl, tmp_path, monkeypatch, lack, line):
    real = trainer.Trainer._train_on

    def train_on(self, x, y):
        if self.step == 2:
            lack()
        real(self, x, y)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_train_on", train_on)
        ran = marginctl(*TRAIN, "--quiet", "--out", tmp_path)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(line)
    assert len(ran.err.splitlines()) == 1
    again = marginctl(*TRAIN, "--out", tmp_path)
    assert "goes on after step 2 of 4" in again.err
    assert again.status == 0


def test_a_dry_run_says_that_there_is_no_memory(marginctl, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer.Trainer, "_train_on", lambda self, x, y: too_large())
    ran = marginctl(*TRAIN, "--out", tmp_path, "--dry-run", "--json")
    (row,) = ran.json["dry_run"]["rows"]
    assert row["reason"] == "cpu has no memory for 50 images"


def test_other_errors_stay_what_they_are(marginctl, tmp_path, monkeypatch):
    def broken(self, x, y):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(trainer.Trainer, "_train_on", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        marginctl(*TRAIN, "--out", tmp_path)
