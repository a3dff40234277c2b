"""Vector and matrix scaling: softmax(w * f + b) and softmax(W f + b) (Guo et al. 2017, Sec. 4.2).

Both start from temperature scaling's optimum, so that neither has a worse NLL on the fitting
samples. The logits are not centred: a constant added to a row, which the softmax ignores, changes
the fit.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from marginctl.calibration import temperature
from marginctl.calibration.outputs import Fit, Labels, Outputs, Predictions, from_logits
from marginctl.metrics.arrays import FloatArray, row_blocks

# Of matrix scaling: ODIR (Kull et al. 2019, Sec. 3.4) adds lambda mean_{i != j} W_ij^2 +
# mu mean_j b_j^2 to the mean NLL. Our choice: lambda = mu, and W in units of the logits' spread, so
# that the same logits times 10 give the same probabilities.
REGULARIZATION = 0.1

ITERATIONS = 1000
GRADIENT_TOLERANCE = 1e-5  # the largest entry of the gradient at an optimum

Objective = Callable[[FloatArray], tuple[float, FloatArray]]


def fit(outputs: Outputs, *, matrix: bool) -> Fit:
    """Return w and b, each (C,), with the least mean NLL; or W (C, C) and b, with NLL plus ODIR.

    The solver is L-BFGS. It has converged if the largest entry of the gradient is at most
    `GRADIENT_TOLERANCE`. The iterate with the least NLL is returned whether or not the solver
    succeeds.

    Args:
        matrix: whether W is fitted, and not w.
    """
    f, y, c = outputs.logits(), outputs.labels, outputs.num_classes
    first, unit = temperature.fit(outputs), temperature.logit_spread(f) or 1.0
    start = np.zeros((c + 1 if matrix else 2, c))  # the rows of the weight, and the bias
    start[:-1] = (np.eye(c) if matrix else 1) * unit / first.parameters["temperature"]
    penalty = np.zeros_like(start)
    if matrix:
        penalty[:-1] = REGULARIZATION / (c * (c - 1)) * (1 - np.eye(c))
        penalty[-1] = REGULARIZATION / c

    def mean_nll(x: FloatArray) -> tuple[float, FloatArray]:
        *weight, bias = x.reshape(start.shape)
        w = np.array(weight) if matrix else weight[0]
        nll, gradient = 0.0, np.zeros_like(start)
        for rows in row_blocks(*f.shape):
            part = f[rows].astype(np.float64) / unit
            added, residual = _nll((part @ w.T if matrix else part * w) + bias, y[rows])
            nll += added
            gradient[:-1] += residual.T @ part if matrix else (residual * part).sum(axis=0)
            gradient[-1] += residual.sum(axis=0)
        return nll / len(y), gradient.ravel() / len(y)

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = mean_nll(x)
        return value + float(penalty.ravel() @ x**2), gradient + 2 * penalty.ravel() * x

    best = _minimize(objective, start.ravel())
    *weight, bias = best.x.reshape(start.shape)
    w = np.array(weight) if matrix else weight[0]
    parameters: dict[str, Any] = {"weight": (w / unit).tolist(), "bias": bias.tolist()}
    parameters |= {"regularization": REGULARIZATION} if matrix else {}
    converged, note = best.gradient <= GRADIENT_TOLERANCE, None
    if not converged:
        note = f"the gradient is {best.gradient:.2g} after {best.iterations} steps"
    if first.note == temperature.AT_LOWER:  # then the gradient is small because the NLL is
        converged, note = False, first.note
    details = {"nll_before": first.details["nll_before"], "nll": mean_nll(best.x)[0]}
    details |= {"gradient_norm": best.gradient, "iterations": best.iterations}
    return Fit(parameters, converged, note, details)


def apply(parameters: Mapping[str, Any], outputs: Outputs) -> Predictions:
    """Return softmax(w * f + b) or softmax(W f + b), which may predict other classes."""
    weight, bias, f = np.array(parameters["weight"]), parameters["bias"], outputs.logits()
    return from_logits((f @ weight.T if weight.ndim == 2 else f * weight) + np.array(bias))


class _BestPoint:
    """An objective that keeps the best point, its value, and the largest entry of its gradient."""

    def __init__(self, objective: Objective, start: FloatArray) -> None:
        self.objective, self.x = objective, start
        self.value = self.gradient = math.inf
        self.iterations = 0

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = self.objective(x)
        largest = float(np.abs(gradient).max())
        # false for values that are not finite
        if value < self.value or (value == self.value and largest < self.gradient):
            self.x, self.value, self.gradient = x.copy(), value, largest
        return value, gradient


def _minimize(objective: Objective, start: FloatArray) -> _BestPoint:
    """Return the best point that L-BFGS evaluates."""
    best = _BestPoint(objective, start)
    gtol = GRADIENT_TOLERANCE / 10
    options = {"maxiter": ITERATIONS, "maxfun": 2 * ITERATIONS, "gtol": gtol, "ftol": 0}
    with np.errstate(over="ignore"):
        result = minimize(best, start, jac=True, method="L-BFGS-B", options=options)
    best.iterations = int(result.nit)
    return best


def _nll(z: FloatArray, y: Labels) -> tuple[float, NDArray[Any]]:
    """Return the total NLL of (n, C) logits, and its gradient to them, softmax - one-hot."""
    index = np.arange(len(z))
    z = z - z.max(axis=1, keepdims=True)
    target = z[index, y]
    p = np.exp(z)
    sums = p.sum(axis=1, keepdims=True)
    p /= sums
    p[index, y] -= 1
    return float((np.log(sums[:, 0]) - target).sum()), p
