"""Scales: what multiplies the similarities."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from marginctl.objectives.batch_statistics import rows_of_all_ranks
from marginctl.objectives.least_squares import least_squares_scale
from marginctl.objectives.losses import log_softmax
from marginctl.objectives.theory import adacos_scale

State = dict[str, Tensor]


class Batch(NamedTuple):
    """What a scale may look at."""

    features: Tensor  # (..., N, d)
    weights: Tensor  # (..., C, d)
    similarity: Tensor  # (..., N, C), without margin
    targets: Tensor | None = None  # (..., N); None where only logits are asked for
    valid: Tensor | None = None  # (..., N): the rows that count; None means all


class Scale:
    """A factor of the similarities that no gradient flows through, unless `pulls` says so.

    Args:
        num_classes: C.
    """

    # what the factor's gradient moves: nothing, the state `log_scale`, or the features' norms
    pulls: Literal["nothing", "log_scale", "feature-norm"] = "nothing"

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def init_state(self, like: Tensor) -> State:
        """`like`: class weights (..., C, d); a scale's state has their leading shape (...)."""
        return {}

    def observe(self, batch: Batch, state: State) -> State:
        """What of the state a training batch changes."""
        return {}

    def factor(self, batch: Batch, state: State) -> Tensor | float:
        """A number, or a tensor (..., N or 1, 1)."""
        raise NotImplementedError


class Fixed(Scale):
    """A constant scale (kappa, s)."""

    def __init__(self, num_classes: int, value: float | Tensor) -> None:
        super().__init__(num_classes)
        self.value = value

    def factor(self, batch: Batch, state: State) -> Tensor | float:
        return self.value


class Learned(Scale):
    """One scale a network, trained with it: exp of the parameter `log_scale`.

    Learned as its logarithm, which keeps it positive, and starting at 16: both are our choice.
    """

    pulls = "log_scale"
    START = 16.0

    def init_state(self, like: Tensor) -> State:
        return {"log_scale": like.new_full(like.shape[:-2], math.log(self.START))}

    def factor(self, batch: Batch, state: State) -> Tensor | float:
        return state["log_scale"].exp()[..., None, None]


class AdaCosFixed(Fixed):
    """AdaCos's fixed scale sqrt(2) ln(C - 1): 0 for two classes."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, adacos_scale(num_classes))


class AdaCos(Scale):
    """AdaCos's dynamic scale (ArcGrad, eq. 10): one number a network, moved by training batches.

    s_0 = sqrt(2) ln(C - 1), then s = ln(B_avg) / cos(min(pi/4, median of theta_y)) with B_avg the
    mean over the batch of sum_{c != y} exp(s cos(theta_c)), taken at the scale before. With two
    classes s_0 = 0 and B_avg = 1, so the scale stays exactly 0 and nothing is ever learned.
    """

    def init_state(self, like: Tensor) -> State:
        return {"scale": like.new_full(like.shape[:-2], adacos_scale(self.num_classes))}

    def observe(self, batch: Batch, state: State) -> State:
        """The scale after a batch of cosines; medians and means over valid rows."""
        assert batch.targets is not None
        index = batch.targets.unsqueeze(-1)
        own = batch.similarity.gather(-1, index).squeeze(-1)
        theta = own.clamp(-1, 1).acos()
        exponent = batch.similarity * state["scale"][..., None, None]
        # The logarithm of the sum over the other classes, from one pass of a fast kernel: at C = 2
        # it is exact, the mean exactly 1, and the scale exactly 0. A rounding error there would be
        # blown up to a full step by Adam.
        exponent.scatter_(-1, index, -torch.inf)
        other = (index == 0).long()  # any class but the target
        of_other = exponent.gather(-1, other)
        log_sum = (of_other - log_softmax(exponent).gather(-1, other)).squeeze(-1)
        theta, log_sum = rows_of_all_ranks(theta), rows_of_all_ranks(log_sum)
        if batch.valid is not None:
            theta = theta.masked_fill(~batch.valid, torch.nan)
            log_sum = log_sum.masked_fill(~batch.valid, -torch.inf)
            count = batch.valid.sum(-1)
        else:
            count = theta.new_tensor(theta.shape[-1])
        peak = log_sum.amax(-1)
        mean = (log_sum - peak[..., None]).exp_().sum(-1) / count
        median = theta.nanmedian(-1).values
        scale = (mean.log() + peak) / median.clamp(max=math.pi / 4).cos()
        # a feature that overflowed, as float16 ones do, must not stay in the scale for ever
        return {"scale": torch.where(scale.isfinite(), scale, state["scale"])}

    def factor(self, batch: Batch, state: State) -> Tensor | float:
        return state["scale"][..., None, None]


class LeastSquares(Scale):
    """Each sample's kappa*, the candidate with the least reconstruction error, without gradient.

    See `least_squares_scale`. `pool`: each sample has its own, or all have the mean over the batch
    (which of the two the paper's loss has is not in the text that is to be had).
    """

    def __init__(self, num_classes: int, pool: str) -> None:
        super().__init__(num_classes)
        self.pool = pool

    def factor(self, batch: Batch, state: State) -> Tensor | float:
        found: Tensor = least_squares_scale(batch.similarity, batch.features, batch.weights)
        scale = found.unsqueeze(-1)
        if self.pool == "sample" or batch.targets is None:  # a prediction is of one sample
            return scale
        if batch.valid is None:
            return scale.mean(-2, keepdim=True)
        valid = batch.valid.unsqueeze(-1)
        return (scale * valid).sum(-2, keepdim=True) / valid.sum(-2, keepdim=True)


class FeatureNorm(Scale):
    """|x|, so that the logits are |x| cos(theta) (SphereFace)."""

    pulls = "feature-norm"

    def factor(self, batch: Batch, state: State) -> Tensor | float:
        length: Tensor = torch.linalg.vector_norm(batch.features, dim=-1, keepdim=True)
        return length


class FeatureNormWeightNorm(FeatureNorm):
    """|x| |w_c|, so that the logits are those of a linear classifier (L-Softmax).

    As |w_c| differs between classes it belongs to what is compared: the similarities are then
    |w_c| cos(theta), whose largest is the linear classifier's prediction.
    """
