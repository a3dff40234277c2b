"""L-BFGS for smooth convex functions that can be had in a rough and in an exact arithmetic.

Why not scipy's: on the problem of `bench probe` (10,000 x 1280 features, 100 classes, gradient
1e-6, one thread, n = 5 interleaved) `scipy.optimize.minimize(method="L-BFGS-B")`, with the same
scaling, number of pairs and two arithmetics, takes 0.99 (0.98 to 1.03) times the CPU time of this
for one fit, but 1.59 (1.54 to 1.66) times for the sweep over eight strengths: it cannot be given
what is known of the curvature, and begins each strength anew.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from marginctl.metrics.arrays import FloatArray

PAIRS = 20
DECREASE, CURVATURE = 1e-4, 0.9  # of the strong Wolfe conditions (Nocedal and Wright 2006, eq. 3.7)
TRIALS = 30  # of a line search
# How far a value may rise by rounding alone, of itself.
ROUNDING = {False: 1e-6, True: 1e-14}

# Not BLAS's: for so short a product its threads wait for each other longer than they compute.
_dot = partial(np.einsum, "i,i->")

Evaluate = Callable[[FloatArray, bool], tuple[float, FloatArray]]


@dataclass
class Memory:
    """What L-BFGS knows of the curvature: steps s, how the gradient changed by y, and s y."""

    pairs: deque[tuple[FloatArray, FloatArray, float]] = field(
        default_factory=lambda: deque(maxlen=PAIRS)
    )

    def stiffened(self, by: FloatArray) -> None:
        """What it knows of the function with (1/2) sum_j by_j x_j^2 added to it."""
        known, self.pairs = self.pairs, deque(maxlen=PAIRS)
        for s, y, _ in known:
            self.add(s, y + by * s)

    def add(self, s: FloatArray, y: FloatArray) -> None:
        """A step and the change of the gradient; one that rounding has spoilt is left out."""
        product = float(_dot(s, y))
        if product > 1e-8 * float(np.sqrt(_dot(s, s) * _dot(y, y))):
            self.pairs.append((s, y, product))

    def direction(self, gradient: FloatArray, inverse: FloatArray) -> FloatArray:
        """Where to go (Nocedal and Wright, algorithm 7.4), from a diagonal inverse curvature."""
        q, shares = -gradient, []
        for s, y, product in reversed(self.pairs):
            share = _dot(s, q) / product
            q -= share * y
            shares.append(share)
        if self.pairs:
            _, y, product = self.pairs[-1]
            q *= product / _dot(y, inverse * y)
        q *= inverse
        for (s, y, product), share in zip(self.pairs, reversed(shares), strict=True):
            q += (share - _dot(y, q) / product) * s
        return q


@dataclass(frozen=True)
class Point:
    """A point, the value and the gradient there, and whether these are exact."""

    x: FloatArray
    value: float
    gradient: FloatArray
    exact: bool


def minimize(
    evaluate: Evaluate,
    start: FloatArray,
    *,
    inverse: FloatArray,
    memory: Memory,
    largest: Callable[[FloatArray], float],
    tolerance: float,
    iterations: int,
) -> tuple[Point, int]:
    """Minimises until no entry of the gradient is larger than `tolerance`, or it gets no further.

    It begins in the rough arithmetic, which is faster, and goes on in the exact one, with all that
    it knows, when the gradient is small enough or rounding leaves no way down. The value never
    rises by more than rounding, so that the last point is the best.

    Args:
        evaluate: value and gradient (k,) at a point (k,), exact or not.
        start: (k,).
        inverse: (k,) about the inverse of each coordinate's own curvature, above 0.
        memory: of earlier work on this function; it is added to.
        largest: the measure of a gradient.
        tolerance: above 0.
        iterations: at most.

    Returns:
        The last point, exact, and the number of iterations.
    """

    def at(x: FloatArray, exact: bool) -> Point:
        return Point(x, *evaluate(x, exact), exact)

    here, done = at(start, False), 0
    while True:
        if here.exact and largest(here.gradient) <= tolerance:
            return here, done
        found = None
        if done < iterations and (here.exact or largest(here.gradient) > tolerance):
            done += 1
            direction = memory.direction(here.gradient, inverse)
            found = line_search(lambda x, exact=here.exact: at(x, exact), here, direction)  # type: ignore[misc]
            if found is None and memory.pairs:  # what it knows is of elsewhere
                memory.pairs.clear()
                found = line_search(
                    lambda x, exact=here.exact: at(x, exact),  # type: ignore[misc]
                    here,
                    memory.direction(here.gradient, inverse),
                )
        if found is not None:
            memory.add(found.x - here.x, found.gradient - here.gradient)
            here = found
        elif here.exact:
            return here, done
        else:
            here = at(here.x, True)


def line_search(
    at: Callable[[FloatArray], Point], here: Point, direction: FloatArray
) -> Point | None:
    """A point along a direction that meets the strong Wolfe conditions; None where none is found.

    Along a line a convex function's slope only rises, so that its sign brackets the point.
    """
    slope = float(_dot(here.gradient, direction))
    if not slope < 0:
        return None
    rounding = ROUNDING[here.exact] * abs(here.value)
    low, low_slope, high, high_slope = 0.0, slope, np.inf, np.inf
    step = 1.0
    for _ in range(TRIALS):
        point = at(here.x + step * direction)
        own = float(_dot(point.gradient, direction))
        down = point.value <= here.value + DECREASE * step * slope + rounding
        if down and abs(own) <= -CURVATURE * slope:
            return point
        if down and own < 0:
            low, low_slope = step, own
        else:
            high, high_slope = step, own
        if not np.isfinite(high):
            step *= 4
            continue
        # where the slope would be 0 if it were linear between the two
        width = high - low
        share = low_slope / (low_slope - high_slope) if np.isfinite(high_slope) else 0.1
        share = share if high_slope > 0 else 0.5
        step = low + width * min(max(share, 0.1), 0.9)
    return None
