"""Regularizers: penalties that are added to the loss of each sample.

A regularizer acts on one input: the features (..., N, d), the logits (..., N, C), the target's
similarity without margin (..., N, 1), or the class weights (..., C, d).
"""

import math
from typing import Literal

import torch
from torch import Tensor

from marginctl.objectives.losses import log_softmax
from marginctl.objectives.margins import Number
from marginctl.objectives.scales import Batch, State
from marginctl.objectives.similarities import row_dot, safe_norm
from marginctl.utils.distributed import all_reduce_sum, is_distributed


class Regularizer:
    """A regularizer given by its penalty; autograd gives the derivative.

    A subclass defines `penalty`. The ones below write the derivative out.

    Args:
        strength: its factor (lambda): a number, or a tensor (..., 1) that follows a schedule.
    """

    acts_on: Literal["features", "logits", "target", "weights"] = "logits"

    def __init__(self, strength: Number) -> None:
        self.strength = strength

    def init_state(self, weights: Tensor) -> State:
        """Return the state before the first batch, for class weights (..., C, d)."""
        return {}

    def update_state(self, batch: Batch, state: State) -> State:
        """Return the entries of the state that a training batch changes."""
        return {}

    def penalty(self, inputs: Tensor, targets: Tensor, state: State) -> Tensor:
        """Return (..., N) penalties, or (..., 1) for all samples, of targets (..., N)."""
        raise NotImplementedError

    def gradient(self, inputs: Tensor, targets: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """Return the penalty and its gradient with respect to the inputs."""
        with torch.enable_grad():
            leaf = inputs.detach().requires_grad_()
            penalty = self.penalty(leaf, targets, state)
            (gradient,) = torch.autograd.grad(penalty.sum(), leaf)
        return penalty.detach(), gradient.contiguous()  # autograd may give one expanded number

    def add_gradient(
        self, inputs: Tensor, targets: Tensor, state: State, total: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the penalty, and `total` with its gradient added; None is a total of zero."""
        penalty, gradient = self.gradient(inputs, targets, state)
        return penalty, gradient if total is None else total.add_(gradient)

    def add_training_gradient(
        self, batch: Batch, inputs: Tensor, state: State, total: Tensor | None
    ) -> tuple[Tensor, Tensor, State]:
        """Return what `add_gradient` and `update_state` do, which may share their work."""
        assert batch.targets is not None
        updated = self.update_state(batch, state)
        return *self.add_gradient(inputs, batch.targets, state, total), updated

    def _row_strength(self) -> Number:
        """Return the strength as a factor of (..., N, C), (..., N, d) or (..., C, d)."""
        return self.strength.unsqueeze(-1) if isinstance(self.strength, Tensor) else self.strength


class Center(Regularizer):
    """Center loss (ArcGrad, eq. 5): strength/2 |x - c_y|^2.

    The centers start at zero (our choice; the paper does not say). They are updated outside the
    optimizer after each training batch: c_j -= alpha sum_{y = j} (c_j - x) / (1 + n_j).
    """

    acts_on = "features"

    def __init__(self, strength: Number, alpha: float) -> None:
        super().__init__(strength)
        self.alpha = alpha

    def init_state(self, weights: Tensor) -> State:
        return {"centers": torch.zeros_like(weights)}

    def penalty(self, inputs: Tensor, targets: Tensor, state: State) -> Tensor:
        return self._squared_distance(inputs, targets, state)[2] * (self.strength / 2)

    def gradient(self, inputs: Tensor, targets: Tensor, state: State) -> tuple[Tensor, Tensor]:
        _, offset, square = self._squared_distance(inputs, targets, state)
        return square * (self.strength / 2), offset * self._row_strength()

    def update_state(self, batch: Batch, state: State) -> State:
        assert batch.targets is not None
        distance = self._squared_distance(batch.features, batch.targets, state)
        return self._move(*distance, batch.valid, state)

    def add_training_gradient(
        self, batch: Batch, inputs: Tensor, state: State, total: Tensor | None
    ) -> tuple[Tensor, Tensor, State]:
        assert batch.targets is not None
        rows, offset, square = self._squared_distance(inputs, batch.targets, state)
        gradient = offset * self._row_strength()
        total = gradient if total is None else total.add_(gradient)
        moved = self._move(rows, offset, square, batch.valid, state)
        return square * (self.strength / 2), total, moved

    @staticmethod
    def _squared_distance(
        features: Tensor, targets: Tensor, state: State
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the `row_index`, x - c_y (..., N, d) in new memory, and its square (..., N)."""
        rows = row_index(targets, state["centers"].shape[-2])
        offset = features - gather_rows(state["centers"], rows)
        return rows, offset, row_dot(offset, offset).squeeze(-1)

    def _move(
        self, rows: Tensor, offset: Tensor, square: Tensor, valid: Tensor | None, state: State
    ) -> State:
        """Return the moved centers; overwrites `offset`."""
        centers = state["centers"]
        # a feature that overflows, as in float16, must not stay in a center for ever
        counted = (square < torch.inf).unsqueeze(-1)
        if valid is not None:
            counted &= valid.unsqueeze(-1)
        ones = counted.to(offset.dtype)
        count = all_reduce_sum(add_to_rows(torch.zeros_like(centers[..., :1]), rows, ones))
        rate = self.alpha * ones / (1 + gather_rows(count, rows))
        step = offset.mul_(rate).masked_fill_(~counted, 0.0)
        if is_distributed():
            steps = all_reduce_sum(add_to_rows(torch.zeros_like(centers), rows, step))
            return {"centers": centers + steps}
        return {"centers": add_to_rows(centers.clone(), rows, step)}


class LabelSmoothing(Regularizer):
    """strength (z_y - mean z), which makes cross-entropy that of smoothed labels.

    -(1 - l) ln p_y - l/C sum_c ln p_c = -ln p_y + l (z_y - mean z) (Large Margin, eq. 13).
    """

    def penalty(self, inputs: Tensor, targets: Tensor, state: State) -> Tensor:
        target_logit = inputs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        return self.strength * (target_logit - inputs.mean(-1))

    def add_gradient(
        self, inputs: Tensor, targets: Tensor, state: State, total: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        total = torch.zeros_like(inputs) if total is None else total
        strength, index = self._row_strength(), targets.unsqueeze(-1)
        total -= strength / inputs.shape[-1]
        total.scatter_(-1, index, total.gather(-1, index) + strength)
        return self.penalty(inputs, targets, state), total


class NonTargetUniformity(Regularizer):
    """strength x divergence between q, the softmax over c != y, and the uniform u = 1/(C - 1).

    Large Margin in Softmax's regularizer: `symmetric` is its eq. 8, `q-u` and `u-q` the two halves
    of eq. 10. With two classes there is one non-target class, and the divergence is exactly 0.
    """

    def __init__(self, strength: Number, divergence: str) -> None:
        super().__init__(strength)
        weights = {"q-u": (1.0, 0.0), "u-q": (0.0, 1.0), "symmetric": (0.5, 0.5)}
        self.weight_qu, self.weight_uq = weights[divergence]

    def penalty(self, inputs: Tensor, targets: Tensor, state: State) -> Tensor:
        log_q, q = self._non_target(inputs, targets)
        return self.strength * self._divergence(log_q, row_dot(q, log_q).squeeze(-1))

    def add_gradient(
        self, inputs: Tensor, targets: Tensor, state: State, total: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        total = torch.zeros_like(inputs) if total is None else total
        index, strength = targets.unsqueeze(-1), self._row_strength()
        log_q, q = self._non_target(inputs, targets)
        negative_entropy = row_dot(q, log_q)
        divergence = self._divergence(log_q, negative_entropy.squeeze(-1))
        # q (log_q - negative entropy) of D(q|u), and q - u of D(u|q), as one factor of q
        log_q.sub_(negative_entropy).mul_(self.weight_qu).add_(self.weight_uq)
        target_total = total.gather(-1, index)
        if isinstance(strength, Tensor):
            total.addcmul_(q, log_q * strength)
        else:
            total.addcmul_(q, log_q, value=strength)
        if self.weight_uq:
            total -= strength * (self.weight_uq / (inputs.shape[-1] - 1))
        total.scatter_(-1, index, target_total)
        return self.strength * divergence, total

    @staticmethod
    def _non_target(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return ln q and q; both are 0 for the target, so that it gets no gradient."""
        index = targets.unsqueeze(-1)
        target_logit = logits.gather(-1, index)
        log_q = log_softmax(logits.scatter_(-1, index, -torch.inf))
        logits.scatter_(-1, index, target_logit)  # restored: a copy would cost a pass over all
        q = log_q.exp()
        return log_q.scatter_(-1, index, 0.0), q

    def _divergence(self, log_q: Tensor, negative_entropy: Tensor) -> Tensor:
        others = log_q.shape[-1] - 1
        log_u = -math.log(others)
        total: Tensor = torch.zeros_like(negative_entropy)
        if self.weight_qu:
            total += self.weight_qu * (negative_entropy - log_u)
        if self.weight_uq:
            total += self.weight_uq * (log_u - log_q.sum(-1) / others)
        return total


class Likelihood(Regularizer):
    """strength/2 |x - mu_y|^2, with L-GM's means (the class weights)."""

    acts_on = "target"

    def penalty(self, inputs: Tensor, targets: Tensor, state: State) -> Tensor:
        return inputs.squeeze(-1) * -self.strength

    def gradient(self, inputs: Tensor, targets: Tensor, state: State) -> tuple[Tensor, Tensor]:
        slope = torch.zeros_like(inputs) - self._row_strength()
        return self.penalty(inputs, targets, state), slope


class SuperSymmetry(Regularizer):
    """Pulls class weights towards w_c.w_c = v and w_c.w_d = -v/(C - 1) (Large Margin, Sec. 3).

    strength/C^2 sum_{c,d} (w_c.w_d / v - T_cd)^2, with v the mean of |w_c|^2, T_cc = 1 and
    T_cd = -1/(C - 1). The paper's own constraint is in a supplement that is not available to us;
    this one is our choice, independent of the weights' common length. The sum is computed from the
    smaller of the two Gram matrices.
    """

    acts_on = "weights"

    def penalty(self, inputs: Tensor, targets: Tensor, state: State) -> Tensor:
        unit, _, _ = self._normalized(inputs)
        squares, target, _ = self._sums(unit)
        return self._penalty(squares, target, inputs.shape[-2])

    def gradient(self, inputs: Tensor, targets: Tensor, state: State) -> tuple[Tensor, Tensor]:
        unit, length, classes = self._normalized(inputs)
        squares, target, gram = self._sums(unit)
        product = gram @ unit if gram.shape[-1] == classes else unit @ gram
        total = product.mul_(4).add_(unit * ((target - squares) * (4 / classes)))
        total -= (classes * unit - unit.sum(-2, keepdim=True)) * (4 / (classes - 1))
        gradient = total / length * (self._row_strength() / classes**2)
        return self._penalty(squares, target, classes), gradient

    @staticmethod
    def _normalized(weights: Tensor) -> tuple[Tensor, Tensor, int]:
        """Return weights / sqrt(v), sqrt(v) (..., 1, 1), and C; weights of zero stay zero."""
        classes = weights.shape[-2]
        length = safe_norm(weights.flatten(-2)).unsqueeze(-1) / math.sqrt(classes)
        return weights / length, length, classes

    @staticmethod
    def _sums(unit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sums of G^2 and G T over all pairs (..., 1, 1), and the smaller Gram."""
        classes, length = unit.shape[-2:]
        gram = unit @ unit.mT if classes <= length else unit.mT @ unit
        all_squares = unit.square().sum((-1, -2), keepdim=True)
        square_of_sum = unit.sum(-2, keepdim=True).square().sum(-1, keepdim=True)
        target = (classes * all_squares - square_of_sum) / (classes - 1)
        return gram.square().sum((-1, -2), keepdim=True), target, gram

    def _penalty(self, squares: Tensor, target: Tensor, classes: int) -> Tensor:
        mean = ((squares - 2 * target) / classes**2).squeeze(-1) + 1 / (classes - 1)
        return mean * self.strength


def row_index(targets: Tensor, num_classes: int) -> Tensor:
    """Return each target's row (..., N) in a table (..., C, d), networks one after another.

    It is the target itself for a single network.
    """
    if targets.dim() == 1:
        return targets
    networks = targets[..., 0].numel()
    first = torch.arange(0, networks * num_classes, num_classes, device=targets.device)
    return targets + first.view(*targets.shape[:-1], 1)


def gather_rows(table: Tensor, rows: Tensor) -> Tensor:
    """Return the rows (..., N, d) of a table (..., C, d) with a `row_index`, in new memory."""
    values = table.reshape(-1, table.shape[-1]).index_select(0, rows.flatten())
    return values.view(*rows.shape, table.shape[-1])


def add_to_rows(table: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """Add values (..., N, d) to the rows of a contiguous table (..., C, d), in place."""
    flat = table.view(-1, table.shape[-1])
    flat.index_add_(0, rows.flatten(), values.reshape(-1, table.shape[-1]))
    return table
