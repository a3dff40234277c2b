"""How the parts of an objective are put together: the logits, the loss, and its derivative."""

from typing import NamedTuple

import torch
from torch import Tensor

from marginctl.objectives.losses import Loss
from marginctl.objectives.margins import Margin
from marginctl.objectives.regularizers import Regularizer, add_to_rows, rows_of
from marginctl.objectives.scales import Batch, FeatureNormWeightNorm, Scale, State
from marginctl.objectives.similarities import Saved, Similarity


class Parts(NamedTuple):
    """The five parts of an objective, with their options at one moment of the training."""

    similarity: Similarity
    scale: Scale
    margin: Margin
    loss: Loss
    regularizers: list[Regularizer]


class Logits(NamedTuple):
    """The logits that the loss sees, and what their derivative needs."""

    value: Tensor  # (..., N, C), with the margin
    own: Tensor  # (..., N, 1), the target's similarity
    own_logit: Tensor  # (..., N, 1), the target's logit before a margin on logits
    factor: Tensor | float  # the scale
    slope: Tensor | None  # (..., N, 1), the margin's; None is 1
    of_length: Tensor | None  # (..., N, 1), d own_logit / d |w_y| over the factor
    saved: Saved


class Pull(NamedTuple):
    """The derivatives of each sample's loss, before it is known what the samples count."""

    product: Tensor  # (..., N, C), of the similarity's product
    targets: Tensor  # (..., N)
    saved: Saved
    scale: Tensor | None = None  # (..., N), of the scale
    features: Tensor | None = None  # (..., N, d), of the features, beside the similarity's
    weights: Tensor | None = None  # (..., C, d), of the class weights, the same for all samples
    own_length: Tensor | None = None  # (..., N, 1), of |w_y|


class Gradient(NamedTuple):
    """The gradient of sum(row_weight x loss)."""

    features: Tensor  # (..., N, d)
    weights: Tensor  # (..., C, d)
    bias: Tensor | None  # (..., C)
    log_scale: Tensor | None  # (...), of a learned scale


def training_logits(
    parts: Parts, batch: Batch, similarity: Tensor, saved: Saved, state: State
) -> Logits:
    """Scale x similarity with the margin on the target; overwrites `similarity`."""
    assert batch.targets is not None
    margin, index = parts.margin, batch.targets.unsqueeze(-1)
    factor = parts.scale.factor(batch, state)
    own = similarity.gather(-1, index)
    moved, slope, of_length = own, None, None
    if margin.stage == "similarity":
        length = None
        if isinstance(parts.scale, FeatureNormWeightNorm):  # a cosine for the margin
            assert saved.weight_norm is not None
            length = rows_of(saved.weight_norm.mT, batch.targets)
        cosine = own if length is None else own / length
        moved, slope = margin.apply(cosine), margin.slope(cosine)
        if length is not None:
            of_length = moved - cosine * (1.0 if slope is None else slope)
            moved = moved * length
    value = similarity if _is_one(factor) else similarity.mul_(factor)
    own_logit = moved * factor
    if moved is not own:
        value.scatter_(-1, index, own_logit)
    if margin.stage == "logit":
        slope = margin.slope(own_logit)
        value.scatter_(-1, index, margin.apply(own_logit))
    return Logits(value, own, own_logit, factor, slope, of_length, saved)


