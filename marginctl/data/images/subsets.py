"""Reduced training sets: fewer images, a long tail of classes, or label noise.

Fewer images and label noise are those of Large Margin in Softmax, Table 3. The test split never
changes. A reduced data set has another digest, so that its runs cannot be taken for others.
"""

import math

import numpy as np
from numpy.typing import NDArray

from marginctl.data.images.groups import hold_out_groups
from marginctl.data.images.image_sets import ImageDataset
from marginctl.errors import RequestError
from marginctl.utils.seed import generator, stratified_order


def subsample(
    images: ImageDataset, fraction: float = 1.0, *, size: int | None = None, seed: int
) -> ImageDataset:
    """Return the data set with a random, stratified subset of the training images.

    With one seed, a larger subset contains every smaller one. The images keep their order.

    Args:
        fraction: above 0, at most 1; keeps round(fraction n_c) images of a class of n_c, and at
            least one.
        size: the number of images in total, at least one of each class, instead of a fraction.

    Raises:
        RequestError: the size is out of range, or both are given.
    """
    y = images.train_y
    present = np.unique(y)
    if size is not None and fraction != 1:
        raise RequestError(
            f"data.subset_fraction = {fraction} and data.subset_size = {size}: give one of the two"
        )
    if size is not None and not len(present) <= size <= len(y):
        raise RequestError(
            f"data.subset_size = {size}: expected {len(present)} (one of each class) .. {len(y)}"
        )
    if size is not None:
        order = stratified_order(y, generator(seed, "subsample"))
        return images.select(np.sort(order[:size]))
    counts = np.bincount(y, minlength=images.num_classes).tolist()
    sizes = [max(1, round(fraction * n)) if n else 0 for n in counts]
    return images.select(_select_per_class(y, sizes, seed))


def long_tailed(
    images: ImageDataset, imbalance_factor: float, *, max_per_class: int | None = None, seed: int
) -> ImageDataset:
    """Return the data set with exponentially fewer training images per class, as CIFAR-10/100-LT.

    Class c = 0 .. C-1 keeps n_c = floor(n_0 imbalance_factor^(-c/(C-1))) images, at least one (Cao
    et al. 2019, LDAM, whose code rounds down). With one seed, a larger set of a class contains
    every smaller one, including those of `subsample`. The images keep their order.

    Args:
        imbalance_factor: n_0 / n_{C-1}, 1 or more.
        max_per_class: n_0, 1 or more; None for the size of the smallest class.

    Raises:
        RequestError: there is only one class, or a class has fewer images than its place in the
            tail needs.
    """
    if images.num_classes < 2:
        raise RequestError(
            f"data.imbalance_factor of {images.name}: 1 class: expected at least 2 classes"
        )
    available = np.bincount(images.train_y, minlength=images.num_classes).tolist()
    first = min(available) if max_per_class is None else max_per_class
    last = images.num_classes - 1
    # the small addend keeps rounding of the power from removing an image
    sizes = [
        max(1, math.floor(first * imbalance_factor ** (-c / last) + 1e-9)) for c in range(last + 1)
    ]
    for c, (size, n) in enumerate(zip(sizes, available, strict=True)):
        if size > n:
            raise RequestError(
                f"data.max_per_class = {first}: class {c} ('{images.classes[c]}') of {images.name} "
                f"has {n} training images, and the long tail needs {size}: make it smaller"
            )
    return images.select(_select_per_class(images.train_y, sizes, seed))


def label_noise(images: ImageDataset, fraction: float, *, seed: int) -> ImageDataset:
    """Return the data set with round(fraction n) of the n training labels replaced by wrong ones.

    Each wrong class is equally likely. With one seed, a larger fraction, below 1, changes the
    labels that a smaller one changes, to the same classes.

    Raises:
        RequestError: there is only one class.
    """
    if images.num_classes < 2:
        raise RequestError(
            f"data.label_noise of {images.name}: 1 class: expected at least 2 classes"
        )
    n = len(images.train_y)
    stream = generator(seed, "label noise")
    changed = stream.permutation(n)[: round(fraction * n)]
    shift = stream.integers(1, images.num_classes, n)
    y = images.train_y.copy()
    y[changed] = (y[changed] + shift[changed]) % images.num_classes
    return images.with_labels(y)


def split_indices(
    labels: NDArray[np.int64], fraction: float, seed: int, groups: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted rows of the images to fit and of the validation part, stratified.

    The validation part has round(fraction n) of n images, at least one, and leaves at least one of
    each class; the parts of other seeds are independent. With groups (n,) it is as many whole
    groups, as `hold_out_groups`.
    """
    if groups is not None:
        label, stream = "the validation part", "validation part"
        validation = hold_out_groups(label, labels, groups, fraction, seed, stream)
        return np.delete(np.arange(len(labels)), validation), validation
    order = stratified_order(labels, generator(seed, "validation part"))
    # the first rows of the order are one of each class: these are fitted
    count = min(max(1, round(fraction * len(order))), len(order) - len(np.unique(labels)))
    size = len(order) - count
    return np.sort(order[:size]), np.sort(order[size:])


def _select_per_class(y: NDArray[np.int64], sizes: list[int], seed: int) -> NDArray[np.int64]:
    """Return sorted row numbers with the given number of rows of each class."""
    order = stratified_order(y, generator(seed, "subsample"))
    return np.sort(np.concatenate([order[y[order] == c][:n] for c, n in enumerate(sizes)]))
