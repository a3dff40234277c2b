"""Forward and backward passes of a composed objective, with written-out derivatives.

`forward_pass` gives losses and the derivatives of each sample's loss, `backward_pass` the gradient
once the samples' weights are known. The autograd functions at the end join them to torch.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from marginctl.errors import RequestError
from marginctl.objectives.losses import Loss
from marginctl.objectives.margins import Margin
from marginctl.objectives.regularizers import Regularizer, add_to_rows, gather_rows, row_index
from marginctl.objectives.scales import Batch, FeatureNormWeightNorm, Scale, State
from marginctl.objectives.similarities import Saved, Similarity, row_dot


class Parts(NamedTuple):
    """The five parts of an objective, with their options at one step of the training."""

    similarity: Similarity
    scale: Scale
    margin: Margin
    loss: Loss
    regularizers: list[Regularizer]


class Inputs(NamedTuple):
    """The tensors of a training step besides the state."""

    features: Tensor  # (..., N, d)
    weights: Tensor  # (..., C, d)
    bias: Tensor | None  # (..., C)
    targets: Tensor  # (..., N)
    valid: Tensor | None = None  # (..., N): the rows that count; None means all


class TrainingLogits(NamedTuple):
    """The logits of the loss, with the margin, and tensors for their derivative."""

    values: Tensor  # (..., N, C)
    target_similarity: Tensor | None  # (..., N, 1), where a margin or a regularizer acts on it
    target_logit: Tensor | None  # (..., N, 1), before a margin on logits; None without one
    factor: Tensor | float  # the scale
    slope: Tensor | None  # (..., N, 1), the margin's; None is 1
    weight_norm_slope: Tensor | None  # (..., N, 1), d target_logit / d |w_y| over the factor
    saved: Saved


class SampleGradients(NamedTuple):
    """The derivatives of each sample's loss, before the samples are weighted."""

    product: Tensor  # (..., N, C), of the similarity's product
    targets: Tensor  # (..., N)
    saved: Saved
    scale: Tensor | None = None  # (..., N), of the logarithm of the scale
    features: Tensor | None = None  # (..., N, d), of a regularizer on the features
    weights: Tensor | None = None  # (..., C, d), of a regularizer on the weights; for all samples
    weight_norm: Tensor | None = None  # (..., N, 1), of |w_y|


class Gradient(NamedTuple):
    """The gradient of sum(row_weight x loss)."""

    features: Tensor  # (..., N, d)
    weights: Tensor  # (..., C, d)
    bias: Tensor | None  # (..., C)
    log_scale: Tensor | None  # (...), of a learned scale


def training_logits(
    parts: Parts, batch: Batch, similarity: Tensor, saved: Saved, state: State
) -> TrainingLogits:
    """Return scale x similarity with the margin on the target; overwrites `similarity`."""
    assert batch.targets is not None
    margin, index = parts.margin, batch.targets.unsqueeze(-1)
    factor = parts.scale.factor(batch, state)
    target, target_logit, slope, weight_norm_slope = None, None, None, None
    if margin.stage == "similarity" or any(r.acts_on == "target" for r in parts.regularizers):
        target = similarity.gather(-1, index)
    values = similarity if _is_one(factor) else similarity.mul_(factor)
    if margin.stage == "similarity":
        assert target is not None
        length = None
        if isinstance(parts.scale, FeatureNormWeightNorm):  # the margin takes a cosine
            assert saved.weight_norm is not None
            length = saved.weight_norm.squeeze(-2).gather(-1, batch.targets).unsqueeze(-1)
        cosine = target if length is None else target / length
        moved, slope = margin.apply_with_slope(cosine)
        if length is not None:
            weight_norm_slope = moved - cosine * (1.0 if slope is None else slope)
            moved = moved * length
        values.scatter_(-1, index, moved if _is_one(factor) else moved * factor)
    if margin.stage == "logit":
        target_logit = values.gather(-1, index)
        moved, slope = margin.apply_with_slope(target_logit)
        values.scatter_(-1, index, moved)
    return TrainingLogits(values, target, target_logit, factor, slope, weight_norm_slope, saved)


