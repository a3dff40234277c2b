"""The methods of the papers as data: each preset is a line that composes parts. No torch here."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from marginctl.objectives.options import Option, Value
from marginctl.objectives.schedules import Schedule, Timed, timed
from marginctl.objectives.spec import BIAS, PARTS, Part, Spec, part


@dataclass(frozen=True)
class Preset:
    """A named method: its options, the parts that it is made of, and where it was published."""

    name: str
    title: str
    formula: str
    source: str
    build: Callable[[Mapping[str, Value]], Spec]
    options: Mapping[str, Option] = field(default_factory=dict)
    origin: str | None = None  # `package version` of one from another package


def _linear(options: Mapping[str, Value]) -> Part:
    return part("linear", bias=options["bias"])


def _minus_log(beta: Value) -> Value:
    return beta.of_negative_log() if isinstance(beta, Schedule) else 0.0 - math.log(beta)


_PRESETS = (
    Preset(
        "soft",
        "Softmax cross-entropy",
        "-ln softmax(W x)_y",
        "ArcGrad, eq. 4",
        lambda o: Spec(_linear(o)),
        {"bias": BIAS},
    ),
    Preset(
        "center",
        "Softmax cross-entropy with center loss",
        "-ln softmax(W x)_y + strength/2 |x - c_y|^2",
        "ArcGrad, eqs. 5 and 6",
        lambda o: Spec(
            _linear(o),
            regularizers=(part("center", strength=o["strength"], alpha=o["alpha"]),),
        ),
        {**PARTS["regularizers"]["center"].options, "bias": BIAS},
    ),
    Preset(
        "m-soft",
        "Soft-margin softmax",
        "-ln softmax(W x - margin e_y)_y",
        "ArcGrad, reference 4",
        lambda o: Spec(_linear(o), margin=part("additive-logit", margin=o["margin"])),
        {"margin": timed(0.0, 0.5, "taken from the target's logit"), "bias": BIAS},
    ),
    Preset(
        "modified-softmax",
        "Softmax with the hard bias 1",
        "-ln softmax(W x - e_y)_y",
        "Large Margin in Softmax, eq. 15",
        lambda o: Spec(_linear(o), margin=part("additive-logit", margin=1.0)),
        {"bias": BIAS},
    ),
    Preset(
        "gradient-decay",
        "Gradient decay",
        "ln(beta + sum_{c != y} exp(z_c - z_y)), z = W x",
        "Gradient decay, J",
        lambda o: Spec(
            _linear(o),
            margin=part("additive-logit", margin=_minus_log(o["beta"]), offset=True),
        ),
        {
            "beta": Timed(
                1.0,
                "below 1 the target's gradient is concave in its probability, above 1 convex",
                minimum=0.0,
                above_minimum=True,
            ),
            "bias": BIAS,
        },
    ),
    Preset(
        "label-smoothing",
        "Label smoothing",
        "-(1 - strength) ln p_y - strength/C sum_c ln p_c, p = softmax(W x)",
        "Large Margin in Softmax, eq. 13",
        lambda o: Spec(_linear(o), regularizers=(part("label-smoothing", strength=o["strength"]),)),
        {**PARTS["regularizers"]["label-smoothing"].options, "bias": BIAS},
    ),
    Preset(
        "lm-softmax",
        "Large Margin in Softmax",
        "-ln softmax(z)_y + strength D(softmax(z_{c != y}), uniform), z = W x",
        "Large Margin in Softmax, eq. 11",
        lambda o: Spec(
            _linear(o),
            regularizers=(
                part(
                    "non-target-uniformity",
                    strength=o["strength"],
                    divergence=o["divergence"],
                ),
            ),
        ),
        {**PARTS["regularizers"]["non-target-uniformity"].options, "bias": BIAS},
    ),
    Preset(
        "hinge",
        "Multi-class hinge",
        "max(0, max_{c != y} z_c - z_y + margin), z = W x",
        "Large Margin in Softmax, eq. 1",
        lambda o: Spec(_linear(o), loss=part("hinge", margin=o["margin"])),
        {**PARTS["loss"]["hinge"].options, "bias": BIAS},
    ),
    Preset(
        "dense-hinge",
        "Dense hinge",
        "mean over c != y of max(0, z_c - z_y + margin), z = W x",
        "Large Margin in Softmax, eq. 14",
        lambda o: Spec(_linear(o), loss=part("dense-hinge", margin=o["margin"])),
        {**PARTS["loss"]["dense-hinge"].options, "bias": BIAS},
    ),
    Preset(
        "super-symmetry",
        "Softmax with super-symmetric class weights",
        "-ln softmax(W x)_y + strength/C^2 sum_{c,d} (w_c.w_d / v - T_cd)^2",
        "Large Margin in Softmax, Sec. 3; this form is our choice",
        lambda o: Spec(_linear(o), regularizers=(part("super-symmetry", strength=o["strength"]),)),
        {**PARTS["regularizers"]["super-symmetry"].options, "bias": BIAS},
    ),
    Preset(
        "l-gm",
        "Large-margin Gaussian mixture (L-GM)",
        "-ln softmax(-d)_y + strength d_y, d_c = |x - w_c|^2/2, (1 + margin) d_y in the softmax",
        "Large Margin in Softmax, reference 26",
        lambda o: Spec(
            part("gaussian"),
            margin=part("multiplicative-distance", margin=o["margin"]),
            regularizers=(part("likelihood", strength=o["strength"]),),
        ),
        {
            **PARTS["margin"]["multiplicative-distance"].options,
            **PARTS["regularizers"]["likelihood"].options,
        },
    ),
    Preset(
        "l-softmax",
        "Large-margin softmax (L-Softmax)",
        "-ln softmax(|w_c| |x| cos(theta_c))_y, with psi(theta_y) for the target's cosine",
        "Large Margin in Softmax, reference 16",
        lambda o: Spec(
            part("cosine"),
            part("feature-norm-weight-norm"),
            part("multiplicative-angle", margin=o["margin"], annealing=o["annealing"]),
        ),
        PARTS["margin"]["multiplicative-angle"].options,
    ),
    Preset(
        "sphereface",
        "SphereFace (A-Softmax)",
        "-ln softmax(|x| cos(theta))_y, with psi(theta_y) for the target's cosine",
        "ArcGrad, reference 12",
        lambda o: Spec(
            part("cosine"),
            part("feature-norm"),
            part("multiplicative-angle", margin=o["margin"], annealing=o["annealing"]),
        ),
        PARTS["margin"]["multiplicative-angle"].options,
    ),
    Preset(
        "cosine",
        "Cosine softmax (NormFace) with a fixed scale",
        "-ln softmax(scale cos(theta))_y",
        "ArcGrad, eq. 7",
        lambda o: Spec(part("cosine"), part("fixed", value=o["scale"])),
        {"scale": timed(0.0, 30.0, "multiplies the cosines (kappa)")},
    ),
    Preset(
        "cosine-learned",
        "Cosine softmax with a learned scale",
        "-ln softmax(s cos(theta))_y, ln s a parameter",
        "the logarithm, and 16 at first, are our choice",
        lambda o: Spec(part("cosine"), part("learned")),
    ),
    Preset(
        "cosine-ls",
        "Cosine softmax with the least-squares scale",
        "-ln softmax(k cos(theta))_y, k = argmin |x - sum_c softmax(k cos(theta))_c w_c|",
        "Temperature, supplement, eqs. 24 and 25",
        lambda o: Spec(part("cosine"), part("least-squares", pool=o["pool"])),
        PARTS["scale"]["least-squares"].options,
    ),
    Preset(
        "cosface",
        "CosFace",
        "-ln softmax(scale cos(theta))_y, with cos(theta_y) - margin for the target",
        "ArcGrad, reference 13",
        lambda o: Spec(
            part("cosine"),
            part("fixed", value=o["scale"]),
            part("additive-cosine", margin=o["margin"]),
        ),
        {
            "scale": timed(0.0, 64.0, "multiplies the cosines"),
            **PARTS["margin"]["additive-cosine"].options,
        },
    ),
    Preset(
        "adacos-fixed",
        "AdaCos, fixed scale",
        "-ln softmax(s cos(theta))_y, s = sqrt(2) ln(C - 1)",
        "ArcGrad, eq. 10, l = 0",
        lambda o: Spec(part("cosine"), part("adacos-fixed")),
    ),
    Preset(
        "arcface",
        "ArcFace",
        "-ln softmax(scale cos(theta))_y, with cos(theta_y + margin) for the target",
        "ArcGrad, eq. 8",
        lambda o: Spec(
            part("cosine"),
            part("fixed", value=o["scale"]),
            part(
                "additive-angle",
                margin=o["margin"],
                gradient=o["gradient"],
                beyond=o["beyond"],
            ),
        ),
        {
            "scale": timed(0.0, 20.0, "multiplies the cosines"),
            **PARTS["margin"]["additive-angle"].options,
        },
    ),
    Preset(
        "adacos",
        "AdaCos, dynamic scale",
        "-ln softmax(s cos(theta))_y, s = ln(B_avg) / cos(min(pi/4, median theta_y))",
        "ArcGrad, eq. 10",
        lambda o: Spec(part("cosine"), part("adacos")),
    ),
    Preset(
        "arcgrad",
        "ArcGrad",
        "-ln softmax(-scale theta)_y",
        "ArcGrad, eq. 11",
        lambda o: Spec(part("angle"), part("fixed", value=o["scale"])),
        {"scale": Timed(10.0, "multiplies the angles", minimum=0.0, above_minimum=True)},
    ),
)

PRESETS: dict[str, Preset] = {p.name: p for p in _PRESETS}
