"""Out-of-memory and compiler errors of a training run, as one-line messages."""

import contextlib
from collections.abc import Iterator

import torch

from marginctl.errors import MarginctlError
from marginctl.recipe.image_recipe import Training


class ResourceError(MarginctlError):
    """The machine has too little memory for a trial, or no working compiler."""

    is_local_to_process = True


# Words of torch's CPU allocator, CUDA and MPS, and of cuBLAS and cuDNN, in a plain RuntimeError.
_MEMORY_ERRORS = ("DefaultCPUAllocator", "out of memory", "_ALLOC_FAILED", "_ALLOCATION_FAILED")
# Dynamo's errors that are not its own: of the network that it traces.
_TRACED_ERRORS = {"TorchRuntimeError", "UserError", "ObservedException"}


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the memory of the device or of the machine is exhausted."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(w in str(error) for w in _MEMORY_ERRORS)


def _is_compiler_error(error: BaseException) -> bool:
    kind = type(error)
    return kind.__module__.startswith(("torch._dynamo", "torch._inductor")) and not any(
        base.__name__ in _TRACED_ERRORS for base in kind.__mro__
    )


@contextlib.contextmanager
def one_line_errors(trial: object, train: Training, device: str) -> Iterator[None]:
    """Turn out-of-memory and compiler failures of a trial into one-line errors."""
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise ResourceError(
                f"{trial}: out of memory on {device} with train.batch_size = {train.batch_size} "
                f"and train.grad_accum_steps = {train.grad_accum_steps}: raise "
                "train.grad_accum_steps, or use a smaller model"
            ) from None
        if _is_compiler_error(error):
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise ResourceError(
                f"{trial}: train.compile = true: {lines[0][:200]}: set train.compile = false, or "
                "install a compiler"
            ) from None
        if train.cuda_graphs and isinstance(error, RuntimeError) and "captur" in str(error):
            raise ResourceError(
                f"{trial}: train.cuda_graphs = true: {str(error).strip().splitlines()[0][:200]}: "
                "set train.cuda_graphs = false"
            ) from None
        raise
