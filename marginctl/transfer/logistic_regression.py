"""Multinomial logistic regression on features, solved to its optimum: a linear probe."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve
from torch import Tensor

from marginctl.metrics.arrays import FloatArray, IntArray
from marginctl.transfer.lbfgs import CurvatureMemory, minimize

MAX_ITERATIONS = 5000
# Weak penalties leave directions of little curvature, which take thousands of L-BFGS iterations
# (arcface features of digits: 5,000 were too few) and a few Newton steps. Which problems take them,
# and after how many iterations, is our choice.
NEWTON_SIZE, NEWTON_STEPS, BEFORE_NEWTON = 2000, 50, 200
WEAK_PENALTY = 1e-3  # our choice


def gradient_limit(l2_penalty: float, tolerance: float) -> float:
    """Return the largest entry of the gradient at which a probe has converged.

    The distance to the optimum is at most the gradient over the penalty, so a weak penalty needs a
    smaller gradient: 1e-6 at a penalty of 1e-6 leaves the weights 2 % away (digits).
    """
    return tolerance * min(1.0, l2_penalty / WEAK_PENALTY)


@dataclass(frozen=True)
class FittedProbe:
    """A fitted probe, with the accuracy of its optimum."""

    l2_penalty: float
    # (C, d) and (C,) in float64, for features in their original coordinates
    weight: FloatArray
    bias: FloatArray
    loss: float  # mean cross-entropy plus penalty
    gradient: float  # largest absolute entry of the loss's gradient, computed in float64
    converged: bool
    # of L-BFGS, in float32 and float64, and of Newton's method
    iterations: int
    evaluations: int

    def logits(self, x: NDArray[Any]) -> FloatArray:
        """Return (n, C) logits of features (n, d)."""
        return np.asarray(np.asarray(x, np.float64) @ self.weight.T + self.bias)


class ProbeProblem:
    """min over W, b of mean_i CE(W x_i + b, y_i) + (l2_penalty / 2) ||W||^2.

    The penalty is that of scikit-learn's C = 1 / (n l2_penalty); the bias has none. For two classes
    scikit-learn has one row of weights, whose penalty is this one's at twice the l2_penalty.

    Features are rotated to their principal axes, once for all penalties, which changes neither the
    penalty nor the optimum. There the Hessian is nearly diagonal: L-BFGS scales each coordinate by
    it and takes several times fewer steps. n features have n axes at most: with few images the
    problem is small, however long the features are.

    Args:
        y: (n,) classes, 0 .. num_classes - 1.
        check: called before every evaluation; an exception stops the work.
    """

    def __init__(
        self,
        x: NDArray[Any],
        y: IntArray,
        num_classes: int,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        features = torch.as_tensor(np.asarray(x, np.float64))
        self._check = check
        self._y, self._num_classes = torch.as_tensor(y), num_classes
        self._mean = features.mean(0)
        features = features - self._mean
        if len(features) < features.shape[1]:
            u, s, axes = torch.linalg.svd(features, full_matrices=False)
            self._axes, self._z = axes.T, u * s
        else:
            self._axes = torch.linalg.eigh(features.T @ features)[1]
            self._z = features @ self._axes
        self._z32 = self._z.float()
        # an entry along an axis is at most this factor times the largest entry for the features,
        # with what a mean other than 0 adds to it
        self._axis_factor = len(self._axes) ** 0.5 * (1 + float(self._mean.abs().max()))
        self._evaluations = 0

    def path(self, l2_penalties: Sequence[float], tolerance: float) -> list[FittedProbe]:
        """Return a probe for each penalty, in the given order, each warm-started.

        Order them from strong to weak: the optimum of a strong penalty is near 0 and quickly found,
        and that of the next one is near it.
        """
        probes: list[FittedProbe] = []
        memory, candidates = CurvatureMemory(), [self._constant_start()]
        for penalty in l2_penalties:
            if probes:
                memory.add_diagonal(self._penalty_diagonal(penalty - probes[-1].l2_penalty))
            # the extrapolation of the last two optima may be nearer than the last one
            start = min(candidates, key=lambda point: self._loss(penalty, point, False)[0])
            probe, point = self._solve(penalty, tolerance, start, memory)
            candidates = [point, 2 * point - candidates[0]] if probes else [point]
            probes.append(probe)
        return probes

    def fit(
        self, l2_penalty: float, tolerance: float, initial: FittedProbe | None = None
    ) -> FittedProbe:
        start = self._constant_start() if initial is None else self._coordinates(initial)
        return self._solve(l2_penalty, tolerance, start, CurvatureMemory())[0]

    def _solve(
        self, l2_penalty: float, tolerance: float, start: FloatArray, memory: CurvatureMemory
    ) -> tuple[FittedProbe, FloatArray]:
        """Return the probe, and its coordinates along the axes."""
        evaluations, limit = self._evaluations, gradient_limit(l2_penalty, tolerance)
        end, iterations = minimize(
            functools.partial(self._loss, l2_penalty),
            start,
            inverse=1 / self._hessian_diagonal(start, l2_penalty),
            memory=memory,
            gradient_norm=functools.partial(self._max_gradient, limit=limit),
            tolerance=limit,
            max_iterations=BEFORE_NEWTON if len(start) <= NEWTON_SIZE else MAX_ITERATIONS,
        )
        point = end.x.copy()
        if len(point) <= NEWTON_SIZE:
            point, steps = self._newton(l2_penalty, point, limit)
            iterations += steps
        rotated, bias = self._split(torch.as_tensor(point))
        rotated -= rotated.mean(0)  # the penalty is least there, and no probability changes
        loss, point_gradient = self._loss(l2_penalty, point, True)
        gradient = self._max_gradient(point_gradient)
        weight = rotated @ self._axes.T
        probe = FittedProbe(
            l2_penalty=l2_penalty,
            weight=weight.numpy(),
            bias=(bias - weight @ self._mean).numpy(),
            loss=loss,
            gradient=gradient,
            converged=gradient <= limit,
            iterations=iterations,
            evaluations=self._evaluations - evaluations,
        )
        return probe, point

    def _newton(self, l2_penalty: float, point: FloatArray, limit: float) -> tuple[FloatArray, int]:
        """Return the point after Newton steps to a gradient below the limit, and their number."""
        value, gradient = self._loss(l2_penalty, point, True)
        for steps in range(NEWTON_STEPS):
            if self._max_gradient(gradient) <= limit:
                return point, steps
            step = -solve(self._hessian(l2_penalty, point), gradient, assume_a="sym")
            slope, length = float(gradient @ step), 1.0
            following = self._loss(l2_penalty, point + step, True)
            while following[0] > value + 1e-4 * length * slope + 1e-14 * value:
                length /= 2
                if length < 1e-6:  # rounding leaves no way down
                    return point, steps
                following = self._loss(l2_penalty, point + length * step, True)
            point = point + length * step
            value, gradient = following
        return point, NEWTON_STEPS

    def _hessian(self, l2_penalty: float, point: FloatArray) -> FloatArray:
        """Return the Hessian of the loss; biases that all change alike have curvature 1."""
        _, p = self._cross_entropy(point, self._z)
        n, classes = p.shape
        z = torch.cat([self._z, torch.ones(n, 1, dtype=torch.float64)], 1)
        size = z.shape[1]
        hessian = torch.empty(classes, size, classes, size, dtype=torch.float64)
        for c in range(classes):
            for other in range(classes):
                curvature = p[:, c] * (float(c == other) - p[:, other]) / n
                hessian[c, :, other] = z.T @ (curvature[:, None] * z)
        index = torch.arange(classes * size).view(classes, size)
        order = torch.cat([index[:, :-1].reshape(-1), index[:, -1]])  # weights, then biases
        matrix = hessian.view(classes * size, -1)[order][:, order].numpy()
        matrix[-classes:, -classes:] += 1 / classes
        return np.asarray(matrix + np.diag(self._penalty_diagonal(l2_penalty)))

    def _coordinates(self, probe: FittedProbe) -> FloatArray:
        weight, bias = torch.as_tensor(probe.weight), torch.as_tensor(probe.bias)
        parts = ((weight @ self._axes).reshape(-1), bias + weight @ self._mean)
        return np.asarray(torch.cat(parts).numpy())

    def _constant_start(self) -> FloatArray:
        """Return W = 0 with the bias that gives each class its fraction of the images."""
        counts = np.bincount(self._y.numpy(), minlength=self._num_classes) + 0.5
        point = np.zeros(self._num_classes * (self._z.shape[1] + 1))
        point[-self._num_classes :] = np.log(counts / counts.sum())
        return point

    def _penalty_diagonal(self, l2_penalty: float) -> FloatArray:
        weight = np.full(self._num_classes * self._z.shape[1], l2_penalty)
        return np.concatenate([weight, np.zeros(self._num_classes)])

    def _split(self, point: Tensor) -> tuple[Tensor, Tensor]:
        weight, bias = point[: -self._num_classes], point[-self._num_classes :]
        return weight.view(self._num_classes, -1), bias

    def _cross_entropy(self, point: FloatArray, z: Tensor) -> tuple[float, Tensor]:
        """Return the mean cross-entropy and (n, C) probabilities, in the precision of z."""
        weight, bias = self._split(torch.as_tensor(point).to(z.dtype))
        log_probabilities = torch.log_softmax(torch.addmm(bias, z, weight.T), 1)
        target = log_probabilities.gather(1, self._y[:, None]).double().mean()
        return -float(target), log_probabilities.exp_()

    def _loss(self, l2_penalty: float, point: FloatArray, exact: bool) -> tuple[float, FloatArray]:
        """Return the loss and its gradient at a point, in float64 if exact."""
        self._check()
        self._evaluations += 1
        z = self._z if exact else self._z32
        value, p = self._cross_entropy(point, z)
        p[torch.arange(len(p)), self._y] -= 1
        weight_gradient = (p.T @ z).double() / len(z)
        bias_gradient = p.mean(0, dtype=torch.float64)
        weight, _ = self._split(torch.as_tensor(point))
        weight_gradient += l2_penalty * weight
        gradient = torch.cat([weight_gradient.reshape(-1), bias_gradient]).numpy()
        return value + l2_penalty / 2 * float((weight**2).sum()), np.asarray(gradient)

    def _hessian_diagonal(self, point: FloatArray, l2_penalty: float) -> FloatArray:
        _, p = self._cross_entropy(point, self._z32)
        p *= 1 - p
        weight = (p.T @ self._z32**2).double() / len(p) + l2_penalty
        bias = p.mean(0, dtype=torch.float64) + 1e-6  # that of a class without images is 0
        return np.asarray(torch.cat([weight.reshape(-1), bias]).numpy())

    def _max_gradient(self, gradient: FloatArray, limit: float = math.inf) -> float:
        """Return the largest entry of the gradient for features in their original coordinates.

        The result is infinity where the gradient along the axes proves that it exceeds `limit`.
        """
        rotated, bias = self._split(torch.as_tensor(gradient))
        if float(rotated.abs().max()) > self._axis_factor * limit:
            return math.inf
        weight = rotated @ self._axes.T + torch.outer(bias, self._mean)
        return float(max(weight.abs().max(), bias.abs().max()))
