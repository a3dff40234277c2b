"""Samples of exhaustive parametrizations: the rest is marked slow."""

from collections.abc import Sequence
from typing import Any

import pytest


def diagonal(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Return all pairs; the default run takes so many that each value of both occurs in one."""
    shorter = min(len(first), len(second))
    return [
        pytest.param(a, b, marks=() if (i - j) % shorter == 0 else pytest.mark.slow)
        for i, a in enumerate(first)
        for j, b in enumerate(second)
    ]
