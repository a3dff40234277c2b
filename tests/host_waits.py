"""Counts what would make the host wait for a GPU, on the CPU and in pure Python.

Every tensor counts as one on a device, unless it was copied from there.
"""

import collections
import functools
import sys
from contextlib import ExitStack
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from marginctl.utils import device

# a number that is read, a tensor of Python's or NumPy's numbers, a shape that depends on values
WAITS = {"_local_scalar_dense", "lift_fresh", "nonzero", "masked_select", "equal"}
MASKED = {"index", "index_put_", "index_put"}  # where an index is a mask
READS = ("cpu", "numpy", "tolist")  # methods that no dispatch mode sees


class HostWaits(TorchDispatchMode):
    """Counts waits by their line in marginctl and their operation while it is active."""

    def __init__(self):
        super().__init__()
        self.counts = collections.Counter()
        self._on_host = WeakIdKeyDictionary()
        self._patches = ExitStack()

    def __enter__(self):
        for name in READS:
            read = getattr(torch.Tensor, name)
            patched = lambda tensor, name=name, read=read: self._read(name, tensor, read)  # noqa: E731
            self._patches.enter_context(mock.patch.object(torch.Tensor, name, patched))
        count = functools.partial(self._count, "synchronize")
        self._patches.enter_context(mock.patch.object(device, "synchronize", count))
        copied = mock.patch("marginctl.training.trainer.to_host", self._copy_to_host)
        self._patches.enter_context(copied)
        return super().__enter__()

    def __exit__(self, *error):
        self._patches.close()
        return super().__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        name = function._schema.name.removeprefix("aten::")
        if any(t in self._on_host for t in tensors):
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    self._on_host[leaf] = True
        elif name in WAITS or (name in MASKED and any(t.dtype == torch.bool for t in tensors[1:])):
            self._count(name)
        return result

    def put_on_host(self, tensor):
        """Count reads of a tensor that is on the CPU with a GPU, too, as no wait."""
        self._on_host[tensor] = True

    def _read(self, name, tensor, read):
        if tensor in self._on_host:
            return read(tensor)
        self._count(name)
        return self._host_copy(tensor) if name == "cpu" else read(tensor)

    def _copy_to_host(self, tensors, **options):
        return [self._host_copy(tensor) for tensor in device.to_host(tensors, **options)]

    def _host_copy(self, tensor):
        copy = tensor.clone()
        self._on_host[copy] = True
        return copy

    def _count(self, name, *_):
        frame = sys._getframe(1)
        while frame is not None and "/marginctl/" not in frame.f_code.co_filename:
            frame = frame.f_back
        line = "torch"
        if frame is not None:
            line = f"{frame.f_code.co_filename.rpartition('/marginctl/')[2]}:{frame.f_lineno}"
        self.counts[f"{line} {name}"] += 1
