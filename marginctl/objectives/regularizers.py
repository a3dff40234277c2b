"""Regularisers: what is added to the loss of each sample.

A regulariser looks at one thing: the features (..., N, d), the logits (..., N, C), the target's
similarity without margin (..., N, 1), or the class weights (..., C, d).
"""

import math
from typing import Literal

import torch
from torch import Tensor

from marginctl.objectives.batch_statistics import several_ranks, sum_over_ranks
from marginctl.objectives.losses import log_softmax
from marginctl.objectives.margins import Number
from marginctl.objectives.scales import State
from marginctl.objectives.similarities import norm, row_dot


class Regularizer:
    """A regulariser by its value alone: autograd gives the derivative.

    A subclass defines `penalty`; the ones below write the derivative out.

    Args:
        strength: its factor (lambda): a number, or a tensor (..., 1) that a schedule moves.
    """

    on: Literal["features", "logits", "target", "weights"] = "logits"

    def __init__(self, strength: Number) -> None:
        self.strength = strength

    def init_state(self, like: Tensor) -> State:
        """`like`: class weights (..., C, d)."""
        return {}

    def observe(
        self, features: Tensor, targets: Tensor, valid: Tensor | None, state: State
    ) -> State:
        """What of the state a training batch changes; `valid` (..., N) are the rows that count."""
        return {}

    def penalty(self, looked_at: Tensor, targets: Tensor, state: State) -> Tensor:
        """What it looks at and the targets (..., N) -> (..., N), or (..., 1) for all samples."""
        raise NotImplementedError

    def gradient(self, looked_at: Tensor, targets: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """The penalty, and its gradient with respect to what it looks at."""
        with torch.enable_grad():
            leaf = looked_at.detach().requires_grad_()
            penalty = self.penalty(leaf, targets, state)
            (gradient,) = torch.autograd.grad(penalty.sum(), leaf)
        return penalty.detach(), gradient.contiguous()  # autograd may give one expanded number

    def add_gradient(
        self, looked_at: Tensor, targets: Tensor, state: State, total: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The penalty, and `total` with its gradient added; None is a total of zero."""
        penalty, gradient = self.gradient(looked_at, targets, state)
        return penalty, gradient if total is None else total.add_(gradient)

    def _in_rows(self) -> Number:
        """The strength as a factor of (..., N, C), (..., N, d) or (..., C, d)."""
        return self.strength.unsqueeze(-1) if isinstance(self.strength, Tensor) else self.strength


class Center(Regularizer):
    """Center loss (ArcGrad, eq. 5): strength/2 |x - c_y|^2.

    The centers start at zero (our choice; the paper does not say) and are moved outside the
    optimiser after each training batch: c_j -= alpha sum_{y = j} (c_j - x) / (1 + n_j).
    """

    on = "features"

    def __init__(self, strength: Number, alpha: float) -> None:
        super().__init__(strength)
        self.alpha = alpha

    def init_state(self, like: Tensor) -> State:
        return {"centers": torch.zeros_like(like)}

    def penalty(self, looked_at: Tensor, targets: Tensor, state: State) -> Tensor:
        offset = looked_at - rows_of(state["centers"], targets)
        return offset.square().sum(-1) * (self.strength / 2)

    def gradient(self, looked_at: Tensor, targets: Tensor, state: State) -> tuple[Tensor, Tensor]:
        offset = self._offset(looked_at, targets, state)
        square = row_dot(offset, offset).squeeze(-1)
        return square * (self.strength / 2), offset.mul_(self._in_rows())

    @staticmethod
    def _offset(features: Tensor, targets: Tensor, state: State) -> Tensor:
        """x - c_y (..., N, d), in memory of its own."""
        own = rows_of(state["centers"], targets)
        return torch.sub(features, own, out=own)

    def observe(
        self, features: Tensor, targets: Tensor, valid: Tensor | None, state: State
    ) -> State:
        centers = state["centers"]
        # a feature that overflowed, as float16 ones do, must not stay in a center for ever
        counted = features.sum(-1, keepdim=True).isfinite()
        if valid is not None:
            counted &= valid.unsqueeze(-1)
        ones = counted.to(features.dtype)
        count = sum_over_ranks(add_to_rows(torch.zeros_like(centers[..., :1]), targets, ones))
        share = self.alpha * ones / (1 + rows_of(count, targets))
        pull = self._offset(features, targets, state).mul_(share).masked_fill_(~counted, 0.0)
        if several_ranks():
            moved = sum_over_ranks(add_to_rows(torch.zeros_like(centers), targets, pull))
            return {"centers": centers + moved}
        return {"centers": add_to_rows(centers.clone(), targets, pull)}


class LabelSmoothing(Regularizer):
    """strength (z_y - mean z), which turns cross-entropy into that of smoothed labels.

    -(1 - l) ln p_y - l/C sum_c ln p_c = -ln p_y + l (z_y - mean z) (Large Margin, eq. 13).
    """

    def penalty(self, looked_at: Tensor, targets: Tensor, state: State) -> Tensor:
        of_target = looked_at.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        return self.strength * (of_target - looked_at.mean(-1))

    def add_gradient(
        self, looked_at: Tensor, targets: Tensor, state: State, total: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        total = torch.zeros_like(looked_at) if total is None else total
        strength, index = self._in_rows(), targets.unsqueeze(-1)
        total -= strength / looked_at.shape[-1]
        total.scatter_(-1, index, total.gather(-1, index) + strength)
        return self.penalty(looked_at, targets, state), total


class NonTargetUniformity(Regularizer):
    """strength x divergence between q, the softmax over c != y, and the uniform u = 1/(C - 1).

    Large Margin in Softmax's regulariser: `symmetric` is its eq. 8, `q-u` and `u-q` the two halves
    of eq. 10. With two classes there is one non-target class, and the divergence is exactly 0.
    """

    def __init__(self, strength: Number, divergence: str) -> None:
        super().__init__(strength)
        self.of_qu, self.of_uq = {"q-u": (1.0, 0.0), "u-q": (0.0, 1.0), "symmetric": (0.5, 0.5)}[
            divergence
        ]

    def penalty(self, looked_at: Tensor, targets: Tensor, state: State) -> Tensor:
        log_q, q = self._others(looked_at, targets)
        return self.strength * self._divergence(log_q, row_dot(q, log_q).squeeze(-1))

    def add_gradient(
        self, looked_at: Tensor, targets: Tensor, state: State, total: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        total = torch.zeros_like(looked_at) if total is None else total
        index, strength = targets.unsqueeze(-1), self._in_rows()
        log_q, q = self._others(looked_at, targets)
        negative_entropy = row_dot(q, log_q)
        divergence = self._divergence(log_q, negative_entropy.squeeze(-1))
        # q (log_q - negative entropy) of D(q|u), and q - u of D(u|q), in one factor of q
        log_q.sub_(negative_entropy).mul_(self.of_qu).add_(self.of_uq)
        kept = total.gather(-1, index)
        if isinstance(strength, Tensor):
            total.addcmul_(q, log_q * strength)
        else:
            total.addcmul_(q, log_q, value=strength)
        if self.of_uq:
            total -= strength * (self.of_uq / (looked_at.shape[-1] - 1))
        total.scatter_(-1, index, kept)
        return self.strength * divergence, total

    @staticmethod
    def _others(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """ln q and q; both 0 for the target, so that it adds nothing and gets no gradient."""
        index = targets.unsqueeze(-1)
        own = logits.gather(-1, index)
        log_q = log_softmax(logits.scatter_(-1, index, -torch.inf))
        logits.scatter_(-1, index, own)  # as it was: a copy would be a pass over them all
        q = log_q.exp()
        return log_q.scatter_(-1, index, 0.0), q

    def _divergence(self, log_q: Tensor, negative_entropy: Tensor) -> Tensor:
        others = log_q.shape[-1] - 1
        log_u = -math.log(others)
        total: Tensor = torch.zeros_like(negative_entropy)
        if self.of_qu:
            total += self.of_qu * (negative_entropy - log_u)
        if self.of_uq:
            total += self.of_uq * (log_u - log_q.sum(-1) / others)
        return total


class Likelihood(Regularizer):
    """strength/2 |x - mu_y|^2, with L-GM's means (the class weights)."""

    on = "target"

    def penalty(self, looked_at: Tensor, targets: Tensor, state: State) -> Tensor:
        return -looked_at.squeeze(-1) * self.strength

    def gradient(self, looked_at: Tensor, targets: Tensor, state: State) -> tuple[Tensor, Tensor]:
        slope = torch.zeros_like(looked_at) - self._in_rows()
        return self.penalty(looked_at, targets, state), slope


class SuperSymmetry(Regularizer):
    """Class weights towards w_c.w_c = v and w_c.w_d = -v/(C - 1) (Large Margin, Sec. 3).

    strength/C^2 sum_{c,d} (w_c.w_d / v - T_cd)^2, with v the mean of |w_c|^2, T_cc = 1 and
    T_cd = -1/(C - 1). The paper's own constraint is in a supplement that is not to be had; this one
    is our choice, independent of the weights' common length. The sum is formed from the smaller of
    the two Gram matrices.
    """

    on = "weights"

    def penalty(self, looked_at: Tensor, targets: Tensor, state: State) -> Tensor:
        unit, _, _ = self._scaled(looked_at)
        squares, target, _ = self._sums(unit)
        return self._penalty(squares, target, looked_at.shape[-2])

    def gradient(self, looked_at: Tensor, targets: Tensor, state: State) -> tuple[Tensor, Tensor]:
        unit, length, classes = self._scaled(looked_at)
        squares, target, gram = self._sums(unit)
        product = gram @ unit if gram.shape[-1] == classes else unit @ gram
        total = product.mul_(4).add_(unit * ((target - squares) * (4 / classes)))
        total -= (classes * unit - unit.sum(-2, keepdim=True)) * (4 / (classes - 1))
        gradient = total / length * (self._in_rows() / classes**2)
        return self._penalty(squares, target, classes), gradient

    @staticmethod
    def _scaled(weights: Tensor) -> tuple[Tensor, Tensor, int]:
        """The weights over sqrt(v), sqrt(v) (..., 1, 1), and C; weights that are all zero stay."""
        classes = weights.shape[-2]
        length = norm(weights.flatten(-2)).unsqueeze(-1) / math.sqrt(classes)
        return weights / length, length, classes

    @staticmethod
    def _sums(unit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The sums of G^2 and of G T over all pairs (..., 1, 1), and the smaller Gram matrix."""
        classes, length = unit.shape[-2:]
        gram = unit @ unit.mT if classes <= length else unit.mT @ unit
        all_squares = unit.square().sum((-1, -2), keepdim=True)
        of_sum = unit.sum(-2, keepdim=True).square().sum(-1, keepdim=True)
        target = (classes * all_squares - of_sum) / (classes - 1)
        return gram.square().sum((-1, -2), keepdim=True), target, gram

    def _penalty(self, squares: Tensor, target: Tensor, classes: int) -> Tensor:
        mean = ((squares - 2 * target) / classes**2).squeeze(-1) + 1 / (classes - 1)
        return mean * self.strength


def rows_of(table: Tensor, targets: Tensor) -> Tensor:
    """table (..., C, d), targets (..., N) -> each target's row (..., N, d)."""
    rows = table.reshape(-1, table.shape[-1]).index_select(0, _flat(table, targets))
    return rows.view(*targets.shape, table.shape[-1])


def add_to_rows(table: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
    """Adds rows (..., N, d) to the targets' rows of a contiguous table (..., C, d), in place."""
    flat = table.view(-1, table.shape[-1])
    flat.index_add_(0, _flat(table, targets), rows.reshape(-1, table.shape[-1]))
    return table


def _flat(table: Tensor, targets: Tensor) -> Tensor:
    classes = table.shape[-2]
    network = torch.arange(targets[..., 0].numel(), device=targets.device) * classes
    return (targets + network.view(*targets.shape[:-1], 1)).flatten()
