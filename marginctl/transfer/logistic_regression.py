"""Multinomial logistic regression on features: a linear probe, to its optimum."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marginctl.metrics.arrays import FloatArray
from marginctl.transfer.lbfgs import Memory, minimize

ITERATIONS = 5000


@dataclass(frozen=True)
class FittedProbe:
    """A probe, and how well its optimum is known.

    Attributes:
        strength: of the penalty.
        weight, bias: (C, d) and (C,), float64, of the features as they were given.
        loss: the mean cross-entropy with the penalty.
        gradient: the largest absolute entry of the loss's gradient, computed in float64.
        converged: whether that is no larger than the tolerance.
        iterations, evaluations: of L-BFGS, float32 and float64 together.
    """

    strength: float
    weight: FloatArray
    bias: FloatArray
    loss: float
    gradient: float
    converged: bool
    iterations: int
    evaluations: int

    def logits(self, x: NDArray[Any]) -> FloatArray:
        """(n, C) of features (n, d)."""
        found: FloatArray = np.asarray(x, np.float64) @ self.weight.T + self.bias
        return found


class ProbeProblem:
    """min over W, b of mean_i CE(W x_i + b, y_i) + (strength / 2) ||W||^2.

    The penalty is that of scikit-learn's C = 1 / (n strength); b has none. For two classes
    scikit-learn has one row of weights, whose penalty is this one's at twice the strength.

    Features are turned to their principal axes, once for all strengths, which changes neither the
    penalty nor the optimum. There the curvature is nearly diagonal: L-BFGS measures each
    coordinate by the root of its own, and takes several times fewer steps. Of n features there are
    n axes at most: with few images a problem is small, however long its features are.

    Args:
        x: (n, d) features.
        y: (n,) classes, 0 .. classes - 1.
        classes: C.
        check: called before every evaluation; what it raises ends the work.
    """

    def __init__(
        self,
        x: NDArray[Any],
        y: NDArray[np.int64],
        classes: int,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        own = torch.as_tensor(np.asarray(x, np.float64))
        self._check = check
        self._y, self._classes = torch.as_tensor(y), classes
        self._mean = own.mean(0)
        own = own - self._mean
        if len(own) < own.shape[1]:
            u, s, axes = torch.linalg.svd(own, full_matrices=False)
            self._axes, self._z = axes.T, u * s
        else:
            self._axes = torch.linalg.eigh(own.T @ own)[1]
            self._z = own @ self._axes
        self._rough = self._z.float()
        # with what a mean that is not 0 adds to an entry
        self._reach = len(self._axes) ** 0.5 * (1 + float(self._mean.abs().max()))
        self._evaluations = 0

    def path(self, strengths: Sequence[float], tolerance: float) -> list[FittedProbe]:
        """A probe for each strength, in the order given, each beginning where the last one ended.

        From strong to weak: the optimum of a strong penalty is near 0 and soon found, and that of
        the next one is near it.

        Args:
            strengths: above 0.
            tolerance: on the largest absolute entry of the gradient.
        """
        found: list[FittedProbe] = []
        memory, starts = Memory(), [self._nothing()]
        for strength in strengths:
            if found:
                memory.stiffened(self._penalty(strength - found[-1].strength))
            # where the last two point to may be nearer than the last one is
            start = min(starts, key=lambda at: self._loss(strength, at, False)[0])
            fitted, at = self._solved(strength, tolerance, start, memory)
            starts = [at, 2 * at - starts[0]] if found else [at]
            found.append(fitted)
        return found

    def fit(
        self, strength: float, tolerance: float, near: FittedProbe | None = None
    ) -> FittedProbe:
        """One probe.

        Args:
            strength, tolerance: as `path` takes them.
            near: a probe on features like these, to begin at; None for weights of 0.
        """
        start = self._nothing() if near is None else self._of(near)
        return self._solved(strength, tolerance, start, Memory())[0]

    def _solved(
        self, strength: float, tolerance: float, start: FloatArray, memory: Memory
    ) -> tuple[FittedProbe, FloatArray]:
        """The probe, and where it is along the axes."""
        before = self._evaluations
        end, iterations = minimize(
            functools.partial(self._loss, strength),
            start,
            inverse=1 / self._curvature(start, strength),
            memory=memory,
            largest=functools.partial(self._largest, far=tolerance),
            tolerance=tolerance,
            iterations=ITERATIONS,
        )
        gradient = self._largest(end.gradient)
        along, bias = self._parts(torch.as_tensor(end.x))
        weight = along @ self._axes.T
        fitted = FittedProbe(
            *(strength, weight.numpy(), (bias - weight @ self._mean).numpy(), end.value),
            *(gradient, gradient <= tolerance, iterations, self._evaluations - before),
        )
        return fitted, end.x

    def _of(self, fitted: FittedProbe) -> FloatArray:
        weight, bias = torch.as_tensor(fitted.weight), torch.as_tensor(fitted.bias)
        parts = ((weight @ self._axes).reshape(-1), bias + weight @ self._mean)
        found: FloatArray = torch.cat(parts).numpy()
        return found

    def _nothing(self) -> FloatArray:
        """W = 0, and the bias that gives each class its share of the images."""
        counts = np.bincount(self._y.numpy(), minlength=self._classes) + 0.5
        at = np.zeros(self._classes * (self._z.shape[1] + 1))
        at[-self._classes :] = np.log(counts / counts.sum())
        return at

    def _penalty(self, strength: float) -> FloatArray:
        """The diagonal of the penalty's curvature."""
        of_weight = np.full(self._classes * self._z.shape[1], strength)
        return np.concatenate([of_weight, np.zeros(self._classes)])

    def _parts(self, at: Tensor) -> tuple[Tensor, Tensor]:
        return at[: -self._classes].view(self._classes, -1), at[-self._classes :]

    def _residuals(self, at: FloatArray, z: Tensor) -> tuple[float, Tensor]:
        """The mean cross-entropy, and (n, C) probabilities, in the arithmetic of z."""
        weight, bias = self._parts(torch.as_tensor(at).to(z.dtype))
        logs = torch.log_softmax(torch.addmm(bias, z, weight.T), 1)
        own = logs.gather(1, self._y[:, None]).double().mean()
        return -float(own), logs.exp_()

    def _loss(self, strength: float, at: FloatArray, exact: bool) -> tuple[float, FloatArray]:
        self._check()
        self._evaluations += 1
        z = self._z if exact else self._rough
        value, p = self._residuals(at, z)
        p[torch.arange(len(p)), self._y] -= 1
        of_weight, of_bias = (p.T @ z).double() / len(z), p.mean(0, dtype=torch.float64)
        weight, _ = self._parts(torch.as_tensor(at))
        of_weight += strength * weight
        gradient: FloatArray = torch.cat([of_weight.reshape(-1), of_bias]).numpy()
        return value + strength / 2 * float((weight**2).sum()), gradient

    def _curvature(self, at: FloatArray, strength: float) -> FloatArray:
        """The diagonal of the curvature at a point."""
        _, p = self._residuals(at, self._rough)
        p *= 1 - p
        of_weight = (p.T @ self._rough**2).double() / len(p) + strength
        of_bias = p.mean(0, dtype=torch.float64) + 1e-6  # a class without images has none
        found: FloatArray = torch.cat([of_weight.reshape(-1), of_bias]).numpy()
        return found

    def _largest(self, gradient: FloatArray, far: float = math.inf) -> float:
        """The largest entry of the gradient to the weights of the features as they were given.

        Along the axes an entry is at most the root of d times it: of one that is larger than that
        many times `far`, it is enough to know so.
        """
        of_weight, of_bias = self._parts(torch.as_tensor(gradient))
        if float(of_weight.abs().max()) > self._reach * far:
            return math.inf
        of_features = of_weight @ self._axes.T + torch.outer(of_bias, self._mean)
        return float(max(of_features.abs().max(), of_bias.abs().max()))
