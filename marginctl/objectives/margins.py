"""Margins on the target's similarity or logit, in training alone: predictions have none."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from marginctl.objectives.similarities import bounded_rsqrt

# A number; or a tensor that broadcasts to (..., N, 1), which follows a schedule.
Number = float | Tensor


class Margin:
    """A margin given by its value; autograd gives the slope.

    A subclass defines `apply`, or `apply_with_slope` with a slope that is written out.
    """

    # before or after the scale; a margin on cosines always gets cosines
    stage: Literal["none", "similarity", "logit"] = "similarity"

    @property
    def offset(self) -> Number:
        """The constant that the published loss adds to the margin: a number, or (..., 1)."""
        return 0.0

    def apply(self, target: Tensor) -> Tensor:
        """Return the target's similarity or logit (..., N, 1) with the margin."""
        return self.apply_with_slope(target)[0]

    def apply_with_slope(self, target: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return `apply(target)` and its derivative, None where it is 1."""
        with torch.enable_grad():
            leaf = target.detach().requires_grad_()
            moved = self.apply(leaf)
            (slope,) = torch.autograd.grad(moved.sum(), leaf)
        return moved.detach(), slope


class NoMargin(Margin):
    """No margin."""

    stage = "none"


class AdditiveLogit(Margin):
    """The target's logit less `margin` (M-Softmax; gradient decay with beta = exp(-margin)).

    Gradient decay's J = ln(beta + sum_{c != y} e^{z_c - z_y}) is this less the margin: `offset`
    subtracts it, which changes no gradient.
    """

    stage = "logit"

    def __init__(self, margin: Number, offset: bool) -> None:
        self.margin, self.has_offset = margin, offset

    @property
    def offset(self) -> Number:
        if not self.has_offset:
            return 0.0
        return -self.margin.squeeze(-1) if isinstance(self.margin, Tensor) else -self.margin

    def apply_with_slope(self, target: Tensor) -> tuple[Tensor, Tensor | None]:
        return target - self.margin, None


class AdditiveCosine(Margin):
    """cos(theta_y) - margin for cos(theta_y) (CosFace)."""

    def __init__(self, margin: Number) -> None:
        self.margin = margin

    def apply_with_slope(self, target: Tensor) -> tuple[Tensor, Tensor | None]:
        return target - self.margin, None


class AdditiveAngle(Margin):
    """cos(theta_y + margin) for cos(theta_y) (ArcFace; ArcGrad, eq. 8).

    As cos(theta) cos(margin) - sin(theta) sin(margin), which needs no arccos: its slope at
    cos(theta) = +-1 is that of the plain loss where the margin is 0.

    Args:
        gradient: `exact`, sin(theta + margin)/sin(theta) with respect to the cosine; or
            `straight-through`, 1 at every angle, as in the most copied code.
        beyond: the form at large angles, where the formula's slope has the wrong sign: `linear`,
            cos(theta) - margin sin(margin) from theta = pi - margin (the authors' MXNet code);
            `easy`, cos(theta) from theta = pi/2 (its `easy_margin`); or `formula`, the same at
            every angle (the later PyTorch code of insightface, with a straight-through gradient).
    """

    def __init__(self, margin: Number, gradient: str, beyond: str) -> None:
        self.margin, self.gradient, self.beyond = margin, gradient, beyond

    def _cos_sin(self) -> tuple[Number, Number]:
        if isinstance(self.margin, Tensor):
            return self.margin.cos(), self.margin.sin()
        return math.cos(self.margin), math.sin(self.margin)

    def apply_with_slope(self, target: Tensor) -> tuple[Tensor, Tensor | None]:
        cos, sin = self._cos_sin()
        sin_squared = 1 - target * target
        # the threshold's slope at 0 is 0, unlike a clamp's in some versions of torch
        moved = target * cos - F.threshold(sin_squared, 0.0, 0.0).sqrt() * sin
        slope = None
        if self.gradient != "straight-through":
            slope = cos + target * bounded_rsqrt(sin_squared) * sin
        if self.beyond != "formula":
            beyond = target <= (0 if self.beyond == "easy" else -cos)
            plain = target if self.beyond == "easy" else target - self.margin * sin
            moved = torch.where(beyond, plain, moved)
            slope = None if slope is None else slope.masked_fill(beyond, 1.0)
        return moved, slope


class MultiplicativeAngle(Margin):
    """psi(theta_y) for cos(theta_y): (-1)^k cos(m theta) - 2k, theta in [k pi/m, (k+1) pi/m].

    (SphereFace, L-Softmax.) cos(m theta) is the Chebyshev polynomial T_m of the cosine, so that
    value and slope are exact at +-1 and no arccos is needed.

    Args:
        annealing: lambda: (lambda cos(theta) + psi(theta)) / (1 + lambda) is used.
    """

    def __init__(self, margin: float, annealing: Number) -> None:
        self.multiplier, self.annealing = int(margin), annealing

    def apply_with_slope(self, target: Tensor) -> tuple[Tensor, Tensor | None]:
        cosine = target.clamp(-1, 1)
        if self.multiplier == 1:
            return cosine, torch.ones_like(cosine)
        double = 2 * cosine
        before, value = cosine, double * cosine - 1  # T_1, T_2
        slope_before, slope = torch.ones_like(cosine), double  # U_0, U_1
        folds = (cosine < math.cos(math.pi / self.multiplier)).to(cosine.dtype)
        for i in range(2, self.multiplier):
            before, value = value, double * value - before
            slope_before, slope = slope, double * slope - slope_before
            folds += cosine < math.cos(i * math.pi / self.multiplier)
        sign = torch.rsub(folds % 2, 1, alpha=2)
        psi, psi_slope = torch.sub(sign * value, folds, alpha=2), sign * slope * self.multiplier
        if not isinstance(self.annealing, Tensor) and not self.annealing:
            return psi, psi_slope
        total = 1 + self.annealing
        return (self.annealing * cosine + psi) / total, (self.annealing + psi_slope) / total


class MultiplicativeDistance(Margin):
    """The target's squared distance times 1 + margin (L-GM)."""

    def __init__(self, margin: Number) -> None:
        self.margin = margin

    def apply_with_slope(self, target: Tensor) -> tuple[Tensor, Tensor | None]:
        return target * (1 + self.margin), torch.ones_like(target) * (1 + self.margin)
