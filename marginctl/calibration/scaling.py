"""Vector and matrix scaling: softmax(w * f + b) and softmax(W f + b) (Guo et al. 2017, Sec. 4.2).

Both start from temperature scaling's optimum, so that neither has a worse NLL on what it was
fitted on. The logits are taken as they are: a constant that is added to a row, which a softmax
does not see, changes the fit.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from marginctl.calibration import temperature
from marginctl.calibration.fit import Fit
from marginctl.calibration.outputs import Labels, Outputs, Predicted, from_logits
from marginctl.metrics.arrays import FloatArray, row_blocks

# Of matrix scaling alone, and a choice of ours: ODIR (Kull et al. 2019, Sec. 3.4) adds
# lambda mean_{i != j} W_ij^2 + mu mean_j b_j^2 to the mean NLL. W is in units of the logits' spread
# here, so that the same logits times 10 give the same probabilities. lambda = mu:
REGULARIZATION = 0.1

ITERATIONS = 1000
GRADIENT = 1e-5  # the largest entry of the gradient at an optimum

Objective = Callable[[FloatArray], tuple[float, FloatArray]]


def fit_vector(outputs: Outputs) -> Fit:
    """w and b, each (C,), with the least mean NLL, by L-BFGS.

    Fit.converged is whether the largest entry of the gradient is below `GRADIENT`; the iterate with
    the least NLL is kept whether the solver ends well or not.
    """
    f, y = outputs.logits(), outputs.labels
    first, unit = temperature.fit(outputs), temperature.spread_of(f) or 1.0
    c = outputs.classes

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        nll, gradient = 0.0, np.zeros((2, c))
        for rows in row_blocks(*f.shape):
            part = f[rows].astype(np.float64) / unit
            added, residual = _nll(part * x[:c] + x[c:], y[rows])
            nll += added
            gradient += (residual * part).sum(axis=0), residual.sum(axis=0)
        return nll / len(y), gradient.ravel() / len(y)

    start = np.concatenate([np.full(c, unit / first.parameters["temperature"]), np.zeros(c)])
    best = _minimized(objective, start)
    parameters = {"weight": (best.x[:c] / unit).tolist(), "bias": best.x[c:].tolist()}
    return _fit(parameters, best, first, best.value)


def fit_matrix(outputs: Outputs) -> Fit:
    """W (C, C) and b (C,) with the least mean NLL plus ODIR of `REGULARIZATION`, by L-BFGS.

    As `fit_vector`; the gradient is that of the regularised objective.
    """
    f, y = outputs.logits(), outputs.labels
    first, unit = temperature.fit(outputs), temperature.spread_of(f) or 1.0
    c = outputs.classes
    off = REGULARIZATION / (c * (c - 1)) * (1 - np.eye(c))

    def nll_of(x: FloatArray) -> tuple[float, FloatArray]:
        matrix, bias = x[: c * c].reshape(c, c), x[c * c :]
        nll, of_matrix, of_bias = 0.0, np.zeros((c, c)), np.zeros(c)
        for rows in row_blocks(*f.shape):
            part = f[rows].astype(np.float64) / unit
            added, residual = _nll(part @ matrix.T + bias, y[rows])
            nll += added
            of_matrix += residual.T @ part
            of_bias += residual.sum(axis=0)
        return nll / len(y), np.concatenate([of_matrix.ravel(), of_bias]) / len(y)

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        matrix, bias = x[: c * c].reshape(c, c), x[c * c :]
        value, gradient = nll_of(x)
        value += float((off * matrix**2).sum() + REGULARIZATION * (bias**2).mean())
        gradient += np.concatenate([(2 * off * matrix).ravel(), 2 * REGULARIZATION / c * bias])
        return value, gradient

    start = np.zeros(c * c + c)
    start[: c * c : c + 1] = unit / first.parameters["temperature"]
    best = _minimized(objective, start)
    parameters = {
        "weight": (best.x[: c * c].reshape(c, c) / unit).tolist(),
        "bias": best.x[c * c :].tolist(),
        "regularization": REGULARIZATION,
    }
    return _fit(parameters, best, first, nll_of(best.x)[0])


def apply_vector(parameters: Mapping[str, Any], outputs: Outputs) -> Predicted:
    """softmax(w * f + b), which may predict other classes."""
    weight, bias = np.array(parameters["weight"]), np.array(parameters["bias"])
    return from_logits(outputs.logits() * weight + bias)


def apply_matrix(parameters: Mapping[str, Any], outputs: Outputs) -> Predicted:
    """softmax(W f + b), which may predict other classes."""
    weight, bias = np.array(parameters["weight"]), np.array(parameters["bias"])
    return from_logits(outputs.logits() @ weight.T + bias)


@dataclass(frozen=True)
class _Best:
    x: FloatArray
    value: float
    gradient: float  # its largest entry
    iterations: int


def _minimized(objective: Objective, start: FloatArray) -> _Best:
    """The best of all that L-BFGS looks at; what is not finite is never kept."""
    best, least = start, (math.inf, math.inf)

    def seen(x: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best, least
        value, gradient = objective(x)
        largest = float(np.abs(gradient).max())
        if value < least[0] or (value == least[0] and largest < least[1]):
            best, least = x.copy(), (value, largest)
        return value, gradient

    options = {"maxiter": ITERATIONS, "maxfun": 2 * ITERATIONS, "gtol": GRADIENT / 10, "ftol": 0}
    with np.errstate(over="ignore"):
        ended = minimize(seen, start, jac=True, method="L-BFGS-B", options=options)
    return _Best(best, least[0], least[1], int(ended.nit))


def _fit(parameters: Mapping[str, Any], best: _Best, first: Fit, nll: float) -> Fit:
    found = best.gradient <= GRADIENT
    note = None if found else f"the gradient is {best.gradient:.2g} after {best.iterations} steps"
    if first.note == temperature.AT_LOWER:  # then the gradient is small because the NLL is
        found, note = False, first.note
    return Fit(
        parameters,
        found,
        note,
        {
            "nll_before": first.details["nll_before"],
            "nll": nll,
            "gradient_norm": best.gradient,
            "iterations": best.iterations,
        },
    )


def _nll(z: FloatArray, y: Labels) -> tuple[float, NDArray[Any]]:
    """The sum of the NLL of (n, C) logits, and its gradient to them, softmax - one-hot."""
    each = np.arange(len(z))
    z = z - z.max(axis=1, keepdims=True)
    own = z[each, y]
    p = np.exp(z)
    sums = p.sum(axis=1, keepdims=True)
    p /= sums
    p[each, y] -= 1
    return float((np.log(sums[:, 0]) - own).sum()), p
