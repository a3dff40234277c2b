"""Similarities between features and class weights: (..., N, d) x (..., C, d) -> (..., N, C).

Any leading dimensions stack independent networks. Each similarity has a `forward`, which autograd
can differentiate, and a `backward` written out, which the stacked engine uses.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable


def arccos_slope(cosine: Tensor) -> Tensor:
    """-d arccos(c)/dc = 1/sqrt(1 - c^2), bounded.

    1 - c^2 is kept at or above four units of the dtype's rounding, which is exact everywhere else
    and bounds the slope by 1/sqrt(4 eps): 1448 in float32, 3.4e7 in float64.
    """
    floor = 4 * torch.finfo(cosine.dtype).eps
    return (1 - cosine * cosine).clamp_(min=floor).rsqrt_()


class _ArcCos(torch.autograd.Function):
    """arccos whose slope stays finite, non-zero and negative at +-1.

    torch's own slope at +-1 is NaN or zero, depending on its version and on a clamp before it.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, cosine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine)
        return torch.acos(cosine.clamp(-1, 1))

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> Tensor:
        (cosine,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return torch.neg(arccos_slope(cosine).mul_(grad))


def arccos(cosine: Tensor) -> Tensor:
    """Angle in radians, any shape; values beyond +-1 by rounding count as +-1."""
    angle: Tensor = _ArcCos.apply(cosine)
    return angle


def _product(features: Tensor, weights: Tensor) -> Tensor:
    if features.dim() == 2:
        return features @ weights.T
    # In a stack of small networks the classes come first in memory: softmax along a short last
    # dimension is several times slower, and so is this product's backward.
    return (weights @ features.transpose(-1, -2)).transpose(-1, -2)


class Saved(NamedTuple):
    """What a forward keeps for its backward."""

    features: Tensor
    weights: Tensor
    similarity: Tensor
    feature_norm: Tensor | None = None  # (..., N, 1)
    weight_norm: Tensor | None = None  # (..., 1, C)


class Linear:
    """W x + b."""

    def __init__(self, bias: bool = False) -> None:
        self.has_bias = bias

    def forward(
        self, features: Tensor, weights: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Saved]:
        product = _product(features, weights)
        similarity = product if bias is None else product + bias.unsqueeze(-2)
        return similarity, Saved(features, weights, similarity)

    def backward(self, grad: Tensor, saved: Saved) -> tuple[Tensor, Tensor]:
        """Gradients of features and weights from that of the similarity (..., N, C)."""
        return grad @ saved.weights, grad.transpose(-1, -2) @ saved.features


class Cosine:
    """cos(theta) between each feature and each class weight, without bias.

    A feature (or weight) of norm zero has cosine 0 with everything and gets a finite gradient, as
    if its norm were 1. The rows of the product are scaled, which is cheaper than normalising.
    """

    has_bias = False

    def forward(
        self, features: Tensor, weights: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Saved]:
        feature_norm, weight_norm = _norm(features), _norm(weights).transpose(-1, -2)
        similarity = _product(features, weights) / feature_norm / weight_norm
        return similarity, Saved(features, weights, similarity, feature_norm, weight_norm)

    def backward(self, grad: Tensor, saved: Saved) -> tuple[Tensor, Tensor]:
        assert saved.feature_norm is not None
        assert saved.weight_norm is not None
        radial = grad * saved.similarity
        grad = grad / saved.feature_norm / saved.weight_norm
        of_features = radial.sum(-1, keepdim=True) / saved.feature_norm.square()
        of_weights = radial.sum(-2, keepdim=True) / saved.weight_norm.square()
        return (
            grad @ saved.weights - of_features * saved.features,
            grad.transpose(-1, -2) @ saved.features - of_weights.transpose(-1, -2) * saved.weights,
        )


class Angle(Cosine):
    """-theta in radians: ArcGrad's similarity (its eq. 11)."""

    def forward(
        self, features: Tensor, weights: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Saved]:
        cosine, saved = super().forward(features, weights, bias)
        return -arccos(cosine), saved

    def backward(self, grad: Tensor, saved: Saved) -> tuple[Tensor, Tensor]:
        return super().backward(grad * arccos_slope(saved.similarity), saved)


def _norm(vectors: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return torch.where(norm > torch.finfo(norm.dtype).tiny, norm, 1.0)


Similarity = Linear | Cosine | Angle
SIMILARITIES = {"linear": Linear, "cosine": Cosine, "angle": Angle}