def forward_pass(
    parts: Parts, inputs: Inputs, state: State, *, training: bool, with_gradients: bool
) -> tuple[Tensor, State, SampleGradients | None]:
    """Return the loss of each sample, the state after the batch, and the sample gradients."""
    features, weights, bias, targets, valid = inputs
    similarity, saved = parts.similarity.forward(features, weights, bias)
    batch = Batch(features, weights, similarity, targets, valid)
    updated = parts.scale.update_state(batch, state) if training else {}
    logits = training_logits(parts, batch, similarity, saved, {**state, **updated})
    acted_on = {"features": features, "logits": logits.values, "weights": weights}
    if logits.target_similarity is not None:
        acted_on["target"] = logits.target_similarity
    gradients = None
    if with_gradients:
        loss, logit_gradient = parts.loss.gradient(logits.values, targets)
        totals = {"logits": logit_gradient}
        for regularizer in parts.regularizers:
            key = regularizer.acts_on
            acted, total = acted_on[key], totals.get(key)
            if training:
                changes = regularizer.add_training_gradient(batch, acted, state, total)
                penalty, totals[key], changed = changes
                updated.update(changed)
            else:
                penalty, totals[key] = regularizer.add_gradient(acted, targets, state, total)
            loss = loss + penalty
        gradients = _sample_gradients(parts, logits, targets, totals)
    else:
        loss = parts.loss.forward(logits.values, targets)
        for regularizer in parts.regularizers:
            loss = loss + regularizer.penalty(acted_on[regularizer.acts_on], targets, state)
            if training:
                updated.update(regularizer.update_state(batch, state))
    offset = parts.margin.offset
    if isinstance(offset, Tensor) or offset:
        loss = loss + offset
    return loss, {**state, **updated}, gradients


def _sample_gradients(
    parts: Parts, logits: TrainingLogits, targets: Tensor, totals: dict[str, Tensor]
) -> SampleGradients:
    """Return the gradients from those with respect to the inputs of loss and regularizers."""
    index, upstream, factor = targets.unsqueeze(-1), totals["logits"], logits.factor
    scale_grad, weight_norm_grad = None, None
    if parts.scale.gradient_to != "nothing":
        # of its logarithm: the logits are the factor times the similarities
        scale_grad = row_dot(upstream, logits.values).squeeze(-1)
        logit = logits.target_logit
        if logit is not None:
            before = logit if logits.slope is None else logit * logits.slope
            change = before - logits.values.gather(-1, index)
            scale_grad += (upstream.gather(-1, index) * change).squeeze(-1)
    if not _is_one(factor):
        upstream.mul_(factor)
    if logits.slope is not None or "target" in totals:
        target_grad = upstream.gather(-1, index)
        if logits.weight_norm_slope is not None:
            weight_norm_grad = target_grad * logits.weight_norm_slope
        if logits.slope is not None:
            target_grad = target_grad * logits.slope
        if "target" in totals:
            target_grad = target_grad + totals["target"]
        upstream.scatter_(-1, index, target_grad)
    return SampleGradients(
        parts.similarity.product_gradient(upstream, logits.saved),
        targets,
        Saved(*logits.saved[:4]),  # without the cosine
        scale_grad,
        totals.get("features"),
        totals.get("weights"),
        weight_norm_grad,
    )


def _is_one(factor: Tensor | float) -> bool:
    return isinstance(factor, float) and factor == 1


def backward_pass(parts: Parts, gradients: SampleGradients, row_weight: Tensor) -> Gradient:
    """Return the gradient of sum(row_weight x loss); does not change `gradients`."""
    saved, column_weight = gradients.saved, row_weight.unsqueeze(-1)
    similarity, scale = parts.similarity, parts.scale
    features, weights = similarity.backward(gradients.product, saved, row_weight)
    if gradients.features is not None:
        features = features.addcmul_(gradients.features, column_weight)
    if gradients.weights is not None:
        weights = weights.addcmul_(gradients.weights, row_weight.sum(-1)[..., None, None])
    log_scale = None
    if scale.gradient_to == "log_scale":
        assert gradients.scale is not None
        log_scale = (gradients.scale * row_weight).sum(-1)
    if scale.gradient_to == "feature-norm":
        assert gradients.scale is not None
        assert saved.feature_norm is not None
        radial = (gradients.scale.unsqueeze(-1) / saved.feature_norm).mul_(column_weight)
        features = features.addcmul_(radial, saved.features)
    if gradients.weight_norm is not None:
        assert saved.weight_norm is not None
        length = saved.weight_norm.squeeze(-2).gather(-1, gradients.targets).unsqueeze(-1)
        rows = row_index(gradients.targets, weights.shape[-2])
        radial = gather_rows(saved.weights, rows)
        add_to_rows(weights, rows, radial.mul_(gradients.weight_norm * column_weight / length))
    bias = None
    if similarity.has_bias:
        bias = (row_weight.unsqueeze(-2) @ gradients.product).squeeze(-2)
    return Gradient(features, weights, bias, log_scale)


