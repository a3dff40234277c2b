"""The least-squares scale: softmax coefficients that best rebuild a feature from class weights.

From the supplement of the temperature paper (its main text is not available to us): kappa* of a
sample is the candidate with the least E(kappa) = 1/2 |x - sum_c alpha_c w_c|^2 with
alpha = softmax(kappa z), z = W x, features and weights normalized (eqs. 8 to 10, 24, 25).
Candidates: exp of 20 equal steps from -2 to 5.
"""

import functools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from marginctl.objectives.similarities import safe_norm

CANDIDATES = tuple(float(k) for k in np.exp(np.linspace(-2, 5, 20)))
# Memory for coefficients, however many classes there are.
CHUNK_BYTES = 64 * 2**20
FEW_CLASSES = 64


class Errors(NamedTuple):
    """The reconstruction error of each sample by each candidate."""

    doubled: Tensor  # (20, ..., N): 2 E, with the Gram matrix up to a constant of the sample
    by_gram: bool  # whether the Gram matrix is used


@torch.no_grad()
def least_squares_scale(cosines: Tensor, features: Tensor, weights: Tensor) -> Tensor:
    """Return kappa* of each sample (..., N), without gradient.

    Args:
        cosines: (..., N, C), of `features` (..., N, d) and `weights` (..., C, d).
    """
    if not cosines.shape[-2]:
        return cosines.new_empty(cosines.shape[:-1])
    return best_candidates(reconstruction_errors(cosines, features, weights)).to(cosines.dtype)


@torch.no_grad()
def batch_scale(cosines: Tensor, features: Tensor, weights: Tensor, valid: Tensor | None) -> Tensor:
    """Return the candidate with the least mean error over the batch's valid rows (..., 1).

    The arguments are those of `least_squares_scale`, with at least one row, and valid (..., N).
    """
    errors = reconstruction_errors(cosines, features, weights)
    mean = mean_over_rows(errors.doubled.unsqueeze(-1), valid).squeeze(-1)
    return best_candidates(Errors(mean, errors.by_gram)).to(cosines.dtype)


def mean_over_rows(values: Tensor, valid: Tensor | None) -> Tensor:
    """Return the (..., 1, K) means of values (..., N, K) over the valid rows, 0 without any."""
    if valid is None:
        return values.mean(-2, keepdim=True)
    rows = valid.unsqueeze(-1)
    return (values * rows).sum(-2, keepdim=True) / rows.sum(-2, keepdim=True).clamp(min=1)


@torch.no_grad()
def reconstruction_errors(cosines: Tensor, features: Tensor, weights: Tensor) -> Errors:
    """Return E of all candidates for each sample, at least one.

    With few classes for the dimensions, where that costs less, 2 E = alpha G alpha - 2 alpha z + 1
    with G the cosines between the weights, in float64, as the difference cancels most digits. Else
    the feature is rebuilt.
    """
    rows, classes = cosines.shape[-2:]
    length = features.shape[-1]
    rebuilding = len(CANDIDATES) * rows * classes * length
    by_gram = len(CANDIDATES) * rows * classes**2 + (classes + rows) * classes * length
    by_classes = 2 * by_gram < rebuilding
    gram = None
    # MPS has no float64. A few classes cost nothing, and saturate first.
    if (by_classes or classes <= FEW_CLASSES) and cosines.device.type != "mps":
        features, weights = features.double(), weights.double()
    unit, unit_weights = features / safe_norm(features), weights / safe_norm(weights)
    if unit.dtype == torch.float64:
        cosines = unit @ unit_weights.mT
        gram = unit_weights @ unit_weights.mT if by_classes else None
    kappas = _candidates(cosines.dtype, cosines.device)
    per_row = cosines[..., :1, :].numel() * cosines.element_size()
    block = max(1, CHUNK_BYTES // per_row)
    group = min(len(CANDIDATES), max(1, block // rows))
    errors = []
    for start in range(0, rows, block):
        block_rows = slice(start, start + block)
        z, x = cosines[..., block_rows, :], unit[..., block_rows, :]
        parts = [_error(z, x, unit_weights, gram, some) for some in torch.split(kappas, group)]
        errors.append(torch.cat(parts))
    return Errors(torch.cat(errors, -1), gram is not None)


@torch.no_grad()
def best_candidates(errors: Errors) -> Tensor:
    """Return the candidate with the least error for each sample (..., N).

    Among candidates within rounding of it (a zero or aligned feature) the smallest is returned.
    """
    error = errors.doubled
    smallest, eps = error.amin(0), torch.finfo(error.dtype).eps
    rounding = eps if errors.by_gram else eps * (smallest.sqrt() + eps)
    best = (error <= smallest + 8 * rounding).byte().argmax(0)
    return _candidates(error.dtype, error.device)[best]


@functools.cache
def _candidates(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the candidates (20,), cached: copying them to an accelerator blocks the host."""
    return torch.tensor(CANDIDATES, dtype=dtype, device=device)


def _error(z: Tensor, unit: Tensor, weights: Tensor, gram: Tensor | None, kappas: Tensor) -> Tensor:
    """Return 2 E of K candidates (K, ..., N), up to a constant of the sample."""
    alpha = (kappas.view(-1, *[1] * z.dim()) * z).softmax(-1)
    if gram is None:
        return (alpha @ weights).sub_(unit).pow_(2).sum(-1)
    return (alpha @ gram).sub_(2 * z).mul_(alpha).sum(-1)
