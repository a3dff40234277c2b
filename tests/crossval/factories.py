"""Data sets made for tests."""

import numpy as np

from marginctl.data.tabular.dataset import Column, TabularDataset


def dataset(n=41, d=4, c=3, *, seed=0, counts=None, name="made"):
    """Two-dimensional blobs with noise columns; `counts` fixes the rows of each class."""
    stream = np.random.default_rng(seed)
    y = np.repeat(np.arange(c), counts) if counts else stream.integers(c, size=n)
    y[: c if not counts else 0] = np.arange(c if not counts else 0)
    x = stream.normal(size=(len(y), d)) * 3 + 10
    x[:, 0] += 12 * y
    return TabularDataset(
        name,
        x,
        y.astype(np.int64),
        tuple(f"class{i}" for i in range(c)),
        tuple(Column(f"column{i}") for i in range(d)),
    )


def table(n=60, *, seed=0, missing=0.15, categories=(3, 2, 12)):
    """Two numeric columns around one categorical column for each number of categories."""
    stream = np.random.default_rng(seed)
    numbers = stream.normal(50, 9, (n, 2))
    codes = [
        stream.integers(0, c, n) if c < 10 else stream.geometric(0.4, n) % c for c in categories
    ]
    x = np.column_stack([numbers[:, 0], *codes, numbers[:, 1]]).astype(float)
    x[stream.random(x.shape) < missing] = np.nan
    names = [Column(f"c{i}", tuple(f"v{k}" for k in range(c))) for i, c in enumerate(categories)]
    y = (np.nan_to_num(x[:, 1]) + stream.integers(0, 2, n)).astype(np.int64) % 2
    columns = (Column("first"), *names, Column("last"))
    return TabularDataset("mixed", x, y, ("no", "yes"), columns)
