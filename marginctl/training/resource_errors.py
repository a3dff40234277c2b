"""What a machine lacks for a training: memory, or a compiler. Each is a line, and no traceback."""

import contextlib
from collections.abc import Iterator

import torch

from marginctl.errors import MarginctlError
from marginctl.recipe.image_recipe import Training


class ResourceError(MarginctlError):
    """This machine cannot do what a trial needs."""

    is_local_to_process = True


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory of the device or of the machine has run out."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    # the allocator of CPUs has no error of its own
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


@contextlib.contextmanager
def one_line_errors(trial: object, train: Training, device: str) -> Iterator[None]:
    """Names what is lacking while a trial trains, and what to do.

    Raises:
        ResourceError: there is no memory, or `train.compile` finds no compiler that works.
    """
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise ResourceError(
                f"{trial}: {device} has no memory for train.batch_size = {train.batch_size} with "
                f"train.grad_accum_steps = {train.grad_accum_steps}: raise the "
                "latter, or take a smaller model"
            ) from None
        if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise ResourceError(
                f"{trial}: train.compile = true: {said[0][:200]}: leave it out, or install a "
                "compiler"
            ) from None
        raise
