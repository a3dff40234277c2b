"""Degenerated training sets: fewer images, a long tail of classes, or wrong labels.

Fewer images and wrong labels are those of Large Margin in Softmax, Table 3.

The test part is never touched. The content changes and so does the digest: no run on a degenerated
set is ever taken for one on the whole.
"""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from marginctl.data.images.base import ImageDataset
from marginctl.data.images.in_memory import stratified_order
from marginctl.errors import RequestError
from marginctl.utils.seed import generator

Kind = TypeVar("Kind", bound=ImageDataset)


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
    if count is not None:
        return images.select(np.sort(_order(y, seed)[:count]))
    counts = np.bincount(y, minlength=images.num_classes)
    kept = [max(1, round(share * n)) if n else 0 for n in counts.tolist()]
    return images.select(_first_of_each(y, kept, seed))


def long_tailed(images: Kind, imbalance: float, *, largest: int | None = None, seed: int) -> Kind:
    """Keeps exponentially fewer training images from class to class, as CIFAR-10/100-LT have them.

    n_c = floor(n_0 imbalance^(-c/(C-1))) of class c = 0 .. C-1, at least one (Cao et al. 2019,
    LDAM: its code rounds down). Under one seed a larger set of a class contains every smaller one,
    those of `subsample` among them. The rows stay in their order.

    Args:
        imbalance: n_0 to n_{C-1}, 1 or more.
        largest: n_0; None for the number that every class has: that of the smallest one.

    Raises:
        RequestError: an argument is out of its range, there is one class alone, or a class has
            fewer images than its place in the tail asks for.
    """
    if not 1 <= imbalance < math.inf:
        raise RequestError(f"long tail: imbalance = {imbalance}: expected 1 or more")
    if largest is not None and largest < 1:
        raise RequestError(f"long tail: largest = {largest}: expected 1 or more")
    if images.num_classes < 2:
        raise RequestError("long tail: 1 class: expected 2 or more")
    there = np.bincount(images.train_y, minlength=images.num_classes).tolist()
    first = min(there) if largest is None else largest
    last = images.num_classes - 1
    # the power's rounding must not take an image away
    kept = [max(1, math.floor(first * imbalance ** (-c / last) + 1e-9)) for c in range(last + 1)]
    for c, (asked, n) in enumerate(zip(kept, there, strict=True)):
        if asked > n:
            raise RequestError(
                f"data.max_per_class = {first}: class {c} ('{images.classes[c]}') "
                f"of {images.name} has "
                f"{n} training images, and the long tail asks for {asked}: make 'largest' smaller"
            )
    return images.select(_first_of_each(images.train_y, kept, seed))


def _order(y: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """All rows in the order in which they are kept."""
    return stratified_order(y, generator(seed, "subsample"))


def _first_of_each(y: NDArray[np.int64], counts: list[int], seed: int) -> NDArray[np.int64]:
    """So many rows of each class, sorted."""
    order = _order(y, seed)
    return np.sort(np.concatenate([order[y[order] == c][:n] for c, n in enumerate(counts)]))


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
    return images.with_labels(y)
