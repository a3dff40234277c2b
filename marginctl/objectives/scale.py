"""Scales: what multiplies the similarities."""

import math

import torch
from torch import Tensor

from marginctl.objectives.similarity import arccos

State = dict[str, Tensor]


class Fixed:
    """A constant scale (kappa, s)."""

    def __init__(self, num_classes: int, value: float) -> None:
        self.value = value

    def init_state(self, like: Tensor) -> State:
        return {}

    def observe(
        self, similarity: Tensor, targets: Tensor, valid: Tensor | None, state: State
    ) -> State:
        return {}

    def apply(self, similarity: Tensor, state: State) -> Tensor:
        return similarity if self.value == 1 else similarity * self.value


class AdaCosFixed(Fixed):
    """AdaCos's fixed scale sqrt(2) ln(C - 1): 0 for two classes."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, math.sqrt(2) * math.log(num_classes - 1))


class AdaCos:
    """AdaCos's dynamic scale (ArcGrad, eq. 10): one number a network, moved by training batches.

    s_0 = sqrt(2) ln(C - 1), then s = ln(B_avg) / cos(min(pi/4, median of theta_y)) with B_avg the
    mean over the batch of sum_{c != y} exp(s cos(theta_c)), taken at the scale before. With two
    classes s_0 = 0 and B_avg = 1, so the scale stays exactly 0 and nothing is ever learned.
    """

    def __init__(self, num_classes: int) -> None:
        self.start = math.sqrt(2) * math.log(num_classes - 1)

    def init_state(self, like: Tensor) -> State:
        """`like`: class weights (..., C, d); the scale has their leading shape (...)."""
        return {"scale": like.new_full(like.shape[:-2], self.start)}

    @torch.no_grad()
    def observe(
        self, similarity: Tensor, targets: Tensor, valid: Tensor | None, state: State
    ) -> State:
        """The scale after a batch of cosines (..., N, C); medians and means over valid rows."""
        index = targets.unsqueeze(-1)
        theta = arccos(similarity.gather(-1, index).squeeze(-1))
        exponent = (similarity * state["scale"][..., None, None]).scatter(-1, index, -torch.inf)
        if valid is not None:
            theta = theta.masked_fill(~valid, torch.nan)
            exponent = exponent.masked_fill(~valid.unsqueeze(-1), -torch.inf)
            count = valid.sum(-1)
        else:
            count = theta.new_tensor(theta.shape[-1])
        # The mean of exp is formed before its logarithm: at C = 2 it is then exactly 1, and the
        # scale exactly 0. A rounding error there would be blown up to a full step by Adam.
        peak = exponent.amax((-1, -2))
        mean = (exponent - peak[..., None, None]).exp_().sum((-1, -2)) / count
        median = theta.nanmedian(-1).values
        return {"scale": (mean.log() + peak) / median.clamp(max=math.pi / 4).cos()}

    def apply(self, similarity: Tensor, state: State) -> Tensor:
        return similarity * state["scale"][..., None, None]


SCALES = {"fixed": Fixed, "adacos-fixed": AdaCosFixed, "adacos": AdaCos}
