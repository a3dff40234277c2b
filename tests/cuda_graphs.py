"""CUDA graphs on the CPU: a stand-in that records operations and runs them on the same memory.

As on a GPU, a capture has no effect, and a replay reads and writes the tensors of the capture: what
Python did in between, such as a new tensor in a module or a number, is not seen.
"""

import contextlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal"}  # wait for the device


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def storage(tensor):
    return tensor.untyped_storage()


class RecordedGraph(TorchDispatchMode):
    """Stands in for torch.cuda.CUDAGraph."""

    replays = 0

    def __init__(self):
        super().__init__()
        self._operations = []
        self._known = {}  # memory that the graph has seen, with its content before the capture
        self._before = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function._schema.name in READS:
            raise RuntimeError("operation not permitted when stream is capturing")
        for tensor in tensors((args, kwargs)):
            if storage(tensor).data_ptr() not in self._known:
                self._known[storage(tensor).data_ptr()] = tensor
                self._before.append((storage(tensor), storage(tensor).clone()))
        result = function(*args, **kwargs)
        inputs = {storage(t).data_ptr() for t in tensors((args, kwargs))}
        new = [storage(t).data_ptr() not in inputs for t in tensors(result)]
        self._known |= {storage(t).data_ptr(): t for t in tensors(result)}
        self._operations.append((function, args, kwargs, result, new))
        return result

    def end_capture(self):
        """Undo what the operations did, as they only run when they are replayed."""
        for memory, content in self._before:
            memory.copy_(content)

    @torch.no_grad()
    def replay(self):
        RecordedGraph.replays += 1
        for function, args, kwargs, result, new in self._operations:
            again = function(*args, **kwargs)
            for ours, theirs, is_new in zip(tensors(result), tensors(again), new, strict=True):
                if is_new:
                    torch.ops.aten.copy_(ours.detach(), theirs)


class Stream:
    def wait_stream(self, other):
        pass


@contextlib.contextmanager
def capture(graph, stream, capture_error_mode):
    try:
        with torch.random.fork_rng(), graph:
            yield
    finally:
        graph.end_capture()


def install(monkeypatch):
    """Replace what a graphed step uses of torch.cuda."""
    RecordedGraph.replays = 0
    # labels are read on the CPU alone
    monkeypatch.setattr("marginctl.objectives.module.check_targets", lambda *_: None)
    for name, value in {
        "CUDAGraph": RecordedGraph,
        "Stream": Stream,
        "current_stream": Stream,
        "stream": contextlib.nullcontext,
        "graph": capture,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
