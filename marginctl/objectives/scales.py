"""Scales: factors of the similarities."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from marginctl.objectives.least_squares import batch_scale, least_squares_scale, mean_over_rows
from marginctl.objectives.losses import log_softmax
from marginctl.objectives.theory import adacos_scale
from marginctl.utils.distributed import all_gather_rows, is_distributed

State = dict[str, Tensor]


class Batch(NamedTuple):
    """The inputs of a scale, and of the state of a regularizer."""

    features: Tensor  # (..., N, d)
    weights: Tensor  # (..., C, d)
    similarity: Tensor  # (..., N, C), without margin
    targets: Tensor | None = None  # (..., N); None for predictions
    valid: Tensor | None = None  # (..., N): the rows that count; None means all


class Scale:
    """A factor of the similarities; no gradient flows through it unless `gradient_to` says so."""

    # where the factor's gradient goes: nowhere, to the state `log_scale`, or to the feature norms
    gradient_to: Literal["nothing", "log_scale", "feature-norm"] = "nothing"

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def init_state(self, weights: Tensor) -> State:
        """Return the state before the first batch, of the leading shape of weights (..., C, d)."""
        return {}

    def update_state(self, batch: Batch, state: State) -> State:
        """Return the entries of the state that a training batch changes."""
        return {}

    def factor(self, batch: Batch, state: State) -> Tensor | float:
        """Return a number, or a tensor (..., N or 1, 1)."""
        raise NotImplementedError


class Fixed(Scale):
    """A constant scale (kappa, s)."""

    def __init__(self, num_classes: int, value: float | Tensor) -> None:
        super().__init__(num_classes)
        self.value = value

    def factor(self, batch: Batch, state: State) -> Tensor | float:
        return self.value


class Learned(Scale):
    """One trained scale per network: exp of the parameter `log_scale`.

    The logarithm keeps it positive; it starts at 16. Both are our choice.
    """

    gradient_to = "log_scale"
    START = 16.0

    def init_state(self, weights: Tensor) -> State:
        return {"log_scale": weights.new_full(weights.shape[:-2], math.log(self.START))}

    def factor(self, batch: Batch, state: State) -> Tensor | float:
        return state["log_scale"].exp()[..., None, None]


class AdaCosFixed(Fixed):
    """AdaCos's fixed scale sqrt(2) ln(C - 1): 0 for two classes."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, adacos_scale(num_classes))


class AdaCos(Scale):
    """AdaCos's dynamic scale (ArcGrad, eq. 10): one number per network, updated by each batch.

    s_0 = sqrt(2) ln(C - 1), then s = ln(B_avg) / cos(min(pi/4, median of theta_y)) with B_avg the
    mean over the batch of sum_{c != y} exp(s cos(theta_c)), at the previous scale. With two
    classes s_0 = 0 and B_avg = 1, so the scale stays exactly 0 and the network learns nothing.
    """

    def init_state(self, weights: Tensor) -> State:
        return {"scale": weights.new_full(weights.shape[:-2], adacos_scale(self.num_classes))}

    def update_state(self, batch: Batch, state: State) -> State:
        """Return the scale after a batch of cosines; medians and means over valid rows."""
        assert batch.targets is not None
        index = batch.targets.unsqueeze(-1)
        target = batch.similarity.gather(-1, index).squeeze(-1)
        theta = target.clamp(-1, 1).acos()
        exponent = batch.similarity * state["scale"][..., None, None]
        # The logarithm of the sum over the other classes, from one pass of a fast kernel: at C = 2
        # it is exact, the mean exactly 1, and the scale exactly 0. Adam would turn a rounding error
        # there into a full step.
        exponent.scatter_(-1, index, -torch.inf)
        # any class but the target: class 0, or 1 where that is the target
        other = torch.logical_not(index, out=torch.empty_like(index))
        other_exponent = exponent.gather(-1, other)
        log_sum = (other_exponent - log_softmax(exponent).gather(-1, other)).squeeze(-1)
        if is_distributed():
            theta, log_sum = all_gather_rows(torch.stack([theta, log_sum], -1)).unbind(-1)
        if batch.valid is not None:
            theta = theta.masked_fill(~batch.valid, torch.nan)
            log_sum = log_sum.masked_fill(~batch.valid, -torch.inf)
            count = batch.valid.sum(-1)
        else:
            count = theta.new_full((), theta.shape[-1])
        peak = log_sum.amax(-1)
        mean = (log_sum - peak[..., None]).exp_().sum(-1) / count
        median = theta.nanmedian(-1).values
        scale = (mean.log() + peak) / median.clamp(max=math.pi / 4).cos()
        # a feature that overflows, as in float16, must not stay in the scale for ever
        return {"scale": torch.where(scale.abs() < torch.inf, scale, state["scale"])}

    def factor(self, batch: Batch, state: State) -> Tensor | float:
        return state["scale"][..., None, None]


