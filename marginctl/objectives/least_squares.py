"""The least-squares scale: how well softmax coefficients rebuild a feature from the class weights.

From the supplement of the temperature paper, its main text not being to be had: kappa* of a sample
is the candidate with the least E(kappa) = 1/2 |x - sum_c alpha_c w_c|^2, alpha = softmax(kappa z),
z = W x, features and weights normalised (eqs. 8 to 10, 24, 25). Candidates: exp of 20 equal steps
from -2 to 5.
"""

import numpy as np
import torch
from torch import Tensor

from marginctl.objectives.similarity import norm

CANDIDATES = tuple(float(k) for k in np.exp(np.linspace(-2, 5, 20)))
# Coefficients are held for so many bytes at a time, however many classes there are.
CHUNK_BYTES = 64 * 2**20


@torch.no_grad()
def least_squares_scale(cosines: Tensor, features: Tensor, weights: Tensor) -> Tensor:
    """kappa* of each sample (..., N), from its cosines (..., N, C); carries no gradient.

    E is alpha G alpha - 2 alpha z + 1 up to its half, with G the cosines between the weights, where
    that costs less than rebuilding the feature: with fewer classes than dimensions.

    Args:
        cosines: (..., N, C), of `features` (..., N, d) and `weights` (..., C, d).
    """
    rows, classes = cosines.shape[-2:]
    length = features.shape[-1]
    unit_weights = weights / norm(weights)
    by_classes = len(CANDIDATES) * rows * classes
    gram = (
        unit_weights @ unit_weights.mT
        if by_classes * classes + classes**2 * length < (by_classes * length)
        else None
    )
    unit = features / norm(features)
    kappas = torch.tensor(CANDIDATES, dtype=cosines.dtype, device=cosines.device)
    per_row = cosines[..., :1, :].numel() * cosines.element_size()
    at_once = max(1, CHUNK_BYTES // per_row)
    several = min(len(CANDIDATES), max(1, at_once // rows))
    best = []
    for first in range(0, rows, at_once):
        z = cosines[..., first : first + at_once, :]
        errors = [
            _error(z, unit[..., first : first + at_once, :], unit_weights, gram, some)
            for some in torch.split(kappas, several)
        ]
        error = torch.cat(errors)
        # of candidates that rounding cannot tell apart (a zero feature, an aligned one) the first
        tied = error <= error.amin(0) + 8 * torch.finfo(error.dtype).eps
        best.append(tied.byte().argmax(0))
    return kappas[torch.cat(best, -1)]


def _error(z: Tensor, unit: Tensor, weights: Tensor, gram: Tensor | None, kappas: Tensor) -> Tensor:
    """2 E of K candidates (K, ..., N), up to a constant of the sample."""
    alpha = (kappas.view(-1, *[1] * z.dim()) * z).softmax(-1)
    if gram is None:
        return (alpha @ weights).sub_(unit).square_().sum(-1)
    return (alpha @ gram).sub_(2 * z).mul_(alpha).sum(-1)
