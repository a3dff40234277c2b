"""What an objective is made of: the five parts, their options, and which fit together."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from marginctl.errors import RequestError
from marginctl.objectives.options import Option, Text, Value, accept_options, at_least
from marginctl.objectives.schedules import Timed, timed
from marginctl.utils.text import did_you_mean


@dataclass(frozen=True)
class Part:
    """One of the five parts of an objective: its kind and its options."""

    kind: str
    options: tuple[tuple[str, Value], ...] = ()

    def __getitem__(self, name: str) -> Value:
        return dict(self.options)[name]


def part(kind: str, **options: Value) -> Part:
    """A part of this kind with these options, all that it takes, not checked."""
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

    @property
    def parts(self) -> Iterable[tuple[str, Part]]:
        """(role, part) of all."""
        yield from (("similarity", self.similarity), ("scale", self.scale))
        yield from (("margin", self.margin), ("loss", self.loss))
        yield from (("regularizers", r) for r in self.regularizers)


@dataclass(frozen=True)
class Kind:
    """A kind of part.

    Args:
        options: what it takes.
        on: the one similarity that it is defined on, if it is.
        made_by: `module:Class` of a part from another package.
        origin: `package version` of such a part.
        other: options that stand in place of all others, once one of them is given.
    """

    options: Mapping[str, Option]
    on: str | None = None
    made_by: str | None = None
    origin: str | None = None
    other: tuple[str, ...] = ()

    def options_beside(self, of: str, given: Iterable[str]) -> Mapping[str, Option]:
        """The options that a part has, which are those that go with the given ones.

        Raises:
            RequestError: two that exclude each other; `of` says of what.
        """
        others = [key for key in given if key in self.other]
        rest = [key for key in given if key in self.options and key not in self.other]
        if others and rest:
            raise RequestError(
                f"{of}: {rest[0]} and {others[0]} exclude each other: give one of them"
            )
        unknown = [key for key in given if key not in self.options]
        return {
            key: option
            for key, option in self.options.items()
            if unknown or (key in self.other) == bool(others)
        }


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
POOL = Option(
    "sample",
    "each sample's own scale, or their mean over the batch",
    choices=("sample", "batch"),
)

# Every kind of every part with its options, for free composition.
PARTS: dict[str, dict[str, Kind]] = {
    "similarity": {
        "linear": Kind({"bias": BIAS}),
        "cosine": Kind({}),
        "angle": Kind({}),
        "gaussian": Kind({}),
    },
    "scale": {
        "fixed": Kind(
            {
                "value": timed(0.0, 1.0, "multiplies the similarities"),
                "from_run": Text(
                    None, "another objective of the recipe, or a folder of finished trials"
                ),
                "times": Option(
                    1.0, "the scale is so many times the kappa* of from_run", 0.0, math.inf, True
                ),
            },
            other=("from_run", "times"),
        ),
        "learned": Kind({}),
        "adacos-fixed": Kind({}, on="cosine"),
        "adacos": Kind({}, on="cosine"),
        "least-squares": Kind({"pool": POOL}, on="cosine"),
        "feature-norm": Kind({}, on="cosine"),
        "feature-norm-weight-norm": Kind({}, on="cosine"),
    },
    "margin": {
        "none": Kind({}),
        "additive-logit": Kind(
            {
                "margin": Timed(0.5, "taken from the target's logit"),
                "offset": Option(False, "gradient decay's constant, ln beta = -margin, added"),
            }
        ),
        "additive-cosine": Kind(
            {"margin": timed(0.0, 0.35, "taken from the target's cosine", 2.0)}, on="cosine"
        ),
        "additive-angle": Kind(
            {
                "margin": timed(0.0, 0.1, "angle added to the target's, in radians", math.pi),
                "gradient": GRADIENT,
                "beyond": BEYOND,
            },
            on="cosine",
        ),
        "multiplicative-angle": Kind(
            {
                "margin": Option(
                    4.0, "multiplies the target's angle", minimum=1.0, maximum=16.0, whole=True
                ),
                "annealing": timed(0.0, 0.0, "weight of the plain cosine beside it (lambda)"),
            },
            on="cosine",
        ),
        "multiplicative-distance": Kind(
            {"margin": timed(0.0, 0.1, "share added to the target's squared distance (alpha)")},
            on="gaussian",
        ),
    },
    "loss": {
        "cross-entropy": Kind({}),
        "hinge": Kind({"margin": timed(0.0, 1.0, "the bias rho")}),
        "dense-hinge": Kind({"margin": timed(0.0, 1.0, "the bias rho")}),
        "max-softplus": Kind({"margin": timed(0.0, 1.0, "the bias rho")}),
    },
    "regularizers": {
        "center": Kind(
            {
                "strength": timed(0.0, 0.02, "weight of the center term (lambda)"),
                "alpha": at_least(0.0, 0.5, "step of the centers at each batch", 1.0),
            }
        ),
        "label-smoothing": Kind(
            {"strength": timed(0.0, 0.1, "share of the uniform label (lambda)", 1.0)}
        ),
        "likelihood": Kind(
            {"strength": timed(0.0, 0.1, "weight of the squared distance (lambda)")}, on="gaussian"
        ),
        "non-target-uniformity": Kind(
            {
                "strength": timed(0.0, 0.3, "weight of the regulariser (lambda)"),
                "divergence": DIVERGENCE,
            }
        ),
        "super-symmetry": Kind({"strength": timed(0.0, 1.0, "weight of the regulariser (lambda)")}),
    },
}

# Why a part is defined on one similarity alone.
_DEFINED_ON = {"cosine": "cosines", "gaussian": "squared distances"}


def accept_part(role: str, kind: object, options: Mapping[str, object]) -> Part:
    """A part with all its options, defaults where none was given.

    Raises:
        RequestError: an unknown kind or option, or a value outside its range.
    """
    known = PARTS[role]
    if not isinstance(kind, str) or kind not in known:
        raise RequestError(
            f"objective: {role} = {kind!r}: expected one of {', '.join(known)}."
            + did_you_mean(str(kind), known)
        )
    of = f"objective: {role} {kind}"
    return part(kind, **accept_options(of, known[kind].options_beside(of, options), options))


def accept_spec(spec: Spec) -> Spec:
    """The parts with all their options, checked to work together.

    Raises:
        RequestError: what `accept_part` refuses, a regulariser that stands twice, or parts that
            cannot work together, and why.
    """
    made: dict[str, list[Part]] = {role: [] for role in PARTS}
    for role, given in spec.parts:
        made[role].append(accept_part(role, given.kind, dict(given.options)))
        on = PARTS[role][given.kind].on
        if on not in (None, spec.similarity.kind):
            domain = _DEFINED_ON.get(str(on), on)
            raise RequestError(
                f"objective: '{given.kind}' is defined on {domain} and the similarity is "
                f"'{spec.similarity.kind}': use similarity '{on}'"
            )
    kinds = [r.kind for r in spec.regularizers]
    if len(set(kinds)) < len(kinds):
        raise RequestError(f"objective: a regulariser stands twice: {', '.join(kinds)}")
    (similarity,), (scale,), (margin,), (loss,), regularizers = made.values()
    ordered = tuple(sorted(regularizers, key=lambda r: r.kind))
    return Spec(similarity, scale, margin, loss, ordered)


@dataclass(frozen=True)
class FromRun:
    """A fixed scale that is so many times the mean kappa* of a finished trial.

    Attributes:
        source: an objective of the same recipe, as it is written, or a path.
    """

    source: str
    times: float


def from_run(spec: Spec) -> FromRun | None:
    """Where a fixed scale is taken from, None where it is a number or no fixed one."""
    options = dict(spec.scale.options)
    return FromRun(options["from_run"], options["times"]) if "from_run" in options else None


def with_number(spec: Spec, value: float) -> Spec:
    """The parts with a fixed scale of that number in place of one that is taken from a run."""
    return replace(spec, scale=part("fixed", value=value)) if from_run(spec) else spec


def check_number(name: str, spec: Spec) -> None:
    """Refuses a scale that is taken from a run, where there is none to take it from.

    Raises:
        RequestError: it says where this works.
    """
    found = from_run(spec)
    if found is not None:
        raise RequestError(
            f"{name}: scale fixed(from_run={found.source}): expected a number here: give value; "
            "marginctl train and marginctl cosify take a scale from a run"
        )


def untrained(spec: Spec, classes: int) -> str | None:
    """Why a network with so many classes learns nothing, if it does not."""
    if classes == 2 and spec.scale.kind in ("adacos", "adacos-fixed"):
        return "scale is 0 for two classes: AdaCos cannot learn; untrained network"
    if dict(spec.scale.options).get("value") == 0:
        return "scale is 0: the loss is the same for all features; untrained network"
    return None


def remark_for_two(spec: Spec) -> str | None:
    """What else is to be known of two classes."""
    if any(r.kind == "non-target-uniformity" for r in spec.regularizers):
        return "one non-target class: the regulariser is exactly 0"
    return None
