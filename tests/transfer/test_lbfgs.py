"""L-BFGS: its line search, what it remembers, and the change of arithmetic."""

import numpy as np
import pytest

from marginctl.transfer.lbfgs import (
    CURVATURE,
    DECREASE,
    CurvatureMemory,
    Point,
    line_search,
    minimize,
)

CURVATURES = np.array([1.0, 10.0, 100.0, 1000.0])


def quartic(x, exact=True):
    """A convex function whose optimum is at 1, and its gradient."""
    d = x - 1
    return float((CURVATURES * (d**2 / 2 + d**4)).sum()), CURVATURES * (d + 4 * d**3)


def largest(gradient):
    return float(np.abs(gradient).max())


@pytest.mark.parametrize("length", [1e-4, 1e-2, 1.0, 100.0])
def test_a_step_meets_the_strong_wolfe_conditions(length):
    """However long the first try is."""
    here = Point(np.zeros(4), *quartic(np.zeros(4)), True)
    direction = -length * here.gradient / CURVATURES
    found = line_search(lambda x: Point(x, *quartic(x), True), here, direction)
    step = (found.x - here.x)[0] / direction[0]
    slope = here.gradient @ direction
    assert found.value <= here.value + DECREASE * step * slope
    assert abs(found.gradient @ direction) <= -CURVATURE * slope


def test_an_ascent_direction_has_no_step():
    here = Point(np.zeros(4), *quartic(np.zeros(4)), True)
    assert line_search(lambda x: Point(x, *quartic(x), True), here, here.gradient) is None


@pytest.mark.parametrize("inverse", [np.ones(4), 1 / CURVATURES])
def test_it_finds_the_optimum(inverse):
    point, iterations = minimize(
        quartic,
        np.zeros(4),
        inverse=inverse,
        memory=CurvatureMemory(),
        gradient_norm=largest,
        tolerance=1e-10,
        max_iterations=200,
    )
    assert point.exact
    assert largest(point.gradient) <= 1e-10
    assert np.abs(point.x - 1).max() < 1e-9
    assert iterations < 60


def test_float64_takes_over_when_float32_gets_no_further():
    """Gradients that are rounded to 1e-3 never come below 1e-8: the exact ones do."""
    kinds = []

    def rounded(x, exact):
        kinds.append(exact)
        value, gradient = quartic(x)
        return (value, gradient) if exact else (value, np.round(gradient, 3) + 1e-3)

    point, _ = minimize(
        rounded,
        np.zeros(4),
        inverse=1 / CURVATURES,
        memory=CurvatureMemory(),
        gradient_norm=largest,
        tolerance=1e-8,
        max_iterations=200,
    )
    assert largest(point.gradient) <= 1e-8
    first = kinds.index(True)
    assert first > 3
    assert all(kinds[first:])


def test_the_memory_follows_an_added_diagonal():
    memory = CurvatureMemory()
    for s in np.eye(4):
        memory.add(s, CURVATURES * s)
    memory.add_diagonal(np.full(4, 5.0))
    for s, y, _ in memory.pairs:
        assert y == pytest.approx((CURVATURES + 5) * s)
    gradient = np.array([1.0, -2.0, 3.0, -4.0])
    newton = -gradient / (CURVATURES + 5)
    assert memory.direction(gradient, 1 / CURVATURES) == pytest.approx(newton)
    memory.add_diagonal(np.full(4, -2000.0))  # no curvature is left: nothing that is known holds
    assert not memory.pairs
