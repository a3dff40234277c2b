"""Every preset once more, sample by sample in float64 with `math` alone: slow and plain."""

import math
from collections.abc import Sequence

Vector = Sequence[float]


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def cosine(a: Vector, b: Vector) -> float:
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def cross_entropy(logits: Vector, y: int) -> float:
    peak = max(logits)
    return peak + math.log(math.fsum(math.exp(z - peak) for z in logits)) - logits[y]


def soft(x: Vector, w: Sequence[Vector], y: int) -> float:
    return cross_entropy([dot(x, c) for c in w], y)


def m_soft(x: Vector, w: Sequence[Vector], y: int, margin: float) -> float:
    z = [dot(x, c) for c in w]
    top = math.exp(z[y] - margin)
    return -math.log(top / (top + math.fsum(math.exp(v) for i, v in enumerate(z) if i != y)))


def center(
    x: Vector, w: Sequence[Vector], y: int, strength: float, centers: Sequence[Vector]
) -> float:
    distance = math.fsum((a - b) ** 2 for a, b in zip(x, centers[y], strict=True))
    return soft(x, w, y) + strength / 2 * distance


def arcface(
    x: Vector, w: Sequence[Vector], y: int, scale: float, margin: float, beyond: str
) -> float:
    cosines = [cosine(x, c) for c in w]
    moved = angular_margin(cosines[y], margin, beyond)
    z = [scale * (moved if i == y else c) for i, c in enumerate(cosines)]
    return cross_entropy(z, y)


def angular_margin(cosine: float, margin: float, beyond: str) -> float:
    """ArcFace's cosine of the target in one of its forms at large angles."""
    if beyond == "linear" and not cosine > -math.cos(margin):
        return cosine - margin * math.sin(math.pi - margin)
    if beyond == "easy" and not cosine > 0:
        return cosine
    return math.cos(math.acos(cosine) + margin)


def arcgrad(x: Vector, w: Sequence[Vector], y: int, scale: float) -> float:
    return cross_entropy([-scale * math.acos(cosine(x, c)) for c in w], y)


