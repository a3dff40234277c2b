"""What the stacked engine asks of a device: operations of a step, and waits of an epoch."""

from collections import Counter
from contextlib import ExitStack
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from marginctl.crossval.stack import build_stacks
from marginctl.crossval.stacked_networks import StackedNetworks
from marginctl.crossval.stacked_trainer import train_stack
from marginctl.objectives.parsing import parse
from marginctl.objectives.presets import PRESETS
from marginctl.recipe.uci_cv import Protocol
from tests.crossval.factories import dataset

# Operations that start nothing on a device.
VIEWS = """alias as_strided detach empty empty_like expand new_empty select slice split squeeze
transpose _unsafe_view unsqueeze view"""
# A number that is read, a tensor of Python's numbers, a shape that depends on values.
WAITS = ("_local_scalar_dense", "equal", "lift_fresh", "masked_select", "nonzero")
READS = ("cpu", "numpy", "tolist")  # methods that no dispatch mode sees
SCHEDULED = ["gradient-decay:beta=warm-up(end=3)", "arcface:margin=linear(start=0,end=1)"]

# The most operations of a step, forward, backward and Adam, with two hidden layers. Lower a figure
# when the engine gets better.
OPERATIONS = {
    "soft": 29,
    "center": 53,
    "m-soft": 32,
    "modified-softmax": 32,
    "gradient-decay": 32,
    "label-smoothing": 38,
    "lm-softmax": 55,
    "hinge": 33,
    "dense-hinge": 34,
    "super-symmetry": 65,
    "l-gm": 58,
    "l-softmax": 91,
    "sphereface": 84,
    "cosine": 47,
    "cosine-learned": 52,
    "cosine-ls": 76,
    "cosface": 51,
    "adacos-fixed": 47,
    "arcface": 69,
    "adacos": 73,
    "arcgrad": 55,
}


class Operations(TorchDispatchMode):
    """Counts operations while it is active."""

    def __init__(self):
        super().__init__()
        self.names = Counter()
        self._patches = ExitStack()

    def __enter__(self):
        for name in READS:
            read = getattr(torch.Tensor, name)
            counted = lambda tensor, read=read: self.names.update(["equal"]) or read(tensor)  # noqa: E731
            self._patches.enter_context(mock.patch.object(torch.Tensor, name, counted))
        return super().__enter__()

    def __exit__(self, *error):
        self._patches.close()
        return super().__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names[function._schema.name.removeprefix("aten::")] += 1
        return function(*args, **(kwargs or {}))

    def waits(self):
        return sum(self.names[name] for name in WAITS)

    def kernels(self):
        return sum(n for name, n in self.names.items() if name not in (*VIEWS.split(), *WAITS))


def made(objective, **changes):
    """A stack of 5 networks with 32 or 33 training rows, so that one has a last batch of one."""
    protocol = Protocol(**{"hidden": [6, 5], "folds": 5, "repeats": 1, "batch_size": 8} | changes)
    (stack,) = build_stacks(dataset(), parse(objective), protocol, seed=0)
    return stack


@pytest.mark.parametrize("objective", [*PRESETS, *SCHEDULED])
def test_the_host_waits_at_most_once_an_epoch(objective):
    waits = []
    for epochs in (1, 4):
        with Operations() as operations:
            train_stack(made(objective, epochs=epochs, lr="cosine(start=0.01,end=0)"))
        waits.append(operations.waits())
    assert waits[1] - waits[0] <= 3


@pytest.mark.parametrize("objective", PRESETS)
def test_the_operations_of_a_step(objective, monkeypatch):
    starts, first = [], StackedNetworks.set_progress

    def start(self, epoch, batch):
        starts.append(operations.kernels())
        first(self, epoch, batch)

    monkeypatch.setattr(StackedNetworks, "set_progress", start)
    with Operations() as operations:
        train_stack(made(objective, epochs=1))
    assert starts[2] - starts[1] <= OPERATIONS[objective]


@pytest.mark.parametrize(("gigabytes", "stacks"), [(0.001, 11), (1, 1), (141, 1)])
def test_a_gpu_trains_all_networks_at_once_where_its_memory_allows(gigabytes, stacks, monkeypatch):
    memory = SimpleNamespace(total_memory=gigabytes * 1e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: memory)
    protocol = Protocol(hidden=[16, 16], folds=10, repeats=10)
    on_cpu, on_gpu = (
        build_stacks(dataset(), parse("soft"), protocol, 0, device=d) for d in ("cpu", "cuda:0")
    )
    assert len(on_cpu) == 1
    assert len(on_gpu) == stacks
    assert sum(len(s.networks) for s in on_gpu) == 100
