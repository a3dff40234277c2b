"""The methods of the papers as data: each preset is a line that composes parts. No torch here."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from marginctl.errors import RequestError
from marginctl.text import did_you_mean

Value = float | int | bool | str


@dataclass(frozen=True)
class Part:
    """One of the five parts of an objective: its kind and its options."""

    kind: str
    options: tuple[tuple[str, Value], ...] = ()

    def __getitem__(self, name: str) -> Value:
        return dict(self.options)[name]


def part(kind: str, **options: Value) -> Part:
    return Part(kind, tuple(sorted(options.items())))


NO_SCALE = part("fixed", value=1.0)
NO_MARGIN = part("none")
CROSS_ENTROPY = part("cross-entropy")


@dataclass(frozen=True)
class Spec:
    """What an objective is composed of: similarity x scale, with a margin, through a loss."""

    similarity: Part
    scale: Part = NO_SCALE
    margin: Part = NO_MARGIN
    loss: Part = CROSS_ENTROPY
    regularizers: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Option:
    """One option of a preset: its default and what it accepts."""

    default: Value
    help: str
    minimum: float = -math.inf
    maximum: float = math.inf
    above_minimum: bool = False
    choices: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if isinstance(self.default, bool):
            return "true or false"
        low = f"{'above' if self.above_minimum else 'at least'} {self.minimum:g}"
        bounds = [] if self.minimum == -math.inf else [low]
        bounds += [] if self.maximum == math.inf else [f"at most {self.maximum:g}"]
        return " ".join(["a finite number", " and ".join(bounds)]).strip()

    def accept(self, value: object) -> Value:
        """`value` with the option's own type.

        Raises:
            ValueError: it has the wrong type or lies outside the range.
        """
        if self.choices:
            if value in self.choices:
                return str(value)
            raise ValueError
        if isinstance(self.default, bool):
            if isinstance(value, bool | str) and str(value).lower() in ("true", "false"):
                return str(value).lower() == "true"
            raise ValueError
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        number = float(value)
        outside = number <= self.minimum if self.above_minimum else number < self.minimum
        if outside or number > self.maximum or not math.isfinite(number):
            raise ValueError
        return number


@dataclass(frozen=True)
class Preset:
    """A named method: its options, the parts that it is made of, and where it was published."""

    name: str
    title: str
    formula: str
    source: str
    build: Callable[[Mapping[str, Value]], Spec]
    options: Mapping[str, Option] = field(default_factory=dict)
    two_classes: str | None = None  # what is to be known of every cell with two classes
    untrained_for_two: bool = True  # whether that is that the network cannot learn


def _linear(options: Mapping[str, Value]) -> Part:
    return part("linear", bias=options["bias"])


_BIAS = Option(False, "whether the classifier has a bias")
_MARGIN_ANGLE = Option(0.1, "angle added to the target's, in radians", minimum=0.0, maximum=math.pi)

_PRESETS = (
    Preset(
        "soft",
        "Softmax cross-entropy",
        "-ln softmax(W x)_y",
        "ArcGrad, eq. 4",
        lambda o: Spec(_linear(o)),
        {"bias": _BIAS},
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
        {
            "strength": Option(0.02, "weight of the center term (lambda)", minimum=0.0),
            "alpha": Option(0.5, "step of the centers at each batch", minimum=0.0, maximum=1.0),
            "bias": _BIAS,
        },
    ),
    Preset(
        "m-soft",
        "Soft-margin softmax",
        "-ln softmax(W x - margin e_y)_y",
        "ArcGrad, reference 4",
        lambda o: Spec(_linear(o), margin=part("additive-logit", margin=o["margin"])),
        {"margin": Option(0.5, "taken from the target's logit", minimum=0.0), "bias": _BIAS},
    ),
    Preset(
        "modified-softmax",
        "Softmax with the hard bias 1",
        "-ln softmax(W x - e_y)_y",
        "Large Margin in Softmax, eq. 15",
        lambda o: Spec(_linear(o), margin=part("additive-logit", margin=1.0)),
        {"bias": _BIAS},
    ),
    Preset(
        "gradient-decay",
        "Gradient decay",
        "ln(beta + sum_{c != y} exp(z_c - z_y)), z = W x",
        "Gradient decay, J",
        lambda o: Spec(
            _linear(o),
            margin=part("additive-logit", margin=-math.log(float(o["beta"])), offset=True),
        ),
        {
            "beta": Option(
                1.0,
                "below 1 the target's gradient is concave in its probability, above 1 convex",
                minimum=0.0,
                above_minimum=True,
            ),
            "bias": _BIAS,
        },
    ),
    Preset(
        "label-smoothing",
        "Label smoothing",
        "-(1 - strength) ln p_y - strength/C sum_c ln p_c, p = softmax(W x)",
        "Large Margin in Softmax, eq. 13",
        lambda o: Spec(_linear(o), regularizers=(part("label-smoothing", strength=o["strength"]),)),
        {
            "strength": Option(
                0.1, "share of the uniform label (lambda)", minimum=0.0, maximum=1.0
            ),
            "bias": _BIAS,
        },
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
        {
            "strength": Option(0.3, "weight of the regulariser (lambda)", minimum=0.0),
            "divergence": Option(
                "symmetric",
                "which Kullback-Leibler divergence: eq. 8, or a half of eq. 10",
                choices=("symmetric", "q-u", "u-q"),
            ),
            "bias": _BIAS,
        },
        two_classes="one non-target class: the regulariser is exactly 0; the same as soft",
        untrained_for_two=False,
    ),
    Preset(
        "hinge",
        "Multi-class hinge",
        "max(0, max_{c != y} z_c - z_y + margin), z = W x",
        "Large Margin in Softmax, eq. 1",
        lambda o: Spec(_linear(o), loss=part("hinge", margin=o["margin"])),
        {"margin": Option(1.0, "the bias rho", minimum=0.0), "bias": _BIAS},
    ),
    Preset(
        "dense-hinge",
        "Dense hinge",
        "mean over c != y of max(0, z_c - z_y + margin), z = W x",
        "Large Margin in Softmax, eq. 14",
        lambda o: Spec(_linear(o), loss=part("dense-hinge", margin=o["margin"])),
        {"margin": Option(1.0, "the bias rho", minimum=0.0), "bias": _BIAS},
    ),
    Preset(
        "cosine",
        "Cosine softmax (NormFace) with a fixed scale",
        "-ln softmax(scale cos(theta))_y",
        "ArcGrad, eq. 7",
        lambda o: Spec(part("cosine"), part("fixed", value=o["scale"])),
        {"scale": Option(30.0, "multiplies the cosines (kappa)", minimum=0.0)},
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
            "scale": Option(64.0, "multiplies the cosines", minimum=0.0),
            "margin": Option(0.35, "taken from the target's cosine", minimum=0.0, maximum=2.0),
        },
    ),
    Preset(
        "adacos-fixed",
        "AdaCos, fixed scale",
        "-ln softmax(s cos(theta))_y, s = sqrt(2) ln(C - 1)",
        "ArcGrad, eq. 10, l = 0",
        lambda o: Spec(part("cosine"), part("adacos-fixed")),
        two_classes="scale is 0 for two classes: AdaCos cannot learn; untrained network",
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
            "scale": Option(20.0, "multiplies the cosines", minimum=0.0),
            "margin": _MARGIN_ANGLE,
            "gradient": Option(
                "exact",
                "the margin's analytic gradient, or none (straight-through)",
                choices=("exact", "straight-through"),
            ),
            "beyond": Option(
                "linear",
                "beyond theta = pi - margin: cos(theta) - margin sin(margin), or the formula",
                choices=("linear", "formula"),
            ),
        },
    ),
    Preset(
        "adacos",
        "AdaCos, dynamic scale",
        "-ln softmax(s cos(theta))_y, s = ln(B_avg) / cos(min(pi/4, median theta_y))",
        "ArcGrad, eq. 10",
        lambda o: Spec(part("cosine"), part("adacos")),
        two_classes="scale is 0 for two classes: AdaCos cannot learn; untrained network",
    ),
    Preset(
        "arcgrad",
        "ArcGrad",
        "-ln softmax(-scale theta)_y",
        "ArcGrad, eq. 11",
        lambda o: Spec(part("angle"), part("fixed", value=o["scale"])),
        {"scale": Option(10.0, "multiplies the angles", minimum=0.0, above_minimum=True)},
    ),
)

PRESETS: Mapping[str, Preset] = MappingProxyType({p.name: p for p in _PRESETS})


@dataclass(frozen=True)
class ObjectiveName:
    """An objective as it is written: a preset with its options, `NAME:option=value,...`."""

    preset: Preset
    options: Mapping[str, Value]  # all of them, defaults included

    @property
    def spec(self) -> Spec:
        return self.preset.build(self.options)

    def __str__(self) -> str:
        """The canonical form: options sorted, defaults dropped."""
        written = {k: _plain(v) for k, v in sorted(self.options.items())}
        defaults = {k: _plain(o.default) for k, o in self.preset.options.items()}
        options = ",".join(f"{k}={v}" for k, v in written.items() if v != defaults[k])
        return self.preset.name + (f":{options}" if options else "")

    def __reduce__(self) -> tuple[Callable[[str], "ObjectiveName"], tuple[str]]:
        return parse, (str(self),)  # presets hold functions, which do not pickle


def _plain(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def named(name: str, /, **options: object) -> ObjectiveName:
    """The preset `name` with `options`, checked.

    Raises:
        RequestError: no such preset or option, or a value outside its range.
    """
    preset = PRESETS.get(name)
    if preset is None:
        raise RequestError(
            f"unknown objective '{name}': expected one of {', '.join(PRESETS)}."
            + did_you_mean(name, PRESETS)
        )
    accepted = {key: option.default for key, option in preset.options.items()}
    for key, value in options.items():
        option = preset.options.get(key)
        if option is None:
            known = ", ".join(preset.options) or "none"
            raise RequestError(
                f"objective '{name}': unknown option '{key}': its options are {known}."
                + did_you_mean(key, preset.options)
            )
        try:
            accepted[key] = option.accept(value)
        except ValueError:
            raise RequestError(
                f"objective '{name}': {key} = {value!r}: expected {option.expected}"
            ) from None
    return ObjectiveName(preset, MappingProxyType(accepted))


def parse(text: str) -> ObjectiveName:
    """Reads `NAME:option=value,option=value`.

    Raises:
        RequestError: as `named`, or the text has another form.
    """
    name, colon, rest = text.strip().partition(":")
    options: dict[str, object] = {}
    for item in rest.split(",") if colon else []:
        key, equals, value = item.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise RequestError(
                f"objective '{text}': '{item}' is not option=value: "
                "expected NAME:option=value,option=value"
            )
        if key.strip() in options:
            raise RequestError(f"objective '{text}': option '{key.strip()}' is given twice")
        options[key.strip()] = value.strip()
    return named(name.strip(), **options)


def available() -> dict[str, dict[str, Value]]:
    """Names of all presets, each with its options and their defaults."""
    return {
        name: {key: option.default for key, option in preset.options.items()}
        for name, preset in PRESETS.items()
    }


def described(name: str) -> dict[str, Any]:
    """All that `objectives show` says of a preset, as a JSON document.

    Raises:
        RequestError: no such preset.
    """
    preset = named(name).preset
    return {
        "name": preset.name,
        "title": preset.title,
        "formula": preset.formula,
        "source": preset.source,
        "options": [
            {
                "name": key,
                "default": option.default,
                "expected": option.expected,
                "help": option.help,
            }
            for key, option in preset.options.items()
        ],
        "two_classes": preset.two_classes,
        "parts": parts_of(named(name).spec),
    }


def parts_of(spec: Spec) -> dict[str, str]:
    """The five parts in words, those that do nothing left out."""

    def words(part: Part) -> str:
        options = ", ".join(f"{k}={_plain(v)}" for k, v in part.options)
        return f"{part.kind} ({options})" if options else part.kind

    shown = {
        "similarity": words(spec.similarity),
        "scale": "" if spec.scale == NO_SCALE else words(spec.scale),
        "margin": "" if spec.margin == NO_MARGIN else words(spec.margin),
        "loss": words(spec.loss),
        "regularizers": ", ".join(words(r) for r in spec.regularizers),
    }
    return {role: text for role, text in shown.items() if text}
