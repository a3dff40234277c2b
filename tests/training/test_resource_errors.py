"""Out of memory, or no compiler: one line, exit 1, and the checkpoint stays."""

import pytest
import torch
from torch._dynamo.exc import TorchRuntimeError
from torch._inductor.exc import InvalidCxxCompiler

from marginctl.training import trainer
from marginctl.utils import precision

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


def out_of_gpu_memory():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def out_of_mps_memory():
    raise RuntimeError(
        "MPS backend out of memory (MPS allocated: 17.90 GiB, max allowed: 18.13 GiB)"
    )


def out_of_cublas_memory():
    raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


def out_of_cudnn_memory():
    raise RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED")


def out_of_context_memory():
    kind = getattr(torch, "AcceleratorError", RuntimeError)  # since torch 2.7
    raise kind("CUDA error: out of memory")


def no_compiler():
    raise InvalidCxxCompiler


MEMORY = (
    "error: digits, mlp:width=8 / soft (seed 0): out of memory on cpu with train.batch_size = "
    "50 and train.grad_accum_steps = 1: raise train.grad_accum_steps, or use a smaller model"
)
COMPILER = "error: digits, mlp:width=8 / soft (seed 0): train.compile = true: No working C++ compil"


@pytest.mark.parametrize(
    ("fail", "line"),
    [
        (too_large, MEMORY),
        (out_of_gpu_memory, MEMORY),
        (out_of_mps_memory, MEMORY),
        (out_of_cublas_memory, MEMORY),
        (out_of_cudnn_memory, MEMORY),
        (out_of_context_memory, MEMORY),
        (no_compiler, COMPILER),
    ],
)
def test_one_line_and_the_checkpoint_stays(marginctl, tmp_path, monkeypatch, fail, line):
    real = trainer.Trainer._train_step

    def train_step(self, x, y):
        if self.step == 2:
            fail()
        real(self, x, y)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_train_step", train_step)
        ran = marginctl(*TRAIN, "--quiet", "--out", tmp_path)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(line)
    assert len(ran.err.splitlines()) == 1
    again = marginctl(*TRAIN, "--out", tmp_path)
    assert "resuming from step 2 of 4" in again.err
    assert again.status == 0


def test_a_dry_run_reports_too_little_memory(marginctl, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer.Trainer, "_train_step", lambda self, x, y: too_large())
    ran = marginctl(*TRAIN, "--out", tmp_path, "--dry-run", "--json")
    (row,) = ran.json["dry_run"]["rows"]
    assert row["reason"] == "cpu has no memory for 50 images"


def test_other_errors_are_raised_unchanged(marginctl, tmp_path, monkeypatch):
    for error in (RuntimeError, TorchRuntimeError):  # Dynamo's name for an error of a network

        def broken(self, x, y, error=error):
            raise error("a fault of ours")

        monkeypatch.setattr(trainer.Trainer, "_train_step", broken)
        with pytest.raises(error, match="a fault of ours"):
            marginctl(*TRAIN, "--out", tmp_path)


def test_resuming_in_another_precision_says_so(marginctl, tmp_path, monkeypatch):
    real = trainer.Trainer._train_step

    def train_step(self, x, y):
        if self.step == 2:
            too_large()
        real(self, x, y)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_train_step", train_step)
        patch.setattr(precision, "_cpu_has_bf16", lambda: True)
        assert marginctl(*TRAIN, "--out", tmp_path).status == 1
    monkeypatch.setattr(precision, "_cpu_has_bf16", lambda: False)
    again = marginctl(*TRAIN, "--out", tmp_path)
    line = "resuming from step 2 of 4, computed on cpu in bf16: the rest is computed on cpu in fp32"
    assert again.err.count(line) == 1