class LossFunction(torch.autograd.Function):
    """The loss of each sample and the state after the batch.

    The derivative is computed in the forward pass, while the logits are in memory, so that one
    (N, C) matrix is saved for the backward pass, which is two matrix products. A derivative that is
    to be differentiated again (`create_graph=True`) is computed again, with a graph; AdaCos's scale
    is a constant in it.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        parts_at: Callable[[State], Parts],
        num_trained: int,
        names: tuple[str, ...],
        training: bool,
        features: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        valid: Tensor | None,
        *values: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # zeros in place of the state's gradients cost a pass
        state = dict(zip(names, values, strict=True))
        parts = parts_at(state)
        inputs = Inputs(features, weights, bias, targets, valid)
        loss, after, gradients = forward_pass(
            parts, inputs, state, training=training, with_gradients=True
        )
        assert gradients is not None
        product, targets, saved, *others = gradients
        # an output must not be an input
        updated = {n: after[n] if after[n] is not state[n] else after[n].clone() for n in names}
        outputs = [updated[n] for n in names[num_trained:]]
        # the loss is that of the centers before the batch, and of the scale after it
        before = (*names[:num_trained], "centers")
        used = (state[n] if n in before else updated[n] for n in names)
        ctx.save_for_backward(*inputs, *used, product, *saved, *others)  # type: ignore[arg-type]
        ctx.parts, ctx.parts_at, ctx.names = parts, parts_at, names  # type: ignore[attr-defined]
        ctx.mark_non_differentiable(*outputs)
        return (loss, *outputs)

    @staticmethod
    def backward(ctx: Any, loss_grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if loss_grad is None:
            return (None,) * len(ctx.needs_input_grad)
        tensors = iter(ctx.saved_tensors)
        inputs = Inputs(*itertools.islice(tensors, len(Inputs._fields)))
        state = {name: next(tensors) for name in ctx.names}
        product, *others = tensors
        with torch.autocast(product.device.type, enabled=False):
            if _needs_graph():
                parts = ctx.parts_at(state)
                gradient = _with_graph(_loss_gradient, parts, inputs, state, loss_grad)
            else:
                saved, others = Saved(*others[: len(Saved._fields)]), others[len(Saved._fields) :]
                gradients = SampleGradients(product, inputs.targets, saved, *others)
                gradient = backward_pass(ctx.parts, gradients, loss_grad)
        state_grads: list[Tensor | None] = [None] * len(ctx.names)
        if gradient.log_scale is not None:
            state_grads[0] = gradient.log_scale
        input_grads = (gradient.features, gradient.weights, gradient.bias, None, None)
        return (None, None, None, None, *input_grads, *state_grads)


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
        values, saved = similarity.forward(features, weights, bias)
        ctx.save_for_backward(features, weights, bias, *saved)  # type: ignore[arg-type]
        ctx.similarity = similarity  # type: ignore[attr-defined]
        return values

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        features, weights, bias, *saved = ctx.saved_tensors
        similarity = ctx.similarity
        with torch.autocast(grad.device.type, enabled=False):
            if _needs_graph():
                gradient = _with_graph(
                    _recomputed_similarity_gradient, similarity, features, weights, bias, grad
                )
            else:
                gradient = _similarity_gradient(similarity, Saved(*saved), grad)
        return None, *gradient, grad.sum(-2) if similarity.has_bias else None


def _needs_graph() -> bool:
    """Whether the gradient is to be differentiated; a compiled graph cannot be."""
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()


def _with_graph(gradient: Callable[..., Any], parts: Any, *inputs: Any) -> Any:
    """Return `gradient(parts, *inputs)` with a graph, for parts that write their derivatives out.

    `functionalize` replaces operations in place, which overwrite what autograd saves.

    Raises:
        RequestError: a part is of a plug-in, whose derivative may have no graph.
    """
    flat = [*parts[:-1], *parts[-1]] if isinstance(parts, Parts) else [parts]
    for part in flat:
        if not type(part).__module__.startswith("marginctl."):
            raise RequestError(
                f"{type(part).__name__}: create_graph=True differentiates the gradient, which "
                "marginctl supports for its own parts only: leave this plug-in out"
            )
    return torch.func.functionalize(functools.partial(gradient, parts))(*inputs)


def _loss_gradient(parts: Parts, inputs: Inputs, state: State, row_weight: Tensor) -> Gradient:
    _, _, gradients = forward_pass(parts, inputs, state, training=False, with_gradients=True)
    assert gradients is not None
    return backward_pass(parts, gradients, row_weight)


def _similarity_gradient(
    similarity: Similarity, saved: Saved, grad: Tensor
) -> tuple[Tensor, Tensor]:
    cosine = None if saved.cosine is None else saved.cosine.clone()
    grad = similarity.product_gradient(grad.clone(), saved._replace(cosine=cosine))
    return similarity.backward(grad, saved, torch.ones_like(grad[..., 0]))


def _recomputed_similarity_gradient(
    similarity: Similarity, features: Tensor, weights: Tensor, bias: Tensor | None, grad: Tensor
) -> tuple[Tensor, Tensor]:
    return _similarity_gradient(similarity, similarity.forward(features, weights, bias)[1], grad)