class LeastSquares(Scale):
    """Each sample's kappa*, the candidate with the least reconstruction error, without gradient.

    See `least_squares_scale`. The paper's abstract optimizes it at each sample (`pool` = `sample`);
    its text available to us does not say whether the loss uses one scale of a batch. Three pools
    of ours do: `batch`, the mean of its samples' kappa*; `least-mean-error`, the candidate with the
    least mean error over the batch; `running-mean`, the mean of the first ten batches' means, which
    then moves by a tenth at each batch. A scale of a batch scales training alone: predictions use
    each sample's own, and those of `running-mean` its current value, 16 before the first batch.
    """

    SHARE = 0.1

    def __init__(self, num_classes: int, pool: str) -> None:
        super().__init__(num_classes)
        self.pool = pool

    def init_state(self, weights: Tensor) -> State:
        if self.pool != "running-mean":
            return {}
        shape = weights.shape[:-2]
        scale = weights.new_full(shape, Learned.START)
        return {"scale": scale, "scale_batches": weights.new_zeros(shape)}

    def update_state(self, batch: Batch, state: State) -> State:
        """Return the running mean after a batch of cosines, unchanged where no row is valid."""
        if self.pool != "running-mean":
            return {}
        kappa = least_squares_scale(batch.similarity, batch.features, batch.weights)
        kappa = all_gather_rows(kappa).unsqueeze(-1)
        any_valid = kappa.new_ones(()) if batch.valid is None else batch.valid.any(-1).to(kappa)
        batches = state["scale_batches"] + any_valid
        share = any_valid * batches.clamp(min=1).reciprocal().clamp(min=self.SHARE)
        mean = mean_over_rows(kappa, batch.valid)[..., 0, 0]
        return {"scale": state["scale"].lerp(mean, share), "scale_batches": batches}

    def factor(self, batch: Batch, state: State) -> Tensor | float:
        if self.pool == "running-mean":
            return state["scale"][..., None, None]
        inputs = batch.similarity, batch.features, batch.weights
        pooled = self.pool != "sample" and batch.targets is not None
        if pooled and self.pool == "least-mean-error":
            return batch_scale(*inputs, batch.valid).unsqueeze(-1)
        scale = least_squares_scale(*inputs).unsqueeze(-1)
        return mean_over_rows(scale, batch.valid) if pooled else scale


class FeatureNorm(Scale):
    """|x|, so that the logits are |x| cos(theta) (SphereFace)."""

    gradient_to = "feature-norm"

    def factor(self, batch: Batch, state: State) -> Tensor | float:
        length: Tensor = torch.linalg.vector_norm(batch.features, dim=-1, keepdim=True)
        return length


class FeatureNormWeightNorm(FeatureNorm):
    """|x| |w_c|, so that the logits are those of a linear classifier (L-Softmax).

    As |w_c| differs between classes, it belongs to the similarities: they are |w_c| cos(theta),
    whose largest is the linear classifier's prediction.
    """
