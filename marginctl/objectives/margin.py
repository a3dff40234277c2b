"""Margins: what training does to the target's similarity or logit. Predictions never see them."""

import math

import torch
from torch import Tensor

from marginctl.objectives.similarity import arccos, arccos_slope


class NoMargin:
    stage = "none"
    offset = 0.0  # a constant that the published loss has beside the margin

    def apply(self, target: Tensor) -> Tensor:
        return target

    def slope(self, target: Tensor) -> Tensor | None:
        """d apply(target)/d target, None where it is 1."""
        return None


class AdditiveLogit:
    """The target's logit less `margin` (M-Softmax; gradient decay with beta = exp(-margin)).

    Gradient decay's J = ln(beta + sum_{c != y} e^{z_c - z_y}) is this less the margin: `offset`
    makes the value J's, and changes no gradient.
    """

    stage = "logit"

    def __init__(self, margin: float, offset: bool = False) -> None:
        self.margin = margin
        self.offset = -margin if offset else 0.0

    def apply(self, target: Tensor) -> Tensor:
        return target - self.margin

    def slope(self, target: Tensor) -> Tensor | None:
        return None


class AdditiveCosine:
    """cos(theta_y) - margin for cos(theta_y) (CosFace)."""

    stage = "similarity"
    offset = 0.0

    def __init__(self, margin: float) -> None:
        self.margin = margin

    def apply(self, target: Tensor) -> Tensor:
        return target - self.margin

    def slope(self, target: Tensor) -> Tensor | None:
        return None


class AdditiveAngle:
    """cos(theta_y + margin) for cos(theta_y) (ArcFace; ArcGrad, eq. 8).

    Args:
        margin: in radians.
        gradient: `exact`, sin(theta + margin)/sin(theta) with respect to the cosine; or
            `straight-through`, 1 at every angle, as in the most copied code.
        beyond: what replaces the formula where theta + margin > pi, where its slope has the wrong
            sign: `linear`, cos(theta) - margin sin(margin); or `formula`, nothing.
    """

    stage = "similarity"
    offset = 0.0

    def __init__(self, margin: float, gradient: str, beyond: str) -> None:
        self.margin, self.gradient, self.beyond = margin, gradient, beyond

    def apply(self, target: Tensor) -> Tensor:
        theta = arccos(target)
        moved = torch.cos(theta + self.margin)
        if self.beyond == "linear":
            line = target - self.margin * math.sin(self.margin)
            moved = torch.where(theta + self.margin > math.pi, line, moved)
        if self.gradient == "straight-through":
            return target + (moved - target).detach()
        return moved

    def slope(self, target: Tensor) -> Tensor | None:
        if self.gradient == "straight-through":
            return None
        theta = arccos(target)
        slope = torch.sin(theta + self.margin) * arccos_slope(target)
        if self.beyond == "linear":
            slope = torch.where(theta + self.margin > math.pi, 1.0, slope)
        return slope


Margin = NoMargin | AdditiveLogit | AdditiveCosine | AdditiveAngle
MARGINS = {
    "none": NoMargin,
    "additive-logit": AdditiveLogit,
    "additive-cosine": AdditiveCosine,
    "additive-angle": AdditiveAngle,
}
