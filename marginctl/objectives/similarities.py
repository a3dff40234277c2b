"""Similarities between features and class weights: (..., N, d) x (..., C, d) -> (..., N, C).

Any leading dimensions stack independent networks. Each similarity is an element-wise function of a
matrix product; its derivative is written out, to pass as rarely as possible over the large (N, C)
matrices.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

_ONE = torch.ones(())


class Saved(NamedTuple):
    """Tensors that a forward pass saves for the backward pass."""

    features: Tensor  # (..., N, d), as in the product
    weights: Tensor  # (..., C, d)
    feature_norm: Tensor | None = None  # (..., N, 1)
    weight_norm: Tensor | None = None  # (..., 1, C)
    cosine: Tensor | None = None  # (..., N, C), for `product_gradient`


def bounded_rsqrt(sin_squared: Tensor) -> Tensor:
    """Return 1/sqrt(1 - c^2) = -d arccos(c)/dc of 1 - c^2, bounded.

    torch's own slope at +-1 is NaN or zero, depending on its version and on a clamp before it.
    Here 1 - c^2 is at least four times the dtype's eps, which is exact everywhere else and bounds
    the slope by 1/sqrt(4 eps): 1448 in float32, 3.4e7 in float64.
    """
    return sin_squared.clamp(min=_least_sin_squared(sin_squared.dtype)).rsqrt_()


def _least_sin_squared(dtype: torch.dtype) -> float:
    return 4 * torch.finfo(dtype).eps


def safe_norm(vectors: Tensor) -> Tensor:
    """Return the norms (..., n, 1) of vectors (..., n, d); 1 where the norm's square is zero.

    In float32 that is below 1e-19: the gradient's 1/norm^2 stays finite.
    """
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return F.threshold(length, math.sqrt(torch.finfo(length.dtype).tiny), 1.0)


class Similarity:
    """A similarity given by its value; autograd gives the derivative.

    A subclass defines `compare`. The ones below write the derivative out, which is faster.
    """

    has_bias = False

    def compare(self, features: Tensor, weights: Tensor) -> Tensor:
        """Return (..., N, C) of features (..., N, d) and weights (..., C, d)."""
        raise NotImplementedError

    def forward(
        self, features: Tensor, weights: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Saved]:
        """Return the similarities in new memory, and tensors for `backward`.

        A zero feature (or weight) is at the same distance from everything, and gets a finite
        gradient.
        """
        return self.compare(features, weights), Saved(features, weights)

    def product_gradient(self, grad: Tensor, saved: Saved) -> Tensor:
        """Return the gradient of the product from that of the similarity.

        It may overwrite `grad` and `saved.cosine`.
        """
        return grad

    def backward(self, grad: Tensor, saved: Saved, row_weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of features and weights.

        Args:
            grad: (..., N, C), of the product; not changed.
            row_weight: (..., N), multiplies the rows of `grad`.
        """
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in (saved.features, saved.weights)]
            similarity = self.compare(*leaves)
        features_grad, weights_grad = torch.autograd.grad(
            similarity, leaves, grad * row_weight.unsqueeze(-1), materialize_grads=True
        )
        return features_grad.contiguous(), weights_grad.contiguous()


# Chains of element-wise operations run block by block, of this many numbers, in the CPU's cache.
_BLOCK_SIZE = 2**17


def row_blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield blocks of the rows of tensors (n, ...); all at once on a GPU or in a stack."""
    first = tensors[0]
    rows = len(first)
    if first.dim() == 2 and first.device.type == "cpu" and first.numel() > 2 * _BLOCK_SIZE:
        rows = max(1, _BLOCK_SIZE // first.shape[-1])
    for start in range(0, len(first), rows) or [0]:
        yield tuple(t[start : start + rows] for t in tensors)


def row_dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the dot products (..., n, 1) of the rows of two tensors (..., n, d)."""
    blocks = [(p * q).sum(-1, keepdim=True) for p, q in row_blocks(a, b)]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks)


def _product(features: Tensor, weights: Tensor) -> Tensor:
    if features.dim() == 2:
        return features @ weights.T
    # In a stack of small networks the classes come first in memory: softmax along a short last
    # dimension is several times slower, and so is this product's backward.
    return (weights @ features.transpose(-1, -2)).transpose(-1, -2)


