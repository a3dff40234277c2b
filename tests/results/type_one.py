"""How often methods are marked as different where they are not, and where they are.

    python -m tests.results.type_one [REPETITIONS]
    python -m tests.results.type_one REPETITIONS --tuned [--methods N] [--rows N] [--gap POINTS]

Each method is soft on noisy measurements of its own of the same random labels, with the same
partitions, initial weights and batch orders. Without tuning: five columns of noise, 100 rows, 10x10
folds, 20 epochs at rate 0.01. Tuned: every network of 5x2 stratified folds chooses among four
learning rates with a weight decay each by three inner folds; 5 epochs; the best rule is right for
80 % of the labels, that of the last method for `--gap` points more; the marks are those of the
table (corrected resampled t-test, Holm over the methods but the first).
"""

import argparse
import math

import numpy as np
import torch
from scipy.special import ndtri

from marginctl.crossval.nested_cv import train_and_choose
from marginctl.crossval.search_space import column_candidates
from marginctl.crossval.stack import StackTuning, build_stacks
from marginctl.crossval.stacked_trainer import train_stack
from marginctl.data.tabular.dataset import Column, TabularDataset
from marginctl.objectives.parsing import parse
from marginctl.recipe.uci_cv import Protocol, Tune
from marginctl.results.compare import compare_folds
from marginctl.results.cv_cells import Grid
from marginctl.results.statistics import corrected_resampled_t
from tests.results.factories import cv_result

COLUMNS = 5
ACCURACY = 80.0  # of the best rule, in percent
TUNED = Protocol(folds=5, repeats=2, epochs=5, batch_size=64, stratified=True, lr=0.01)
TUNE = Tune(rates=[0.003, 0.01, 0.03, 0.1], protocol={"weight_decay": [1e-4, 1e-2]})
METHODS = ("soft", "arcface", "arcgrad", "lm-softmax")  # names of columns; all are trained as soft


def rejected(repetitions: int) -> tuple[float, float]:
    """Shares of the repetitions that the corrected and the uncorrected test reject at 5 %."""
    protocol = Protocol(epochs=20, lr=0.01)
    corrected = plain = 0
    for repetition in range(repetitions):
        stream = np.random.default_rng([0, repetition])
        y = stream.integers(0, 2, 100)
        accuracies = []
        for _ in range(2):
            (stack,) = build_stacks(_data(stream, y), parse("soft"), protocol, seed=repetition)
            result, _ = train_stack(stack)
            accuracies.append(result.correct / result.tested)
        differences = accuracies[0] - accuracies[1]
        corrected += (corrected_resampled_t(differences, 10 / 90).p or 1) < 0.05
        plain += (corrected_resampled_t(differences, 0.0).p or 1) < 0.05
    return corrected / repetitions, plain / repetitions


def marked(
    repetitions: int, *, methods: int = 2, rows: int = 200, gap: float = 0.0
) -> tuple[float, float]:
    """Share of the repetitions with a mark, and the mean difference of the last from the first."""
    names = METHODS[:methods]
    candidates = column_candidates(TUNE, TUNED, parse("soft"))
    marks, differences = 0, []
    for repetition in range(repetitions):
        stream = np.random.default_rng([1, repetition])
        y = stream.integers(0, 2, rows)
        collector = Grid(["table"], names, seeds=1, published={})
        for name in names:
            best = ACCURACY + (gap if name == names[-1] else 0.0)
            data = _data(stream, y, best)
            (stack,) = build_stacks(
                data, parse("soft"), TUNED, repetition, StackTuning(candidates, 3)
            )
            result = train_and_choose(stack, "cpu", lambda cost: None).result
            shape = (TUNED.repeats, TUNED.folds)
            collector.add(
                cv_result(
                    "table",
                    name,
                    (100 * result.correct / result.tested).reshape(shape),
                    tested=result.tested.reshape(shape).tolist(),
                    rows=rows,
                    classes=2,
                    candidates=len(candidates),
                )
            )
        compared = compare_folds(collector, names[0])
        marks += any(comparison.direction for comparison in compared.cells.values())
        differences.append(compared.cells["table", names[-1]].difference)
    return marks / repetitions, float(np.mean(differences))


def _data(stream: np.random.Generator, y: np.ndarray, best: float | None = None) -> TabularDataset:
    """Columns of noise; `best`: shifted by class, so that the best rule has this accuracy."""
    x = stream.normal(size=(len(y), COLUMNS))
    if best is not None:
        x += (2 * y[:, None] - 1) * ndtri(best / 100) / math.sqrt(COLUMNS)
    return TabularDataset("noise", x, y, ("0", "1"), tuple(map(Column, "abcde")))


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("repetitions", type=int, nargs="?", default=1000)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--methods", type=int, default=2)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--gap", type=float, default=0.0)
    given = parser.parse_args()
    if given.tuned:
        share, difference = marked(
            given.repetitions, methods=given.methods, rows=given.rows, gap=given.gap
        )
        print(f"repetitions {given.repetitions}: marks in {share:.1%}, mean {difference:+.2f}")
    else:
        shares = rejected(given.repetitions)
        print(
            "repetitions {}: corrected {:.1%}, uncorrected {:.1%}".format(
                given.repetitions, *shares
            )
        )