def evaluate(
    parts: Parts,
    features: Tensor,
    weights: Tensor,
    targets: Tensor,
    valid: Tensor | None,
    state: State,
    bias: Tensor | None,
    *,
    training: bool,
    pull: bool,
) -> tuple[Tensor, State, Pull | None]:
    """The loss of each sample, the state after, and the derivatives if they are asked for."""
    similarity, saved = parts.similarity.forward(features, weights, bias)
    batch = Batch(features, weights, similarity, targets, valid)
    after = parts.scale.observe(batch, state) if training else {}
    logits = training_logits(parts, batch, similarity, saved, {**state, **after})
    looked_at = {
        "features": features,
        "logits": logits.value,
        "target": logits.own,
        "weights": weights,
    }
    found = None
    if pull:
        loss, upstream = parts.loss.gradient(logits.value, targets)
        pulls = {"logits": upstream}
        for regularizer in parts.regularizers:
            on = regularizer.on
            penalty, pulls[on] = regularizer.add_gradient(
                looked_at[on], targets, state, pulls.get(on)
            )
            loss = loss + penalty
        found = _pull(parts, logits, targets, pulls)
    else:
        loss = parts.loss.forward(logits.value, targets)
        for regularizer in parts.regularizers:
            loss = loss + regularizer.penalty(looked_at[regularizer.on], targets, state)
    for regularizer in parts.regularizers if training else []:
        after |= regularizer.observe(features, targets, valid, state)
    return loss + parts.margin.offset, {**state, **after}, found


def _pull(parts: Parts, logits: Logits, targets: Tensor, pulls: dict[str, Tensor]) -> Pull:
    """The derivatives from those of what the loss and the regularisers look at."""
    index, upstream, factor = targets.unsqueeze(-1), pulls["logits"], logits.factor
    of_own = upstream.gather(-1, index)
    of_scale = None
    if parts.scale.pulls != "nothing":
        # of its logarithm: the logits are the factor times what it multiplies
        of_scale = torch.einsum("...c,...c->...", upstream, logits.value)
        if parts.margin.stage == "logit":
            before = logits.own_logit if logits.slope is None else logits.own_logit * logits.slope
            of_scale += (of_own * (before - logits.value.gather(-1, index))).squeeze(-1)
    if not _is_one(factor):
        upstream.mul_(factor)
        of_own = of_own * factor
    of_length = None if logits.of_length is None else of_own * logits.of_length
    if logits.slope is not None or "target" in pulls:
        of_own = of_own if logits.slope is None else of_own * logits.slope
        upstream.scatter_(-1, index, of_own + pulls.get("target", 0.0))
    return Pull(
        parts.similarity.to_product(upstream, logits.saved),
        targets,
        logits.saved._replace(cosine=None),
        of_scale,
        pulls.get("features"),
        pulls.get("weights"),
        of_length,
    )


def _is_one(factor: Tensor | float) -> bool:
    return isinstance(factor, float) and factor == 1


def backward(parts: Parts, pull: Pull, row_weight: Tensor) -> Gradient:
    """The gradient of sum(row_weight x loss); leaves `pull` as it is."""
    saved, in_rows = pull.saved, row_weight.unsqueeze(-1)
    similarity, scale = parts.similarity, parts.scale
    of_features, of_weights = similarity.backward(pull.product, saved, row_weight)
    if pull.features is not None:
        of_features = of_features.addcmul_(pull.features, in_rows)
    if pull.weights is not None:
        of_weights += pull.weights * row_weight.sum(-1)[..., None, None]
    of_log_scale = None
    if scale.pulls == "log_scale":
        assert pull.scale is not None
        of_log_scale = (pull.scale * row_weight).sum(-1)
    if scale.pulls == "feature-norm":
        assert pull.scale is not None
        assert saved.feature_norm is not None
        radial = (pull.scale.unsqueeze(-1) / saved.feature_norm).mul_(in_rows)
        of_features = of_features.addcmul_(radial, saved.features)
    if pull.own_length is not None:
        assert saved.weight_norm is not None
        own = rows_of(saved.weights, pull.targets) / rows_of(saved.weight_norm.mT, pull.targets)
        add_to_rows(of_weights, pull.targets, own.mul_(pull.own_length * in_rows))
    of_bias = (row_weight.unsqueeze(-2) @ pull.product).squeeze(-2) if similarity.has_bias else None
    return Gradient(of_features, of_weights, of_bias, of_log_scale)