class Linear(Similarity):
    """W x + b."""

    def __init__(self, bias: bool = False) -> None:
        self.has_bias = bias

    def forward(
        self, features: Tensor, weights: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Saved]:
        product = _product(features, weights)
        if bias is not None:
            product.add_(bias.unsqueeze(-2))
        return product, Saved(features, weights)

    def backward(self, grad: Tensor, saved: Saved, row_weight: Tensor) -> tuple[Tensor, Tensor]:
        weight = row_weight.unsqueeze(-1)
        features_grad = (grad @ saved.weights).mul_(weight)
        return features_grad, grad.transpose(-1, -2) @ (saved.features * weight)


class Cosine(Similarity):
    """cos(theta) between each feature and each class weight, without bias.

    The rows of the features and the columns of the product are divided by their norms, which is
    cheaper than normalizing the weights. A norm of zero counts as 1: the cosine is then 0.

    Args:
        keep_weight_norm: gives |w_c| cos(theta) instead.
    """

    def __init__(self, keep_weight_norm: bool = False) -> None:
        self.keep_weight_norm = keep_weight_norm

    def forward(
        self, features: Tensor, weights: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Saved]:
        feature_norm, weight_norm = safe_norm(features), safe_norm(weights).transpose(-1, -2)
        unit = features / feature_norm
        product = _product(unit, weights)
        if not self.keep_weight_norm:
            product.div_(weight_norm)
        return product, Saved(unit, weights, feature_norm, weight_norm)

    def product_gradient(self, grad: Tensor, saved: Saved) -> Tensor:
        assert saved.weight_norm is not None
        return grad if self.keep_weight_norm else grad.div_(saved.weight_norm)

    def backward(self, grad: Tensor, saved: Saved, row_weight: Tensor) -> tuple[Tensor, Tensor]:
        assert saved.feature_norm is not None
        assert saved.weight_norm is not None
        unit, weights = saved.features, saved.weights
        row_weight = row_weight.unsqueeze(-1)
        features_grad = grad @ weights
        radial = row_dot(features_grad, unit)
        features_grad = features_grad.addcmul_(radial, unit, value=-1).mul_(
            row_weight / saved.feature_norm
        )
        weights_grad = grad.transpose(-1, -2) @ (unit * row_weight)
        if not self.keep_weight_norm:
            square = saved.weight_norm.transpose(-1, -2).square()
            for block, rows, length in row_blocks(weights_grad, weights, square):
                radial = (block * rows).sum(-1, keepdim=True).div_(length)
                block.addcmul_(radial, rows, value=-1)
        return features_grad, weights_grad


class Angle(Cosine):
    """-theta in radians: ArcGrad's similarity (its eq. 11)."""

    def forward(
        self, features: Tensor, weights: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Saved]:
        cosine, saved = super().forward(features, weights, bias)
        angle = cosine.clamp_(-1, 1).acos()
        if torch.is_grad_enabled():  # for a second derivative: torch's slope at +-1 is infinite
            at_end = cosine.abs() == 1
            angle = torch.where(at_end, angle.detach(), cosine.masked_fill(at_end, 0.0).acos())
        return angle.neg_(), saved._replace(cosine=cosine)

    def product_gradient(self, grad: Tensor, saved: Saved) -> Tensor:
        assert saved.cosine is not None
        # `bounded_rsqrt` without new memory
        sin_squared = torch.sub(_ONE, saved.cosine.mul_(saved.cosine), out=saved.cosine)
        slope = sin_squared.clamp_(min=_least_sin_squared(grad.dtype)).rsqrt_()
        return super().product_gradient(grad.mul_(slope), saved)


class Gaussian(Similarity):
    """-1/2 |x - w_c|^2, w_c being the mean of class c (L-GM).

    Features and means are centred on the mean of the means first: far from the origin, the products
    would leave nothing of the distances.
    """

    def forward(
        self, features: Tensor, weights: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Saved]:
        origin = weights.mean(-2, keepdim=True)
        features, weights = features - origin, weights - origin
        norms = (torch.linalg.vector_norm(t, dim=-1, keepdim=True) for t in (features, weights))
        halves = [norm.square() / 2 for norm in norms]
        product = _product(features, weights).sub_(halves[0]).sub_(halves[1].mT)
        # rounding could make a small distance negative
        return product.clamp_(max=0), Saved(features, weights)

    def backward(self, grad: Tensor, saved: Saved, row_weight: Tensor) -> tuple[Tensor, Tensor]:
        weight = row_weight.unsqueeze(-1)
        total = grad.sum(-1, keepdim=True)
        features_grad = (grad @ saved.weights).addcmul_(total, saved.features, value=-1)
        transposed = grad.transpose(-1, -2)
        weights_grad = transposed @ (saved.features * weight)
        weights_grad.addcmul_(transposed @ weight, saved.weights, value=-1)
        return features_grad.mul_(weight), weights_grad
