"""Formulas that the papers derive for their methods. No torch here."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginctl.objectives.parts import ObjectiveSpec


def arcgrad_scale(gap: float, num_classes: int) -> float:
    """Return the scale with the largest gradient at a gap: (W((C - 1)/e) + 1) / gap.

    ArcGrad, eq. 19: the s that maximizes s (C - 1)/(e^(s gap) + C - 1), the slope of
    ln(1 + (C - 1) e^(-s gap)).
    (Eq. 17 as printed lacks the factor s and has a sign slip.)

    Args:
        gap: between the angles to the target class and to the others, in radians.
    """
    from scipy.special import lambertw  # a tenth of a second that training does not need

    return float(lambertw((num_classes - 1) / math.e).real + 1) / gap


def arcgrad_gap(scale: float, num_classes: int) -> float:
    """Return the gap in radians where a scale has the largest gradient: inverts `arcgrad_scale`."""
    return arcgrad_scale(scale, num_classes)  # scale x gap depends on C alone


def sparse_scale(
    similarity: float, num_classes: int, prominent: int = 1, rest: float = 0.1
) -> float:
    """Return the scale that makes softmax sparse (Temperature, supplement, eq. 29).

    kappa = [ln((1 - rest)/rest) + ln((C - prominent)/prominent)] / similarity leaves a probability
    of `rest` to all classes but the prominent ones, whose cosine is `similarity` (the others': 0).

    Args:
        similarity: epsilon, the prominent cosine, above 0.
        prominent: m, from 1 to C - 1.
        rest: eta, between 0 and 1.
    """
    odds = math.log((1 - rest) / rest) + math.log((num_classes - prominent) / prominent)
    return odds / similarity


def least_squares_coefficients(feature: ArrayLike, weights: ArrayLike) -> NDArray[np.float64]:
    """Return the (C,) coefficients of class weights that best rebuild a feature.

    Temperature, supplement, eq. 25: the alpha of the simplex with the least |x - sum_c alpha_c w_c|
    for a feature x (d,) and weights w (C, d) of length 1. With u >= 0 that minimizes
    |sum_c u_c (w_c - x)|^2 + (sum_c u_c - 1)^2, alpha is u / sum_c u_c.
    """
    from scipy.optimize import nnls  # a tenth of a second that training does not need

    x, w = np.asarray(feature, np.float64), np.asarray(weights, np.float64)
    x, w = x / np.linalg.norm(x), w / np.linalg.norm(w, axis=1, keepdims=True)
    system = np.vstack([(w - x).T, np.ones(len(w))])
    u, _ = nnls(system, np.append(np.zeros(len(x)), 1.0))
    return np.asarray(u / u.sum())


def adacos_scale(num_classes: int) -> float:
    """Return AdaCos's fixed scale sqrt(2) ln(C - 1), 0 for two classes (ArcGrad, eq. 10, l = 0)."""
    return math.sqrt(2) * math.log(num_classes - 1)


def gradient_decay_slope(probability: ArrayLike, beta: float) -> NDArray[np.float64]:
    """Return g(p) = (1 - p)/(1 - (1 - beta) p), the size of the target logit's gradient.

    Gradient decay. Concave in p for beta < 1, straight for 1, convex above; 1/2 at 1/(1 + beta).

    Args:
        probability: of the target by plain softmax, from 0 to 1; any shape.
        beta: above 0.
    """
    p = np.asarray(probability, np.float64)
    return np.asarray((1 - p) / (1 - (1 - beta) * p))


def bias(logits: ArrayLike, targets: ArrayLike) -> NDArray[np.float64]:
    """Return rho of each sample: ln sum_{c != y} exp(f_c - max_{c != y} f_c) (Large Margin, eq. 7).

    Softmax cross-entropy is softplus(max_{c != y} f_c - f_y + rho): rho is its implicit margin,
    from 0, where one other class dominates, to ln(C - 1), where all others are equal.

    Args:
        logits: (N, C), C at least 2.
        targets: (N,), from 0 to C - 1.
    """
    f, y = np.array(logits, np.float64), np.asarray(targets)
    f[np.arange(len(f)), y] = -np.inf
    return np.asarray(np.log(np.exp(f - f.max(axis=1, keepdims=True)).sum(axis=1)))


def remarks(spec: ObjectiveSpec, c: int) -> list[str]:
    """Return remarks from the papers' theory on an objective with C = `c` classes, at least 2."""
    lines = []
    kind, scale, margin = spec.similarity.kind, spec.scale, spec.margin
    fixed = dict(scale.options).get("value")
    if kind == "angle" and isinstance(fixed, float) and 1e-3 <= fixed <= 1e6:
        gap, narrow = math.degrees(arcgrad_gap(fixed, c)), arcgrad_scale(math.radians(10), c)
        lines.append(
            f"ArcGrad's eq. 19: scale {fixed:g} has its largest gradient at a gap of {gap:.2f} "
            f"degrees; for a gap of 10 degrees use scale {narrow:.1f}"
        )
    if scale.kind in ("adacos", "adacos-fixed"):
        which = "first" if scale.kind == "adacos" else "fixed"
        lines.append(f"{which} scale: sqrt(2) ln(C - 1) = {adacos_scale(c):.3f}")
    softmax = spec.loss.kind == "cross-entropy"
    if softmax and kind == "cosine" and "norm" not in scale.kind and c > 2:
        early, late = sparse_scale(0.1, c), sparse_scale(0.7, c)
        lines.append(
            f"Temperature's eq. 29: a scale of {early:.1f} gives nine tenths of the softmax to the "
            f"one class with cosine 0.1 (the others at 0), {late:.1f} to one with cosine 0.7"
        )
    value = dict(margin.options).get("margin")
    linear, additive = softmax and kind == "linear", margin.kind == "additive-logit"
    if linear and additive and isinstance(value, float) and abs(value) <= 100:
        beta = math.exp(-value)
        slopes = ", ".join(f"{g:.3f}" for g in gradient_decay_slope([0.1, 0.5, 0.9], beta))
        lines.append(
            f"gradient decay with beta = exp(-margin) = {beta:.4g}: g(p) at p = 0.1, 0.5, 0.9 is "
            f"{slopes}; 1/2 at p = {1 / (1 + beta):.3f}"
        )
    if linear:
        lines.append(
            "Large Margin's eq. 7: the bias rho of the softmax is at most ln(C - 1) = "
            f"{math.log(c - 1):.3f}, where the other logits are equal"
        )
    return lines
