"""Joins the written-out derivatives to autograd."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from marginctl.objectives.composition import Parts, Pull, backward, evaluate
from marginctl.objectives.scales import State
from marginctl.objectives.similarities import Saved, Similarity


class LossFunction(torch.autograd.Function):
    """The loss of each sample and the state after the batch.

    The derivative is taken in the forward pass, while the logits are at hand, so that one (N, C)
    matrix is kept for the backward pass, which is two matrix products.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        parts_at: Callable[[State], Parts],
        trained: int,
        names: tuple[str, ...],
        training: bool,
        features: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        valid: Tensor | None,
        *values: Tensor,
    ) -> tuple[Tensor, ...]:
        state = dict(zip(names, values, strict=True))
        parts = parts_at(state)
        loss, after, pull = evaluate(
            parts, features, weights, targets, valid, state, bias, training=training, pull=True
        )
        assert pull is not None
        product, targets, saved, *others = pull
        ctx.save_for_backward(product, targets, *saved, *others)  # type: ignore[arg-type]
        ctx.parts, ctx.states = parts, len(names)  # type: ignore[attr-defined]
        # an output must not be an input
        moved = tuple(
            after[n] if after[n] is not state[n] else after[n].clone() for n in names[trained:]
        )
        ctx.mark_non_differentiable(*moved)
        return (loss, *moved)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        product, targets, *others = ctx.saved_tensors
        saved = Saved(*others[: len(Saved._fields)])
        pull = Pull(product, targets, saved, *others[len(Saved._fields) :])
        with torch.autocast(product.device.type, enabled=False):
            found = backward(ctx.parts, pull, of_loss)
        of_state: list[Tensor | None] = [None] * ctx.states
        if found.log_scale is not None:
            of_state[0] = found.log_scale
        return (
            *(None, None, None, None, found.features, found.weights, found.bias, None, None),
            *of_state,
        )


class SimilarityFunction(torch.autograd.Function):
    """The similarities."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        similarity: Similarity,
        features: Tensor,
        weights: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        found, saved = similarity.forward(features, weights, bias)
        ctx.save_for_backward(*saved)  # type: ignore[arg-type]
        ctx.similarity = similarity  # type: ignore[attr-defined]
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved, similarity = Saved(*ctx.saved_tensors), ctx.similarity
        of_bias = grad.sum(-2) if similarity.has_bias else None
        grad = similarity.to_product(grad.clone(), saved)
        ones = torch.ones_like(grad[..., 0])
        with torch.autocast(grad.device.type, enabled=False):
            of_features, of_weights = similarity.backward(grad, saved, ones)
        return None, of_features, of_weights, of_bias
