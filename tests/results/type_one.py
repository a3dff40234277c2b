"""How often the tests reject where there is nothing: two identical methods on random labels.

    python -m tests.results.type_one [REPETITIONS]

Each method is soft on five noise features of its own, with the same random labels, partitions,
initial weights and batch orders: 100 rows, 10x10 folds, 20 epochs at rate 0.01.
"""

import sys

import numpy as np
import torch

from marginctl.crossval.stack import build_stacks
from marginctl.crossval.stacked_trainer import train_stack
from marginctl.data.tabular.dataset import Column, TabularDataset
from marginctl.objectives.parsing import parse
from marginctl.recipe.uci_cv import Protocol
from marginctl.results.statistics import corrected_resampled_t


def rejected(repetitions: int) -> tuple[float, float]:
    """Shares of the repetitions that the corrected and the uncorrected test reject at 5 %."""
    protocol = Protocol(epochs=20, lr=0.01)
    corrected = plain = 0
    for repetition in range(repetitions):
        stream = np.random.default_rng([0, repetition])
        y = stream.integers(0, 2, 100)
        accuracies = []
        for _ in range(2):
            x = stream.normal(size=(100, 5))
            data = TabularDataset("noise", x, y, ("0", "1"), tuple(map(Column, "abcde")))
            (stack,) = build_stacks(data, parse("soft"), protocol, seed=repetition)
            result, _ = train_stack(stack)
            accuracies.append(result.correct / result.tested)
        differences = accuracies[0] - accuracies[1]
        corrected += (corrected_resampled_t(differences, 10 / 90).p or 1) < 0.05
        plain += (corrected_resampled_t(differences, 0.0).p or 1) < 0.05
    return corrected / repetitions, plain / repetitions


if __name__ == "__main__":
    torch.set_num_threads(1)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print("repetitions {}: corrected {:.1%}, uncorrected {:.1%}".format(count, *rejected(count)))