def adacos_scale(
    xs: Sequence[Vector], w: Sequence[Vector], ys: Sequence[int], before: float
) -> float:
    """The scale after a batch: equation 10 of ArcGrad, the median being the lower one."""
    others = [
        math.fsum(math.exp(before * cosine(x, c)) for i, c in enumerate(w) if i != y)
        for x, y in zip(xs, ys, strict=True)
    ]
    thetas = sorted(math.acos(cosine(x, w[y])) for x, y in zip(xs, ys, strict=True))
    median = thetas[(len(thetas) - 1) // 2]
    return math.log(math.fsum(others) / len(xs)) / math.cos(min(math.pi / 4, median))


def adacos(x: Vector, w: Sequence[Vector], y: int, scale: float) -> float:
    return cross_entropy([scale * cosine(x, c) for c in w], y)


def moved_centers(
    xs: Sequence[Vector], ys: Sequence[int], centers: Sequence[Vector], alpha: float
) -> list[list[float]]:
    moved = []
    for j, c in enumerate(centers):
        own = [x for x, y in zip(xs, ys, strict=True) if y == j]
        moved.append(
            [
                c[k] - alpha * math.fsum(c[k] - x[k] for x in own) / (1 + len(own))
                for k in range(len(c))
            ]
        )
    return moved


def gradient_decay(x: Vector, w: Sequence[Vector], y: int, beta: float) -> float:
    z = [dot(x, c) for c in w]
    return math.log(beta + math.fsum(math.exp(v - z[y]) for i, v in enumerate(z) if i != y))


def cosface(x: Vector, w: Sequence[Vector], y: int, scale: float, margin: float) -> float:
    z = [scale * (cosine(x, c) - (margin if i == y else 0)) for i, c in enumerate(w)]
    return cross_entropy(z, y)


def label_smoothing(x: Vector, w: Sequence[Vector], y: int, strength: float) -> float:
    z = [dot(x, c) for c in w]
    each = [cross_entropy(z, c) for c in range(len(w))]
    return (1 - strength) * each[y] + strength / len(w) * math.fsum(each)


def lm_softmax(x: Vector, w: Sequence[Vector], y: int, strength: float, divergence: str) -> float:
    z = [dot(x, c) for c in w]
    others = [v for i, v in enumerate(z) if i != y]
    total = math.fsum(math.exp(v) for v in others)
    q = [math.exp(v) / total for v in others]
    u = 1 / len(others)
    of_qu = math.fsum(p * math.log(p / u) for p in q)
    of_uq = math.fsum(u * math.log(u / p) for p in q)
    d = {"q-u": of_qu, "u-q": of_uq, "symmetric": (of_qu + of_uq) / 2}[divergence]
    return cross_entropy(z, y) + strength * d


def hinge(x: Vector, w: Sequence[Vector], y: int, margin: float) -> float:
    z = [dot(x, c) for c in w]
    return max(0.0, max(v for i, v in enumerate(z) if i != y) - z[y] + margin)


def dense_hinge(x: Vector, w: Sequence[Vector], y: int, margin: float) -> float:
    z = [dot(x, c) for c in w]
    terms = [max(0.0, v - z[y] + margin) for i, v in enumerate(z) if i != y]
    return math.fsum(terms) / len(terms)


def norm(a: Vector) -> float:
    return math.sqrt(dot(a, a))


def psi(theta: float, times: int) -> float:
    """The target's function of L-Softmax and SphereFace."""
    k = min(int(times * theta / math.pi), times - 1)
    return (-1) ** k * math.cos(times * theta) - 2 * k


def multiplicative(
    x: Vector, w: Sequence[Vector], y: int, times: int, annealing: float, *, weight_norm: bool
) -> float:
    """L-Softmax (with the weights' norms) and SphereFace (without)."""
    z = []
    for i, c in enumerate(w):
        cos = cosine(x, c)
        if i == y:
            cos = (annealing * cos + psi(math.acos(cos), times)) / (1 + annealing)
        z.append(norm(x) * (norm(c) if weight_norm else 1.0) * cos)
    return cross_entropy(z, y)


def l_gm(x: Vector, w: Sequence[Vector], y: int, margin: float, strength: float) -> float:
    d = [math.fsum((a - b) ** 2 for a, b in zip(x, c, strict=True)) / 2 for c in w]
    z = [-v * (1 + margin) if i == y else -v for i, v in enumerate(d)]
    return cross_entropy(z, y) + strength * d[y]


def super_symmetry(x: Vector, w: Sequence[Vector], y: int, strength: float) -> float:
    v = math.fsum(dot(c, c) for c in w) / len(w)
    terms = [
        (dot(a, b) / v - (1.0 if i == j else -1 / (len(w) - 1))) ** 2
        for i, a in enumerate(w)
        for j, b in enumerate(w)
    ]
    return soft(x, w, y) + strength * math.fsum(terms) / len(w) ** 2


def softmax(z: Vector) -> list[float]:
    peak = max(z)
    powers = [math.exp(v - peak) for v in z]
    return [p / math.fsum(powers) for p in powers]


def least_squares_error(x: Vector, w: Sequence[Vector], kappa: float) -> float:
    """E(kappa): half the squared distance between a feature and its reconstruction."""
    alpha = softmax([kappa * cosine(x, c) for c in w])
    rebuilt = [
        math.fsum(a * c[k] / norm(c) for a, c in zip(alpha, w, strict=True)) for k in range(len(x))
    ]
    return math.fsum((v / norm(x) - r) ** 2 for v, r in zip(x, rebuilt, strict=True)) / 2


def least_squares_scale(x: Vector, w: Sequence[Vector]) -> float:
    candidates = [math.exp(-2 + 7 * i / 19) for i in range(20)]
    return min(candidates, key=lambda kappa: least_squares_error(x, w, kappa))


def batch_scale(xs: Sequence[Vector], w: Sequence[Vector]) -> float:
    """The candidate with the least sum of errors over a batch."""
    candidates = [math.exp(-2 + 7 * i / 19) for i in range(20)]
    return min(candidates, key=lambda k: math.fsum(least_squares_error(x, w, k) for x in xs))


def max_softplus(x: Vector, w: Sequence[Vector], y: int, margin: float) -> float:
    z = [dot(x, c) for c in w]
    excess = max(v for i, v in enumerate(z) if i != y) - z[y] + margin
    return math.log1p(math.exp(-abs(excess))) + max(excess, 0.0)
