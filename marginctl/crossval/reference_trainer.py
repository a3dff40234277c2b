"""The reference trainer: one network at a time, with torch's modules, autograd and optimizer.

It trains the same networks as the stacked engine (partitions, initial weights, batch orders), so
the engine is checked and timed against it.
"""

import itertools

import numpy as np
import torch
from torch import Tensor, nn

from marginctl.crossval.preprocessing import class_weights, encode, scaling_statistics
from marginctl.crossval.stack import BatchOrder, NetworkSplit, Stack, initial_weights
from marginctl.objectives.module import Objective
from marginctl.objectives.schedules import rate_at


class ReferenceNetwork(nn.Module):
    """Linear and ReLU layers, then the objective's classifier."""

    def __init__(self, stack: Stack, split: NetworkSplit, dtype: torch.dtype) -> None:
        super().__init__()
        dataset, widths = stack.dataset, stack.widths
        shift, factor = scaling_statistics(
            encode(dataset, split.train)[split.train], stack.protocol.scaling
        )
        self.shift, self.factor = torch.as_tensor(shift), torch.as_tensor(factor)
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
        weights = None
        if stack.protocol.class_weights == "balanced":
            weights = torch.as_tensor(class_weights(dataset.y, split.train, dataset.num_classes))
        self.objective = Objective(stack.spec, dataset.num_classes, widths[-1], dtype, weights)
        initial = initial_weights(stack, split)
        with torch.no_grad():
            for i, layer in enumerate(self.linear_layers):
                layer.weight.copy_(torch.as_tensor(initial[f"weight{i}"].T))
                layer.bias.copy_(torch.as_tensor(initial[f"bias{i}"]))
            self.objective.weight.copy_(torch.as_tensor(initial["class_weight"]))
            if self.objective.bias is not None:
                self.objective.bias.copy_(torch.as_tensor(initial["class_bias"]))
        self.dtype = dtype

    @property
    def linear_layers(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    def features(self, x: Tensor) -> Tensor:
        """Return the features (N, width) of encoded, unscaled float64 rows (N, d)."""
        scaled = (x - self.shift) * self.factor
        features: Tensor = self.layers(scaled.to(self.dtype))
        return features


def train_network(
    stack: Stack, split: NetworkSplit, dtype: torch.dtype = torch.float32
) -> ReferenceNetwork:
    """Train one network of a stack by itself, for its protocol's epochs."""
    protocol = stack.variants[split.variant]
    network = ReferenceNetwork(stack, split, dtype)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    extra = {"momentum": protocol.momentum} if protocol.optimizer == "sgd" else {}
    optimizer = kind[protocol.optimizer](
        network.parameters(), weight_decay=protocol.weight_decay, **extra
    )
    x = torch.as_tensor(encode(stack.dataset, split.train))
    y = torch.as_tensor(stack.dataset.y)
    order = BatchOrder(stack.seed, split)
    total = protocol.epochs * -(-len(split.train) // protocol.batch_size)
    step = 0
    for _ in range(protocol.epochs):
        epoch_rows = torch.as_tensor(np.array(order.next_epoch()))
        for batch in torch.split(epoch_rows, protocol.batch_size):
            network.objective.set_progress(step, total)
            optimizer.param_groups[0]["lr"] = rate_at(protocol.lr, step, total)
            optimizer.zero_grad()
            network.layers.train(len(batch) > 1)  # one row has no variance
            network.objective(network.features(x[batch]), y[batch]).backward()
            optimizer.step()
            step += 1
    network.objective.set_progress(total, total)
    network.layers.eval()
    return network
