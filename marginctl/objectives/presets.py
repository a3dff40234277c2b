"""The methods of the papers as data: each preset composes parts. No torch here."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from marginctl.errors import RequestError
from marginctl.objectives.options import Option, Value
from marginctl.objectives.parts import (
    ADDITIVE_ANGLE,
    ADDITIVE_COSINE,
    BIAS,
    CENTER,
    HINGE,
    LABEL_SMOOTHING,
    LIKELIHOOD,
    MULTIPLICATIVE_ANGLE,
    MULTIPLICATIVE_DISTANCE,
    NON_TARGET_UNIFORMITY,
    POOL,
    SUPER_SYMMETRY,
    ObjectiveSpec,
    check_defaults,
    part,
    validate_spec,
)
from marginctl.objectives.schedules import Schedule, ScheduleOption
from marginctl.utils.registry import Registry


@dataclass(frozen=True)
class Preset:
    """A named method."""

    title: str
    formula: str
    source: str
    build: Callable[..., ObjectiveSpec]  # the options as keywords -> the parts
    options: Mapping[str, Option] = field(default_factory=dict)


def _check(name: str, preset: Preset) -> None:
    check_defaults(preset.options)
    built = preset.build(**{key: option.default for key, option in preset.options.items()})
    if not isinstance(built, ObjectiveSpec):
        raise RequestError(f"build: expected an ObjectiveSpec, got {built!r}")
    validate_spec(built)


def _negative_log(beta: Value) -> Value:
    if isinstance(beta, Schedule):
        return replace(beta, negative_log=True)
    return 0.0 - math.log(beta)  # not -0.0


def _linear_with(regularizer: str) -> Callable[..., ObjectiveSpec]:
    """Return the building function of softmax cross-entropy with a regularizer."""
    return lambda bias, **o: ObjectiveSpec(
        part("linear", bias=bias), regularizers=(part(regularizer, **o),)
    )


_SCALE_64 = {
    "scale": ScheduleOption(64.0, "multiplies the cosines", 0.0, tune=(5.0, 10.0, 20.0, 30.0, 64.0))
}

_PRESETS = {
    "soft": Preset(
        "Softmax cross-entropy",
        "-ln softmax(W x)_y",
        "Bridle 1990; without bias as in ArcGrad, eq. 4",
        lambda bias: ObjectiveSpec(part("linear", bias=bias)),
        BIAS,
    ),
    "center": Preset(
        "Softmax cross-entropy with center loss",
        "-ln softmax(W x)_y + strength/2 |x - c_y|^2",
        "Wen et al. 2016; ArcGrad, eqs. 5 and 6",
        _linear_with("center"),
        {**CENTER, **BIAS},
    ),
    "m-soft": Preset(
        "Soft-margin softmax",
        "-ln softmax(W x - margin e_y)_y",
        "Wang et al. 2018 (IJCAI), ArcGrad's reference 4",
        lambda bias, margin: ObjectiveSpec(
            part("linear", bias=bias), margin=part("additive-logit", margin=margin)
        ),
        {
            "margin": ScheduleOption(
                0.5, "taken from the target's logit", 0.0, tune=(0.25, 0.5, 1.0, 2.0)
            ),
            **BIAS,
        },
    ),
    "modified-softmax": Preset(
        "Softmax with the hard bias 1",
        "-ln softmax(W x - e_y)_y",
        "Kobayashi 2019, eq. 15",
        lambda bias: ObjectiveSpec(
            part("linear", bias=bias), margin=part("additive-logit", margin=1.0)
        ),
        BIAS,
    ),
    "gradient-decay": Preset(
        "Gradient decay",
        "ln(beta + sum_{c != y} exp(z_c - z_y)), z = W x",
        "Zhang, Xie and Chen 2022, arXiv 2210.17145; the abstract has no formula",
        lambda bias, beta: ObjectiveSpec(
            part("linear", bias=bias),
            margin=part("additive-logit", margin=_negative_log(beta), offset=True),
        ),
        {
            "beta": ScheduleOption(
                1.0,
                "below 1 the target's gradient is concave in its probability, above 1 convex",
                0.0,
                exclusive_minimum=True,
                tune=(0.01, 0.1, 1.0),
            ),
            **BIAS,
        },
    ),
    "label-smoothing": Preset(
        "Label smoothing",
        "-(1 - strength) ln p_y - strength/C sum_c ln p_c, p = softmax(W x)",
        "Szegedy et al. 2016; Kobayashi 2019, eq. 13",
        _linear_with("label-smoothing"),
        {**LABEL_SMOOTHING, **BIAS},
    ),
    "lm-softmax": Preset(
        "Large Margin in Softmax",
        "-ln softmax(z)_y + strength D(softmax(z_{c != y}), uniform), z = W x",
        "Kobayashi 2019, eq. 11",
        _linear_with("non-target-uniformity"),
        {**NON_TARGET_UNIFORMITY, **BIAS},
    ),
    "hinge": Preset(
        "Multi-class hinge",
        "max(0, max_{c != y} z_c - z_y + margin), z = W x",
        "Crammer and Singer 2001; Kobayashi 2019, eq. 1",
        lambda bias, **o: ObjectiveSpec(part("linear", bias=bias), loss=part("hinge", **o)),
        {**HINGE, **BIAS},
    ),
    "dense-hinge": Preset(
        "Dense hinge",
        "mean over c != y of max(0, z_c - z_y + margin), z = W x",
        "Kobayashi 2019, eq. 14",
        lambda bias, **o: ObjectiveSpec(part("linear", bias=bias), loss=part("dense-hinge", **o)),
        {**HINGE, **BIAS},
    ),
    "super-symmetry": Preset(
        "Softmax with super-symmetric class weights",
        "-ln softmax(W x)_y + strength/C^2 sum_{c,d} (w_c.w_d / v - T_cd)^2",
        "Kobayashi 2019, Sec. 3; this form is our choice",
        _linear_with("super-symmetry"),
        {**SUPER_SYMMETRY, **BIAS},
    ),
    "l-gm": Preset(
        "Large-margin Gaussian mixture (L-GM)",
        "-ln softmax(-d)_y + strength d_y, d_c = |x - w_c|^2/2, (1 + margin) d_y in the softmax",
        "Wan et al. 2018",
        lambda margin, strength: ObjectiveSpec(
            part("gaussian"),
            margin=part("multiplicative-distance", margin=margin),
            regularizers=(part("likelihood", strength=strength),),
        ),
        {**MULTIPLICATIVE_DISTANCE, **LIKELIHOOD},
    ),
    "l-softmax": Preset(
        "Large-margin softmax (L-Softmax)",
        "-ln softmax(|w_c| |x| cos(theta_c))_y, with psi(theta_y) for the target's cosine",
        "Liu et al. 2016",
        lambda **o: ObjectiveSpec(
            part("cosine"), part("feature-norm-weight-norm"), part("multiplicative-angle", **o)
        ),
        MULTIPLICATIVE_ANGLE,
    ),
    "sphereface": Preset(
        "SphereFace (A-Softmax)",
        "-ln softmax(|x| cos(theta))_y, with psi(theta_y) for the target's cosine",
        "Liu et al. 2017",
        lambda **o: ObjectiveSpec(
            part("cosine"), part("feature-norm"), part("multiplicative-angle", **o)
        ),
        MULTIPLICATIVE_ANGLE,
    ),
    "cosine": Preset(
        "Cosine softmax (NormFace) with a fixed scale",
        "-ln softmax(scale cos(theta))_y",
        "Wang et al. 2017; ArcGrad, eq. 7",
        lambda scale: ObjectiveSpec(part("cosine"), part("fixed", value=scale)),
        {
            "scale": ScheduleOption(
                30.0, "multiplies the cosines (kappa)", 0.0, tune=(5.0, 10.0, 20.0, 30.0)
            )
        },
    ),
    "cosine-learned": Preset(
        "Cosine softmax with a learned scale",
        "-ln softmax(s cos(theta))_y, ln s a parameter",
        "Wang et al. 2017; the logarithm, and 16 at first, are our choice",
        lambda: ObjectiveSpec(part("cosine"), part("learned")),
    ),
    "cosine-ls": Preset(
        "Cosine softmax with the least-squares scale",
        "-ln softmax(k cos(theta))_y, k = argmin |x - sum_c softmax(k cos(theta))_c w_c|",
        "Kobayashi 2025, supplement, eqs. 24, 25 and 30",
        lambda **o: ObjectiveSpec(part("cosine"), part("least-squares", **o)),
        POOL,
    ),
    "cosface": Preset(
        "CosFace",
        "-ln softmax(scale cos(theta))_y, with cos(theta_y) - margin for the target",
        "Wang et al. 2018 (CVPR)",
        lambda scale, **o: ObjectiveSpec(
            part("cosine"), part("fixed", value=scale), part("additive-cosine", **o)
        ),
        {**_SCALE_64, **ADDITIVE_COSINE},
    ),
    "adacos-fixed": Preset(
        "AdaCos, fixed scale",
        "-ln softmax(s cos(theta))_y, s = sqrt(2) ln(C - 1)",
        "Zhang et al. 2019; ArcGrad, eq. 10, l = 0",
        lambda: ObjectiveSpec(part("cosine"), part("adacos-fixed")),
    ),
    "arcface": Preset(
        "ArcFace",
        "-ln softmax(scale cos(theta))_y, with cos(theta_y + margin) for the target",
        "Deng et al. 2019; ArcGrad, eq. 8",
        lambda scale, **o: ObjectiveSpec(
            part("cosine"), part("fixed", value=scale), part("additive-angle", **o)
        ),
        {**_SCALE_64, **ADDITIVE_ANGLE},
    ),
    "adacos": Preset(
        "AdaCos, dynamic scale",
        "-ln softmax(s cos(theta))_y, s = ln(B_avg) / cos(min(pi/4, median theta_y))",
        "Zhang et al. 2019, whose angle is the median; ArcGrad, eq. 10",
        lambda: ObjectiveSpec(part("cosine"), part("adacos")),
    ),
    "arcgrad": Preset(
        "ArcGrad",
        "-ln softmax(-scale theta)_y",
        "Wu and Wang 2020, eq. 11",
        lambda scale: ObjectiveSpec(part("angle"), part("fixed", value=scale)),
        {
            "scale": ScheduleOption(
                10.0,
                "multiplies the angles",
                0.0,
                exclusive_minimum=True,
                tune=(2.0, 5.0, 10.0, 20.0, 30.0),
            )
        },
    ),
}

OTHER_NAMES = {
    "softmax": "soft",
    "cross-entropy": "soft",
    "crossentropy": "soft",
    "ce": "soft",
    "logistic": "soft",
    "center-loss": "center",
    "a-softmax": "sphereface",
    "am-softmax": "cosface",
    "cosine-softmax": "cosine",
    "normface": "cosine",
}
PRESETS = Registry(
    "preset",
    Preset,
    _PRESETS,
    label="objective",
    also="parts such as similarity=cosine;scale=fixed(value=30)",
    other_names=OTHER_NAMES,
    check=_check,
)
