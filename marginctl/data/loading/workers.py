"""Decoding of image files in worker processes, batch by batch."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from marginctl.data.images.content import UNREADABLE, decoding_problem
from marginctl.data.images.folders import open_rgb
from marginctl.data.images.on_disk import FileSplit
from marginctl.data.loading.transforms import ImageTransform
from marginctl.errors import DecodeError, MarginctlError
from marginctl.utils.device import usable_cores, world_size
from marginctl.utils.processes import exit_with_parent, signals_blocked
from marginctl.utils.text import shorten

MAX_WORKERS = 16
WORKERS_VARIABLE = "MARGINCTL_DECODE_WORKERS"

Sample = tuple[Tensor, Tensor, int]  # x (3, H, W), colour shift (3,), label
Batch = tuple[Tensor, Tensor, Tensor]  # x (B, 3, H, W), colour shift (B, 3), y (B,) int64


class DecodedImages(Dataset[Sample | str]):
    """The decoded and transformed images of a split; an error message for a corrupt file.

    An index is an epoch and a draw: the image's row, plus the number of images for each repetition
    of that row in an epoch. So no two draws of an image share random numbers.

    An error is a value, because an exception in a worker process arrives with its traceback.
    """

    def __init__(self, split: FileSplit, root: Path, transform: ImageTransform) -> None:
        self._split, self._root, self._transform = split, root, transform

    def __len__(self) -> int:
        return len(self._split)

    def __getitem__(self, index: tuple[int, int]) -> Sample | str:
        epoch, draw = index
        row = draw % len(self._split)
        path = os.path.join(self._root, self._split.path(row))
        try:
            image = open_rgb(path)
        except Exception as error:  # a corrupt image can make the decoders raise anything
            problem = decoding_problem(path, error)
            if problem != UNREADABLE:
                return f"{path}: {problem}"
            # repeat neither the path nor what Python says about numbers in a corrupt file
            described = isinstance(error, OSError) or type(error).__module__.startswith("PIL")
            message = str(error).replace(repr(path), "").strip() if described else ""
            reason = shorten(message or "its content is corrupt")
            return f"{path}: cannot be decoded: {reason}: repair it, or remove it from the data set"
        x, shift = replace(self._transform, epoch=epoch)(image, draw)
        return x, shift, int(self._split.y[row])


def worker_count() -> int:
    """Return the number of decoding processes for this process: none on a single core.

    The environment variable MARGINCTL_DECODE_WORKERS overrides it.
    """
    if given := os.environ.get(WORKERS_VARIABLE):
        return int(given)
    local_processes = int(os.environ.get("LOCAL_WORLD_SIZE", world_size()))
    cores = usable_cores() // local_processes
    return min(cores, MAX_WORKERS) if cores > 1 else 0


class Decoder:
    """Decodes batches of images on the CPU, in worker processes that live as long as it does.

    They leave signals to this process.

    Args:
        device: the batches' destination: for a GPU, they are in pinned memory.
    """

    def __init__(self, images: DecodedImages, device: torch.device) -> None:
        self._images, self._device = images, device
        self._batches: list[list[tuple[int, int]]] = []
        self._loader: DataLoader[Sample | str] | None = None

    def batches(self, epoch: int, draws: Sequence[NDArray[np.int64]]) -> Iterator[Batch]:
        """Yield the decoded images of some batches of draws, in order.

        Raises:
            DecodeError: a file cannot be decoded.
            MarginctlError: a worker process has died.
        """
        self._batches[:] = [[(epoch, draw) for draw in batch.tolist()] for batch in draws]
        workers = min(worker_count(), len(draws))
        if self._loader is None or self._loader.num_workers < workers:
            self._loader = self._make_loader(workers)
        try:
            with signals_blocked():
                iterator = iter(self._loader)
            for batch in iterator:
                if isinstance(batch, str):
                    raise DecodeError(batch)
                x, shift, y = batch
                yield x, shift, y
        except (RuntimeError, DecodeError) as error:
            self._loader = iterator = None  # ends the processes, which a traceback would keep alive
            if isinstance(error, DecodeError) or "DataLoader worker" not in str(error):
                raise
            raise MarginctlError(
                "a process that decodes images has died, perhaps because memory ran out (in a "
                "container, also the shared memory /dev/shm): training up to the last checkpoint "
                "is saved"
            ) from None

    def _make_loader(self, workers: int) -> DataLoader[Sample | str]:
        return DataLoader(
            self._images,
            batch_sampler=self._batches,
            num_workers=workers,
            collate_fn=_collate,
            pin_memory=self._device.type == "cuda",
            worker_init_fn=_ignore_signals,
            generator=torch.Generator(),  # otherwise it draws from the stream of dropout
            persistent_workers=workers > 0,
        )


def _collate(samples: list[Sample | str]) -> Any:
    """Return the three tensors of a `Batch`, or the error of its first corrupt image."""
    errors = [sample for sample in samples if isinstance(sample, str)]
    return errors[0] if errors else default_collate(samples)


def _ignore_signals(worker: int) -> None:
    """Leave Ctrl-C and SIGTERM, which reach every process, to the process that trains.

    Only that process ends its workers, which also end by themselves when it has died: until then
    they would hold its locks.
    """
    exit_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def exit_on_sigterm_of_parent() -> None:
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
            pass
        os._exit(0)

    # macOS has no sigwaitinfo: there a worker only ends by itself
    if hasattr(signal, "sigwaitinfo"):
        threading.Thread(target=exit_on_sigterm_of_parent, daemon=True).start()
