"""Angles between features, class centers and class weights, in degrees; the mean bias rho.

The angles are those of ArcGrad's Table VI (in radians there), eqs. 20-22. They need an objective
with one weight vector per class (cosine, angle, linear; a bias does not affect an angle).
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from marginctl.metrics.arrays import FloatArray, IntArray, check_labels, check_rows, row_blocks
from marginctl.objectives import theory

# A sum of vectors shorter than this fraction of the sum of their lengths is zero up to rounding.
_ZERO = 1e-12


def compute_angles(features: ArrayLike, labels: ArrayLike, weights: ArrayLike) -> dict[str, Any]:
    """Return the angles between (N, d) features with (N,) labels and (C, d) class weights.

    In degrees, <a, b> = arccos(a.b / |a||b|); Center_j is the mean feature of class j. Classes
    without samples, or with a zero center, are left out of the means over centers; classes with a
    zero weight are left out of those over weights, and samples with a zero feature out of those
    over samples.

    Returns:
        A JSON document; a mean without any angle is null, with its reason under `reasons`.

        - w_inter: mean of <W_i, W_j> over all ordered pairs i != j (eq. 21).
        - w_inter_nearest: mean over i of the smallest <W_i, W_j>, j != i; this is ArcFace's
          definition of W-Inter, and the paper says that it uses ArcFace's metrics.
        - c_inter_centers: mean of <Center_i, Center_j>, i != j: the text of eq. 22.
        - c_inter_centers_nearest: mean over i of the smallest <Center_i, Center_j>.
        - c_inter_weights: mean of <Center_i, W_j> over i != j: eq. 22 as printed, with its missing
          index added; c_inter_unit_weights: the same with Center_i as the mean of features of
          length 1, as in later public code of ArcGrad's first author.
        - wc_intra: mean over classes of <Center_j, W_j> (eq. 20).
        - intra_weight, intra_center: mean over samples of <x_i, W_y> and <x_i, Center_y>, which is
          0 for a class of one.
        - histogram: (180,) samples by <x_i, W_y>, as `histogram`.
        - samples, classes, zero_features (samples), empty_classes, zero_centers (of classes that
          have samples), zero_weights (classes): how many there are.

    Raises:
        ValueError: a label out of range, a NaN or an infinity.
    """
    x, w = np.asarray(features), np.asarray(weights)
    y = check_labels(labels, len(w), "features", len(x))
    _max_magnitude("weights", w)

    w, has_weight = _normalize(w.astype(np.float64))
    centers, has_center = _centers(x, y, len(w))
    to_weight, has_feature = _angles_to_class(x, y, w)
    to_center, _ = _angles_to_class(x, y, centers)
    to_weight = to_weight[has_feature & has_weight[y]]
    to_center = to_center[has_feature & has_center[y]]

    both = has_center & has_weight
    unit_centers, has_unit_center = _centers(x, y, len(w), unit=True)
    unit_both = has_unit_center & has_weight
    w_inter, w_nearest = _pairwise_angles(w[has_weight], w[has_weight])
    c_inter, c_nearest = _pairwise_angles(centers[has_center], centers[has_center])
    means: dict[str, float | None] = {
        "w_inter": w_inter,
        "w_inter_nearest": w_nearest,
        "c_inter_centers": c_inter,
        "c_inter_centers_nearest": c_nearest,
        "c_inter_weights": _pairwise_angles(centers[both], w[both])[0],
        "c_inter_unit_weights": _pairwise_angles(unit_centers[unit_both], w[unit_both])[0],
        "wc_intra": _mean(_angle_between(centers[both], w[both])),
        "intra_weight": _mean(to_weight),
        "intra_center": _mean(to_center),
    }
    empty = np.bincount(y, minlength=len(w)) == 0
    return {
        "unit": "degrees",
        **means,
        "histogram": histogram(to_weight).tolist(),
        "samples": len(y),
        "classes": len(w),
        "zero_features": int((~has_feature).sum()),
        "empty_classes": int(empty.sum()),
        "zero_centers": int((~has_center & ~empty).sum()),
        "zero_weights": int((~has_weight).sum()),
        "reasons": {name: _REASONS[name] for name, value in means.items() if value is None},
    }


def target_angles(features: NDArray[Any], labels: IntArray, weights: NDArray[Any]) -> FloatArray:
    """Return <x_i, W_y> in degrees of all samples but those with a zero feature or class weight."""
    unit_weights, has_weight = _normalize(weights.astype(np.float64))
    angles, has_feature = _angles_to_class(features, labels, unit_weights)
    return angles[has_feature & has_weight[labels]]


_REASONS = {
    **dict.fromkeys(("w_inter", "w_inter_nearest"), "fewer than two classes with a weight"),
    "c_inter_centers": "fewer than two classes with a center",
    "c_inter_centers_nearest": "fewer than two classes with a center",
    "c_inter_weights": "fewer than two classes with a center and a weight",
    "c_inter_unit_weights": "fewer than two classes with a center and a weight",
    "wc_intra": "no class with a center and a weight",
    "intra_weight": "no sample with a feature whose class has a weight",
    "intra_center": "no sample with a feature whose class has a center",
}


def histogram(degrees: ArrayLike) -> IntArray:
    """Return (180,) counts of (N,) angles by whole degrees: [k, k + 1), the last closed at 180."""
    angles = np.asarray(degrees, np.float64)
    return np.bincount(np.minimum(angles.astype(np.int64), 179), minlength=180)


def mean_bias(logits: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean of rho over the samples (Large Margin, eq. 7 and Fig. 3), 0 to ln(C - 1).

    rho_i = ln sum_{c != y} exp(f_c - max_{c != y} f_c), by `theory.bias`; 0 with two classes.

    Raises:
        ValueError: wrong (N, C) logits or (N,) labels, or a logit that is not finite.
    """
    f, y = check_rows("logits", logits, labels)
    _max_magnitude("logits", f)
    total = 0.0
    for rows in row_blocks(*f.shape):
        with np.errstate(over="ignore"):  # logits too far apart to subtract: exp(-inf) = 0
            total += float(theory.bias(f[rows], y[rows]).sum())
    return total / len(y)


