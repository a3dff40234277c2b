"""What an objective is made of: the five parts, their options, and which fit together."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

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


BIAS = Option(False, "whether the classifier has a bias")
GRADIENT = Option(
    "exact",
    "the margin's analytic gradient, or none (straight-through)",
    choices=("exact", "straight-through"),
)
BEYOND = Option(
    "linear",
    "beyond theta = pi - margin: cos(theta) - margin sin(margin), or the formula",
    choices=("linear", "formula"),
)
DIVERGENCE = Option(
    "symmetric",
    "which Kullback-Leibler divergence: eq. 8, or a half of eq. 10",
    choices=("symmetric", "q-u", "u-q"),
)


def at_least(minimum: float, default: float, help: str, maximum: float = math.inf) -> Option:
    """A number from `minimum` to `maximum`."""
    return Option(default, help, minimum=minimum, maximum=maximum)


# Every kind of every part with its options, for free composition.
PARTS: Mapping[str, Mapping[str, Mapping[str, Option]]] = {
    "similarity": {"linear": {"bias": BIAS}, "cosine": {}, "angle": {}},
    "scale": {
        "fixed": {"value": at_least(0.0, 1.0, "multiplies the similarities")},
        "adacos-fixed": {},
        "adacos": {},
    },
    "margin": {
        "none": {},
        "additive-logit": {
            "margin": Option(0.5, "taken from the target's logit"),
            "offset": Option(False, "gradient decay's constant, ln beta = -margin, in the value"),
        },
        "additive-cosine": {"margin": at_least(0.0, 0.35, "taken from the target's cosine", 2.0)},
        "additive-angle": {
            "margin": at_least(0.0, 0.1, "angle added to the target's, in radians", math.pi),
            "gradient": GRADIENT,
            "beyond": BEYOND,
        },
    },
    "loss": {
        "cross-entropy": {},
        "hinge": {"margin": at_least(0.0, 1.0, "the bias rho")},
        "dense-hinge": {"margin": at_least(0.0, 1.0, "the bias rho")},
    },
    "regularizers": {
        "center": {
            "strength": at_least(0.0, 0.02, "weight of the center term (lambda)"),
            "alpha": at_least(0.0, 0.5, "step of the centers at each batch", 1.0),
        },
        "label-smoothing": {
            "strength": at_least(0.0, 0.1, "share of the uniform label (lambda)", 1.0)
        },
        "non-target-uniformity": {
            "strength": at_least(0.0, 0.3, "weight of the regulariser (lambda)"),
            "divergence": DIVERGENCE,
        },
    },
}

# Parts that are defined on cosines alone.
ON_COSINES = ("adacos", "adacos-fixed", "additive-cosine", "additive-angle")


def check_fits(spec: Spec) -> None:
    """Refuses parts that cannot work together.

    Raises:
        RequestError: the part, and why.
    """
    on_cosines = [p for p in (spec.scale, spec.margin) if p.kind in ON_COSINES]
    if on_cosines and spec.similarity.kind != "cosine":
        raise RequestError(
            f"'{on_cosines[0].kind}' is defined on cosines and the similarity is "
            f"'{spec.similarity.kind}': use similarity 'cosine'"
        )


def accept_options(
    of: str, options: Mapping[str, Option], given: Mapping[str, object]
) -> dict[str, Value]:
    """All options with their values, defaults where none was given.

    Raises:
        RequestError: an unknown option, or a value outside its range; `of` says of what.
    """
    accepted = {key: option.default for key, option in options.items()}
    for key, value in given.items():
        option = options.get(key)
        if option is None:
            known = ", ".join(options) or "none"
            raise RequestError(
                f"{of}: unknown option '{key}': its options are {known}."
                + did_you_mean(key, options)
            )
        try:
            accepted[key] = option.accept(value)
        except ValueError:
            raise RequestError(f"{of}: {key} = {value!r}: expected {option.expected}") from None
    return accepted


def plain(value: Value) -> str:
    """A value as it is written in an objective's name."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def written_options(options: Mapping[str, Option], values: Mapping[str, Value]) -> str:
    """`option=value,option=value`: sorted, defaults dropped."""
    defaults = {key: plain(option.default) for key, option in options.items()}
    shown = {key: plain(value) for key, value in sorted(values.items())}
    return ",".join(f"{key}={text}" for key, text in shown.items() if text != defaults[key])


def untrained_for_two(spec: Spec) -> str | None:
    """Why a network with two classes learns nothing, if it does not."""
    if spec.scale.kind in ("adacos", "adacos-fixed"):
        return "scale is 0 for two classes: AdaCos cannot learn; untrained network"
    return None


def remark_for_two(spec: Spec) -> str | None:
    """What else is to be known of two classes."""
    if any(r.kind == "non-target-uniformity" for r in spec.regularizers):
        return "one non-target class: the regulariser is exactly 0"
    return None
