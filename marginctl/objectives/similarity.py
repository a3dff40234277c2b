"""Similarities between features and class weights: (..., N, d) x (..., C, d) -> (..., N, C).

Any leading dimensions stack independent networks.
"""

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable


class _ArcCos(torch.autograd.Function):
    """arccos whose slope stays finite, non-zero and negative at +-1.

    torch's own slope at +-1 is NaN or zero, depending on its version and on a clamp before it. Here
    1 - c^2 is kept at or above four units of the dtype's rounding, which is exact everywhere
    else and bounds the slope by 1/sqrt(4 eps): 1448 in float32, 3.4e7 in float64.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, cosine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine)
        return torch.acos(cosine.clamp(-1, 1))

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> Tensor:
        (cosine,) = ctx.saved_tensors  # type: ignore[attr-defined]
        floor = 4 * torch.finfo(cosine.dtype).eps
        slope = (1 - cosine * cosine).clamp_(min=floor).rsqrt_()
        return torch.neg(slope.mul_(grad))


def arccos(cosine: Tensor) -> Tensor:
    """Angle in radians, any shape; values beyond +-1 by rounding count as +-1."""
    angle: Tensor = _ArcCos.apply(cosine)
    return angle


def linear(features: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
    """W x + b."""
    product = _product(features, weights)
    return product if bias is None else product + bias.unsqueeze(-2)


def cosine(features: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    """cos(theta) between each feature and each class weight, without bias.

    A feature (or weight) of norm zero has cosine 0 with everything and gets a finite gradient, as
    if its norm were 1. The rows of the product are scaled, which is cheaper than normalising.
    """
    product = _product(features, weights)
    return product / _norm(features) / _norm(weights).transpose(-1, -2)


def angle(features: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    """-theta in radians: ArcGrad's similarity (its eq. 11)."""
    return -arccos(cosine(features, weights))


def _product(features: Tensor, weights: Tensor) -> Tensor:
    if features.dim() == 2:
        return features @ weights.T
    # In a stack of small networks the classes come first in memory: softmax along a short last
    # dimension is several times slower, and so is this product's backward.
    return (weights @ features.transpose(-1, -2)).transpose(-1, -2)


def _norm(vectors: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return torch.where(norm > torch.finfo(norm.dtype).tiny, norm, 1.0)


SIMILARITIES = {"linear": linear, "cosine": cosine, "angle": angle}
