"""Named random streams: each random choice has its own, so that a new one shifts no other."""

import hashlib
import json

import numpy as np


def generator(seed: int, *name: str | int) -> np.random.Generator:
    """Return the random generator of the stream `name` under `seed`.

    It depends on seed and name alone, not on other streams or on the order of their use.
    """
    digest = hashlib.sha256(json.dumps([seed, *name]).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))
