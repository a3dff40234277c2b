"""Degenerated training sets: fewer images, or wrong labels (Large Margin in Softmax, Table 3).

The test part is never touched. The content changes and so does the digest: no run on a degenerated
set is ever taken for one on the whole.
"""

from typing import TypeVar

import numpy as np

from marginctl.data.images import stratified_order
from marginctl.data.labelled import LabelledImages
from marginctl.errors import RequestError
from marginctl.seeds import generator

Kind = TypeVar("Kind", bound=LabelledImages)


def subsample(images: Kind, share: float = 1.0, *, count: int | None = None, seed: int) -> Kind:
    """Keeps a random part of the training images, the classes in proportion.

    Under one seed a larger share contains every smaller one, and a larger count every smaller one.
    The rows stay in their order.

    Args:
        share: keeps round(share n_c) images of a class of n_c, and at least one.
        count: keeps this many in all, at least one of each class, in place of a share.

    Raises:
        RequestError: the share or the count is out of its range, or both are given.
    """
    y = images.train_y
    present = np.unique(y)
    if not 0 < share <= 1:
        raise RequestError(f"subsample: share = {share}: expected above 0, at most 1")
    if count is not None and share != 1:
        raise RequestError(
            f"subsample: share = {share} and count = {count}: expected one of the two"
        )
    if count is not None and not len(present) <= count <= len(y):
        raise RequestError(
            f"subsample: count = {count}: expected {len(present)} (one of each class) .. {len(y)}"
        )
    order = stratified_order(y, generator(seed, "subsample"))
    if count is not None:
        kept = order[:count]
    else:
        rows = [order[y[order] == c] for c in present]
        kept = np.concatenate([r[: max(1, round(share * len(r)))] for r in rows])
    return images.keeping(np.sort(kept))


def label_noise(images: Kind, share: float, *, seed: int) -> Kind:
    """Gives round(share n) of the n training labels another, wrong class, each equally likely.

    Under one seed a larger share moves the labels that a smaller one moves, to the same classes.

    Raises:
        RequestError: the share is out of its range, or there is no other class.
    """
    if not 0 <= share < 1:
        raise RequestError(f"label noise: share = {share}: expected 0 or more, below 1")
    if images.num_classes < 2:
        raise RequestError("label noise: 1 class: expected 2 or more, there is no wrong class")
    n = len(images.train_y)
    stream = generator(seed, "label noise")
    moved = stream.permutation(n)[: round(share * n)]
    shift = stream.integers(1, images.num_classes, n)
    y = images.train_y.copy()
    y[moved] = (y[moved] + shift[moved]) % images.num_classes
    return images.relabelled(y)
