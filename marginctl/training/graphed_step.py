"""A training step's forward and backward pass as one CUDA graph."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from marginctl.objectives.module import Objective

WARM_UP = 3  # steps before the capture, in which libraries choose algorithms and take memory
Compute = Callable[[Tensor, Tensor], None]


class GraphedStep:
    """Computes the gradients of batches of one size by one launch instead of one per operation.

    A graph reads and writes the memory that it was captured with, so the batch is copied there, and
    the gradients and the objective's state are set to the tensors there. Random numbers follow
    the generator's seed at each replay, and scheduled options their tensors.

    Args:
        module: backbone and objective.
        batch_size: that of the graph; batches of another size are computed as usual.
    """

    def __init__(self, module: nn.Module, objective: Objective, batch_size: int) -> None:
        self._module, self._objective, self._batch_size = module, objective, batch_size
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call,unused-ignore]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm_ups = 0

    def __call__(self, compute: Compute, x: Tensor, y: Tensor) -> None:
        """Run `compute`, which sets the gradients, or replay its graph; gradients start as None."""
        if len(y) != self._batch_size:
            compute(x, y)
        elif self._warm_ups < WARM_UP:
            self._warm_ups += 1
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):  # that of the capture
                compute(x, y)
            current.wait_stream(self._stream)
        else:
            if self._graph is None:
                self._graph = self._capture(compute, x, y)
            self._x.copy_(x)
            self._y.copy_(y)
            self._pin_state()
            self._graph.replay()
            for parameter, gradient in self._gradients:
                parameter.grad = gradient

    def _capture(self, compute: Compute, x: Tensor, y: Tensor) -> torch.cuda.CUDAGraph:
        """Return the graph of `compute`, which is recorded and not run."""
        self._x, self._y = x.clone(), y.clone()
        self._state = dict(self._objective.named_buffers())
        graph = torch.cuda.CUDAGraph()
        # other threads go on: one may write a checkpoint, or pin memory
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            compute(self._x, self._y)
            self._pin_state()
        parameters = self._module.parameters()
        self._gradients = [(p, p.grad) for p in parameters if p.grad is not None]
        return graph

    @torch.no_grad()
    def _pin_state(self) -> None:
        """Move the objective's state, which a step puts into new tensors, to the graph's memory."""
        for name, pinned in self._state.items():
            current = self._objective.get_buffer(name)
            if current is not pinned:
                pinned.copy_(current)
                setattr(self._objective, name, pinned)
