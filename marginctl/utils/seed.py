"""Random numbers by name: each random choice has its own stream, so adding one shifts no other."""

import hashlib
import json

import numpy as np


def generator(seed: int, *name: str | int) -> np.random.Generator:
    """The random stream that belongs to `name` under `seed`.

    The stream is a function of the name alone: it does not depend on how many other streams were
    made, nor on the order in which they were used.
    """
    digest = hashlib.sha256(json.dumps([seed, *name]).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))
