"""Named random streams: each random choice has its own, so that a new one shifts no other."""

import hashlib
import json

import numpy as np
from numpy.typing import NDArray


def generator(seed: int, *name: str | int) -> np.random.Generator:
    """Return the random generator of the stream `name` under `seed`.

    It depends on seed and name alone, not on other streams or on the order of their use.
    """
    digest = hashlib.sha256(json.dumps([seed, *name]).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


def stratified_order(y: NDArray[np.int64], stream: np.random.Generator) -> NDArray[np.int64]:
    """Return all row numbers (n,) in a random order, of which every prefix is stratified.

    The r-th drawn row of a class of n (r = 0, 1, ...) is placed at (r + 1/2)/n, which apportions as
    Sainte-Lague does; but the first row of each class comes before all others.
    """
    order = stream.permutation(len(y))
    drawn = y[order]
    counts = np.bincount(y)
    by_class = np.argsort(drawn, kind="stable")
    rank = np.empty(len(y), np.int64)
    rank[by_class] = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)
    position = np.where(rank == 0, 0.0, (rank + 0.5) / counts[drawn])
    return order[np.lexsort((drawn, position))]
