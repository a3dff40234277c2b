"""Margins on the target's similarity or logit, in training alone: predictions have none."""

import math
from typing import Literal

import torch
from torch import Tensor

from marginctl.objectives.similarities import arccos_slope

# A number; or a tensor that broadcasts to (..., N, 1), which follows a schedule.
Number = float | Tensor


class Margin:
    """A margin given by its value; autograd gives the slope.

    A subclass defines `apply`. The ones below write the slope out.
    """

    # before or after the scale; a margin on cosines always gets cosines
    stage: Literal["none", "similarity", "logit"] = "similarity"

    @property
    def offset(self) -> Number:
        """The constant that the published loss adds to the margin: a number, or (..., 1)."""
        return 0.0

    def apply(self, target: Tensor) -> Tensor:
        """Return the target's similarity or logit (..., N, 1) with the margin."""
        raise NotImplementedError

    def slope(self, target: Tensor) -> Tensor | None:
        """Return d apply(target)/d target, None where it is 1."""
        with torch.enable_grad():
            leaf = target.detach().requires_grad_()
            total = self.apply(leaf).sum()
        return torch.autograd.grad(total, leaf)[0]


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

    def apply(self, target: Tensor) -> Tensor:
        return target - self.margin

    def slope(self, target: Tensor) -> Tensor | None:
        return None


class AdditiveCosine(Margin):
    """cos(theta_y) - margin for cos(theta_y) (CosFace)."""

    def __init__(self, margin: Number) -> None:
        self.margin = margin

    def apply(self, target: Tensor) -> Tensor:
        return target - self.margin

    def slope(self, target: Tensor) -> Tensor | None:
        return None


class AdditiveAngle(Margin):
    """cos(theta_y + margin) for cos(theta_y) (ArcFace; ArcGrad, eq. 8).

    As cos(theta) cos(margin) - sin(theta) sin(margin), which needs no arccos: its slope at
    cos(theta) = +-1 is that of the plain loss where the margin is 0.

    Args:
        gradient: `exact`, sin(theta + margin)/sin(theta) with respect to the cosine; or
            `straight-through`, 1 at every angle, as in the most copied code.
        beyond: what replaces the formula where theta + margin > pi, where its slope has the wrong
            sign: `linear`, cos(theta) - margin sin(margin); or `formula`, nothing.
    """

    def __init__(self, margin: Number, gradient: str, beyond: str) -> None:
        self.margin, self.gradient, self.beyond = margin, gradient, beyond

    def _cos_sin(self) -> tuple[Number, Number]:
        if isinstance(self.margin, Tensor):
            return self.margin.cos(), self.margin.sin()
        return math.cos(self.margin), math.sin(self.margin)

    def apply(self, target: Tensor) -> Tensor:
        cos, sin = self._cos_sin()
        moved = target * cos - (1 - target * target).clamp(min=0).sqrt() * sin
        if self.beyond == "linear":
            moved = torch.where(target < -cos, target - self.margin * sin, moved)
        return moved

    def slope(self, target: Tensor) -> Tensor | None:
        if self.gradient == "straight-through":
            return None
        cos, sin = self._cos_sin()
        slope = cos + target * arccos_slope(target) * sin
        if self.beyond == "linear":
            slope = torch.where(target < -cos, 1.0, slope)
        return slope


class MultiplicativeAngle(Margin):
    """psi(theta_y) for cos(theta_y): (-1)^k cos(m theta) - 2k, theta in [k pi/m, (k+1) pi/m].

    (SphereFace, L-Softmax.) cos(m theta) is the Chebyshev polynomial T_m of the cosine, so that
    value and slope are exact at +-1 and no arccos is needed.

    Args:
        annealing: lambda: (lambda cos(theta) + psi(theta)) / (1 + lambda) is used.
    """

    def __init__(self, margin: float, annealing: Number) -> None:
        self.multiplier, self.annealing = int(margin), annealing

    def apply(self, target: Tensor) -> Tensor:
        value, _ = self._value_and_slope(target)
        return value

    def slope(self, target: Tensor) -> Tensor | None:
        _, slope = self._value_and_slope(target)
        return slope

    def _value_and_slope(self, cosine: Tensor) -> tuple[Tensor, Tensor]:
        cosine = cosine.clamp(-1, 1)
        before, value = torch.ones_like(cosine), cosine  # T_0, T_1
        slope_before, slope = torch.zeros_like(cosine), torch.ones_like(cosine)  # U_-1, U_0
        folds = torch.zeros_like(cosine)
        for i in range(1, self.multiplier):
            before, value = value, 2 * cosine * value - before
            slope_before, slope = slope, 2 * cosine * slope - slope_before
            folds += cosine < math.cos(i * math.pi / self.multiplier)
        sign = 1 - 2 * (folds % 2)
        psi, psi_slope = sign * value - 2 * folds, sign * slope * self.multiplier
        total = 1 + self.annealing
        return (self.annealing * cosine + psi) / total, (self.annealing + psi_slope) / total


class MultiplicativeDistance(Margin):
    """The target's squared distance times 1 + margin (L-GM)."""

    def __init__(self, margin: Number) -> None:
        self.margin = margin

    def apply(self, target: Tensor) -> Tensor:
        return target * (1 + self.margin)

    def slope(self, target: Tensor) -> Tensor | None:
        return torch.ones_like(target) * (1 + self.margin)