def _max_magnitude(name: str, values: NDArray[Any]) -> float:
    """Return the largest magnitude of a number.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    largest = 0.0
    for rows in row_blocks(*values.shape):
        magnitude = float(np.abs(values[rows].astype(np.float64)).max())
        if not np.isfinite(magnitude):
            raise ValueError(f"{name}: NaN or infinite")
        largest = max(largest, magnitude)
    return largest


def _normalize(vectors: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return vectors (n, d) scaled to length 1, and which of them are not zero.

    Zero vectors stay zero. Each vector is first divided by its largest magnitude, so that no
    square overflows or vanishes.
    """
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    nonzero = largest > 0
    unit = vectors / np.where(nonzero, largest, 1)
    length = np.linalg.norm(unit, axis=1, keepdims=True)
    unit /= np.where(nonzero, length, 1)
    return unit, nonzero[:, 0]


def _centers(
    features: NDArray[Any], labels: IntArray, num_classes: int, *, unit: bool = False
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the (C, d) directions of the classes' mean features, and which classes have one.

    A sum has the direction of the mean, whether or not zero features are counted.

    Args:
        unit: whether features are scaled to length 1 before.
    """
    scale = _max_magnitude("features", features) or 1.0
    sums = np.zeros((num_classes, features.shape[1]))
    lengths = np.zeros(num_classes)
    for rows in row_blocks(*features.shape):
        order = np.argsort(labels[rows], kind="stable")
        block = features[rows][order].astype(np.float64) / scale
        if unit:
            block = _normalize(block)[0]
        classes, first = np.unique(labels[rows][order], return_index=True)
        sums[classes] += np.add.reduceat(block, first, axis=0)
        lengths[classes] += np.add.reduceat(np.linalg.norm(block, axis=1), first)
    sums[np.linalg.norm(sums, axis=1) <= _ZERO * lengths] = 0
    return _normalize(sums)


def _angles_to_class(
    features: NDArray[Any], labels: IntArray, directions: FloatArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the (N,) angles of features to the directions of their classes (C, d), unit vectors.

    Second, which features are not zero.
    """
    angles, nonzero = np.empty(len(labels)), np.empty(len(labels), np.bool_)
    for rows in row_blocks(*features.shape):
        block, nonzero[rows] = _normalize(features[rows].astype(np.float64))
        angles[rows] = _angle_between(block, directions[labels[rows]])
    return angles, nonzero


def _angle_between(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the (n,) angles between the rows of unit vectors a and b, (n, d) each.

    2 atan2(|a - b|, |a + b|) (Kahan 2006) is accurate near 0 and 180, where the arccosine is not.
    """
    difference, total = np.linalg.norm(a - b, axis=1), np.linalg.norm(a + b, axis=1)
    return np.asarray(np.degrees(2 * np.arctan2(difference, total)))


def _pairwise_angles(a: FloatArray, b: FloatArray) -> tuple[float | None, float | None]:
    """Return the mean of <a_i, b_j> over i != j, and the mean over i of min_j <a_i, b_j>.

    a and b are unit vectors, (K, d) each. The arccosine is accurate to a millionth of a degree.
    """
    k = len(a)
    if k < 2:
        return None, None
    total = nearest = 0.0
    for rows in row_blocks(k, k):
        angles = np.degrees(np.arccos(np.clip(a[rows] @ b.T, -1, 1)))
        diagonal = np.arange(len(angles)), np.arange(rows.start, rows.stop)
        angles[diagonal] = 0
        total += float(angles.sum())
        angles[diagonal] = np.inf
        nearest += float(angles.min(axis=1).sum())
    return total / (k * (k - 1)), nearest / k


def _mean(angles: FloatArray) -> float | None:
    return float(angles.mean()) if len(angles) else None
