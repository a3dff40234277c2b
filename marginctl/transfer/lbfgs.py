"""L-BFGS for smooth convex functions that can be evaluated in float32 and in float64.

Why not scipy's: on the problem of `bench probe` (10,000 x 1280 features, 100 classes, gradient
1e-6, one thread, n = 5 interleaved) `scipy.optimize.minimize(method="L-BFGS-B")`, with the same
scaling, number of pairs and two precisions, takes 0.99 (0.98 to 1.03) times the CPU time for one
fit, but 1.59 (1.54 to 1.66) times for the sweep over eight penalties: it cannot be given the known
curvature, and starts each penalty from scratch.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from marginctl.metrics.arrays import FloatArray

MEMORY_SIZE = 20
DECREASE, CURVATURE = 1e-4, 0.9  # of the strong Wolfe conditions (Nocedal and Wright 2006, eq. 3.7)
MAX_LINE_SEARCH_STEPS = 30
# How much a value may rise by rounding, relative to itself: in float32 and, if exact, in float64.
ROUNDING = {False: 1e-6, True: 1e-14}

# not BLAS: for such short products its threads take longer to synchronize than to compute
_dot = partial(np.einsum, "i,i->")

Evaluate = Callable[[FloatArray, bool], tuple[float, FloatArray]]


@dataclass
class CurvatureMemory:
    """The curvature information of L-BFGS: steps s, changes y of the gradient, and s y."""

    pairs: deque[tuple[FloatArray, FloatArray, float]] = field(
        default_factory=lambda: deque(maxlen=MEMORY_SIZE)
    )

    def add_diagonal(self, diagonal: FloatArray) -> None:
        """Update the memory for the function plus (1/2) sum_j diagonal_j x_j^2."""
        old_pairs, self.pairs = self.pairs, deque(maxlen=MEMORY_SIZE)
        for s, y, _ in old_pairs:
            self.add(s, y + diagonal * s)

    def add(self, s: FloatArray, y: FloatArray) -> None:
        """Add a step and the change of the gradient, unless rounding dominates their product."""
        product = float(_dot(s, y))
        if product > 1e-8 * float(np.sqrt(_dot(s, s) * _dot(y, y))):
            self.pairs.append((s, y, product))

    def direction(self, gradient: FloatArray, inverse: FloatArray) -> FloatArray:
        """Return the search direction (Nocedal and Wright, algorithm 7.4)."""
        q, alphas = -gradient, []
        for s, y, product in reversed(self.pairs):
            alpha = _dot(s, q) / product
            q -= alpha * y
            alphas.append(alpha)
        if self.pairs:
            _, y, product = self.pairs[-1]
            q *= product / _dot(y, inverse * y)
        q *= inverse
        for (s, y, product), alpha in zip(self.pairs, reversed(alphas), strict=True):
            q += (alpha - _dot(y, q) / product) * s
        return q


@dataclass(frozen=True)
class Point:
    """A point with value and gradient; `exact` where these are computed in float64."""

    x: FloatArray
    value: float
    gradient: FloatArray
    exact: bool


def minimize(
    evaluate: Evaluate,
    start: FloatArray,
    *,
    inverse: FloatArray,
    memory: CurvatureMemory,
    gradient_norm: Callable[[FloatArray], float],
    tolerance: float,
    max_iterations: int,
) -> tuple[Point, int]:
    """Minimize until the gradient norm is at most `tolerance`, or no step decreases the value.

    It starts in float32, which is faster, and continues in float64 with the same memory when the
    gradient is small enough or rounding leaves no way down. The value never rises by more than
    rounding, so that the last point is the best.

    Args:
        evaluate: gives value and gradient (k,) at a point (k,), in float64 if exact.
        inverse: (k,), about the inverse of the Hessian's diagonal, above 0.

    Returns:
        The last point, exact, and the number of iterations.
    """

    def point_at(x: FloatArray, exact: bool) -> Point:
        return Point(x, *evaluate(x, exact), exact)

    def step(point: Point) -> Point | None:
        direction = memory.direction(point.gradient, inverse)
        return line_search(lambda x: point_at(x, point.exact), point, direction)

    point, iterations = point_at(start, False), 0
    while True:
        converged = gradient_norm(point.gradient) <= tolerance
        if point.exact and converged:
            return point, iterations
        following = None
        if iterations < max_iterations and not converged:
            iterations += 1
            following = step(point)
            if following is None and memory.pairs:  # the memory is of points too far away
                memory.pairs.clear()
                following = step(point)
        if following is not None:
            memory.add(following.x - point.x, following.gradient - point.gradient)
            point = following
        elif point.exact:
            return point, iterations
        else:
            point = point_at(point.x, True)


def line_search(
    point_at: Callable[[FloatArray], Point], start: Point, direction: FloatArray
) -> Point | None:
    """Return a point along a direction that meets the strong Wolfe conditions, None if none.

    Along a line the slope of a convex function only rises, so that its sign brackets the point.
    """
    slope = float(_dot(start.gradient, direction))
    if not slope < 0:
        return None
    rounding = ROUNDING[start.exact] * abs(start.value)
    low, low_slope, high, high_slope = 0.0, slope, np.inf, np.inf
    step = 1.0
    for _ in range(MAX_LINE_SEARCH_STEPS):
        point = point_at(start.x + step * direction)
        new_slope = float(_dot(point.gradient, direction))
        decreases = point.value <= start.value + DECREASE * step * slope + rounding
        if decreases and abs(new_slope) <= -CURVATURE * slope:
            return point
        if decreases and new_slope < 0:
            low, low_slope = step, new_slope
        else:
            high, high_slope = step, new_slope
        if not np.isfinite(high):
            step *= 4
            continue
        # where the slope would be 0 if it were linear between the two
        width = high - low
        fraction = low_slope / (low_slope - high_slope) if np.isfinite(high_slope) else 0.1
        fraction = fraction if high_slope > 0 else 0.5
        step = low + width * min(max(fraction, 0.1), 0.9)
    return None
