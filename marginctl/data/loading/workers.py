"""Decodes image files in other processes, batch by batch."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from marginctl.data.images.folders import open_rgb
from marginctl.data.images.on_disk import FileSplit
from marginctl.errors import DecodeError, MarginctlError
from marginctl.utils.device import usable_cores, world_size
from marginctl.utils.text import short

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_WORKERS = 16

Batch = tuple[Tensor, Tensor, Tensor]  # x (B, 3, H, W), light (B, 3), y (B,) int64


class Prepare(Protocol):
    """Makes of a decoded image what a batch is stacked from."""

    def __call__(self, image: "Image", draw: int) -> tuple[Tensor, Tensor]:
        """x (3, H, W), and the light (3,) that is to be added to its channels, of 0 to 1."""


class DecodedImages(Dataset[tuple[Tensor, Tensor, int] | str]):
    """The images of a part; of one that cannot be decoded, the words that say so.

    An image is asked for by its draw, which is its row and, where it is drawn once more, as many
    times the part's length on top: so nothing random is alike in two draws of one image.

    An error is a value here: one that is raised in a worker comes out with its traceback.
    """

    def __init__(self, part: FileSplit, root: Path, prepare: Prepare) -> None:
        self._part, self._root, self._prepare = part, root, prepare

    def __len__(self) -> int:
        return len(self._part)

    def __getitem__(self, draw: int) -> tuple[Tensor, Tensor, int] | str:
        row = draw % len(self._part)
        path = os.path.join(self._root, self._part.path(row))
        try:
            image = open_rgb(path)
        except Exception as error:  # a damaged image makes the decoders raise anything
            # the path stands before: not once more; what Python says of a number helps nobody
            own = isinstance(error, OSError) or type(error).__module__.startswith("PIL")
            said = str(error).replace(repr(path), "").strip() if own else ""
            reason = short(said or "its content is damaged")
            return f"{path}: cannot be decoded: {reason}: repair it, or take it out of the set"
        x, light = self._prepare(image, draw)
        return x, light, int(self._part.y[row])


def worker_count() -> int:
    """How many processes decode for this one: none on a single core."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", world_size()))
    cores = usable_cores() // here
    return min(cores, MOST_WORKERS) if cores > 1 else 0


def decode_batches(
    images: DecodedImages, batches: Sequence[NDArray[np.int64]], device: torch.device
) -> Iterator[Batch]:
    """Batches of decoded images in the order that is asked for, on the CPU.

    The processes that decode live as long as the batches last, and leave signals to this one.

    Args:
        images: decodes a draw.
        batches: the draws of each batch.
        device: where they will go: for a GPU they are in pinned memory.

    Raises:
        DecodeError: a file cannot be decoded; it is named.
        MarginctlError: a process that decodes has gone.
    """
    loader: DataLoader[tuple[Tensor, Tensor, int] | str] = DataLoader(
        images,
        batch_sampler=[rows.tolist() for rows in batches],
        num_workers=min(worker_count(), len(batches)),
        collate_fn=_together,
        pin_memory=device.type == "cuda",
        worker_init_fn=_leave_signals,
        generator=torch.Generator(),  # else it draws from the stream of dropout
    )
    in_order: Iterator[Batch | str] | None = None
    try:
        with _signals_held():
            in_order = iter(loader)
        for batch in in_order:
            if isinstance(batch, str):
                raise DecodeError(batch)
            x, light, y = batch
            yield x, light, y
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise MarginctlError(
            "a process that decodes images has gone, as when memory runs out (in a container, also "
            "the shared memory of /dev/shm): what was trained up to the last checkpoint is kept"
        ) from None
    finally:
        in_order = None  # ends the processes: an error's traceback would keep it


def _together(items: list[tuple[Tensor, Tensor, int] | str]) -> Batch | str:
    """A batch, or what is wrong with its first image that cannot be decoded."""
    whole = []
    for item in items:
        if isinstance(item, str):
            return item
        whole.append(item)
    x, light, y = zip(*whole, strict=True)
    return torch.stack(x), torch.stack(light), torch.tensor(y)


def _leave_signals(number: int) -> None:
    """Ctrl-C and a batch system's SIGTERM reach every process; the one that trains acts on them.

    It alone ends the others, which also end by themselves when it has gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def end_when_told() -> None:
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
            pass
        os._exit(0)

    # macOS has no sigwaitinfo: there a worker ends by itself alone
    if hasattr(signal, "sigwaitinfo"):
        threading.Thread(target=end_when_told, daemon=True).start()


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Signals wait while processes start, and for good in these, which inherit it."""
    held = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
