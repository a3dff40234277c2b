"""The plain way: one network at a time, with torch's modules, autograd and optimiser.

It trains the same networks as the engine (partitions, initial weights, batch orders), so it is the
reference that the engine is checked and timed against.
"""

import itertools

import numpy as np
import torch
from torch import Tensor, nn

from marginctl.crossval.stack import (
    BatchOrder,
    NetworkRows,
    Stack,
    class_weights,
    initial_weights,
    scaling_statistics,
)
from marginctl.objectives.module import Objective
from marginctl.objectives.schedules import rate_at


class Network(nn.Module):
    """Linear and ReLU layers, then the objective's classifier."""

    def __init__(self, stack: Stack, rows: NetworkRows, dtype: torch.dtype) -> None:
        super().__init__()
        dataset, widths = stack.dataset, stack.widths
        shift, factor = scaling_statistics(dataset.x, rows.train, stack.protocol.scaling)
        self.register_buffer("shift", torch.as_tensor(shift))
        self.register_buffer("factor", torch.as_tensor(factor))
        layers: list[nn.Module] = []
        protocol = stack.protocol
        for i, (inputs, outputs) in enumerate(itertools.pairwise(widths), 1):
            layers.append(nn.Linear(inputs, outputs, dtype=dtype))
            if protocol.batch_norm == "before-relu":
                layers.append(nn.BatchNorm1d(outputs, dtype=dtype))
            if i < len(protocol.hidden) or not protocol.linear_last_hidden:
                layers.append(nn.ReLU())
            if protocol.batch_norm == "after-relu":
                layers.append(nn.BatchNorm1d(outputs, dtype=dtype))
        self.layers = nn.Sequential(*layers)
        counts = None
        if stack.protocol.class_weights == "balanced":
            counts = torch.as_tensor(class_weights(dataset.y, rows.train, dataset.num_classes))
        self.objective = Objective(
            stack.objective.spec, dataset.num_classes, widths[-1], dtype, counts
        )
        drawn = initial_weights(stack, rows)
        with torch.no_grad():
            for i, layer in enumerate(self.linear_layers):
                layer.weight.copy_(torch.as_tensor(drawn[f"weight{i}"].T))
                layer.bias.copy_(torch.as_tensor(drawn[f"bias{i}"]))
            self.objective.weight.copy_(torch.as_tensor(drawn["class_weight"]))
            if self.objective.bias is not None:
                self.objective.bias.copy_(torch.as_tensor(drawn["class_bias"]))
        self.dtype = dtype

    @property
    def linear_layers(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    def features(self, x: Tensor) -> Tensor:
        """(N, d) raw float64 columns -> (N, width)."""
        scaled = (x - self.get_buffer("shift")) * self.get_buffer("factor")
        features: Tensor = self.layers(scaled.to(self.dtype))
        return features


def train_network(
    stack: Stack,
    rows: NetworkRows,
    dtype: torch.dtype = torch.float32,
    steps: int | None = None,
) -> Network:
    """Trains one network of a stack by itself, for its protocol's epochs or a number of steps."""
    protocol = stack.lanes[rows.lane]
    network = Network(stack, rows, dtype)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    extra = {"momentum": protocol.momentum} if protocol.optimizer == "sgd" else {}
    optimizer = kind[protocol.optimizer](
        network.parameters(), weight_decay=protocol.weight_decay, **extra
    )
    x, y = torch.as_tensor(stack.dataset.x), torch.as_tensor(stack.dataset.y)
    order = BatchOrder(stack.seed, rows)
    total = protocol.epochs * -(-len(rows.train) // protocol.batch_size)
    taken = 0
    for _ in range(protocol.epochs):
        of_epoch = torch.as_tensor(np.array(order.next_epoch()))
        for batch in torch.split(of_epoch, protocol.batch_size):
            if taken == steps:
                return network
            network.objective.set_progress(taken, total)
            optimizer.param_groups[0]["lr"] = rate_at(protocol.lr, taken, total)
            optimizer.zero_grad()
            network.layers.train(len(batch) > 1)  # one row has no variance
            network.objective(network.features(x[batch]), y[batch]).backward()
            optimizer.step()
            taken += 1
    network.objective.set_progress(total, total)
    network.layers.eval()
    return network
