"""The five parts of an objective: their registries, options, and which of them fit together.

No torch here: an entry names its class by import path.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from marginctl.errors import RequestError
from marginctl.objectives.options import Option, TextOption, Value, validate_options
from marginctl.objectives.schedules import ScheduleOption
from marginctl.utils.registry import Registry


@dataclass(frozen=True)
class Part:
    """One of the five parts of an objective: its kind and its options."""

    kind: str
    options: tuple[tuple[str, Value], ...] = ()

    def __getitem__(self, name: str) -> Value:
        return dict(self.options)[name]


def part(kind: str, **options: Value) -> Part:
    """Return a part of this kind with these options, not checked."""
    return Part(kind, tuple(sorted(options.items())))


NO_SCALE = part("fixed", value=1.0)
NO_MARGIN = part("none")
CROSS_ENTROPY = part("cross-entropy")


@dataclass(frozen=True)
class ObjectiveSpec:
    """The parts of an objective: similarity x scale, with a margin, through a loss."""

    similarity: Part
    scale: Part = NO_SCALE
    margin: Part = NO_MARGIN
    loss: Part = CROSS_ENTROPY
    regularizers: tuple[Part, ...] = ()

    @property
    def parts(self) -> Iterator[tuple[str, Part]]:
        """All parts as (role, part)."""
        yield "similarity", self.similarity
        yield "scale", self.scale
        yield "margin", self.margin
        yield "loss", self.loss
        for regularizer in self.regularizers:
            yield "regularizers", regularizer


@dataclass(frozen=True)
class PartEntry:
    """An entry of a part's registry.

    Args:
        path: `module:Class`, a subclass of `Similarity`, `Scale`, `Margin`, `Loss` or
            `Regularizer` that takes the options as arguments.
    """

    path: str
    options: Mapping[str, Option] = field(default_factory=dict)
    similarity: str | None = None  # the one similarity that the part is defined on, None for all
    exclusive: tuple[str, ...] = ()  # options that, once given, replace all others

    def options_with(self, owner: str, given: Iterable[str]) -> Mapping[str, Option]:
        """Return the options that go together with the given ones."""
        exclusive = [key for key in given if key in self.exclusive]
        others = [key for key in given if key in self.options and key not in self.exclusive]
        if exclusive and others:
            raise RequestError(
                f"{owner}: {others[0]} and {exclusive[0]} exclude each other: give one of them"
            )
        unknown = [key for key in given if key not in self.options]
        return {
            key: option
            for key, option in self.options.items()
            if unknown or (key in self.exclusive) == bool(exclusive)
        }


def check_defaults(options: Mapping[str, Option]) -> None:
    """Check the options of a plug-in."""
    for key, option in options.items():
        if not isinstance(option, Option):
            raise RequestError(f"option '{key}': expected Option, got {option!r}")
        if option.default is None:
            raise RequestError(f"option '{key}': expected a default")


def _registry(kind: str, entries: Mapping[str, PartEntry]) -> Registry[PartEntry]:
    return Registry(kind, PartEntry, entries, check=lambda _, entry: check_defaults(entry.options))


def _strength(
    default: float, help: str, tune: tuple[float, ...], maximum: float = math.inf
) -> dict[str, Option]:
    """Return the option `strength` of a regularizer (lambda)."""
    return {"strength": ScheduleOption(default, f"{help} (lambda)", 0.0, maximum, tune=tune)}


# Options that presets have as well.
BIAS = {"bias": Option(False, "whether the classifier has a bias")}
POOL = {
    "pool": Option(
        "sample",
        "each sample's own scale, their mean over the batch, the one scale with the least mean "
        "error over the batch, or the running mean of the batches' means",
        choices=("sample", "batch", "least-mean-error", "running-mean"),
    )
}
ADDITIVE_COSINE = {
    "margin": ScheduleOption(
        0.35, "taken from the target's cosine", 0.0, 2.0, tune=(0.1, 0.2, 0.35)
    )
}
ADDITIVE_ANGLE = {
    "margin": ScheduleOption(
        0.5, "angle added to the target's, in radians", 0.0, math.pi, tune=(0.1, 0.3, 0.5)
    ),
    "gradient": Option(
        "exact",
        "the margin's analytic gradient, or none (straight-through)",
        choices=("exact", "straight-through"),
    ),
    "beyond": Option(
        "linear",
        "linear: cos(theta) - margin sin(margin) from theta = pi - margin; easy: cos(theta) from "
        "pi/2 (easy_margin); formula: cos(theta + margin) at every angle",
        choices=("linear", "easy", "formula"),
    ),
}
MULTIPLICATIVE_ANGLE = {
    "margin": Option(4.0, "multiplies the target's angle", 1.0, 16.0, integer=True, tune=(2, 3, 4)),
    "annealing": ScheduleOption(0.0, "weight of the plain cosine (lambda)", 0.0),
}
MULTIPLICATIVE_DISTANCE = {
    "margin": ScheduleOption(
        0.1, "share added to the target's squared distance (alpha)", 0.0, tune=(0.03, 0.1, 0.3)
    )
}
HINGE = {"margin": ScheduleOption(1.0, "the bias rho", 0.0, tune=(0.3, 1.0, 3.0))}
CENTER = {
    **_strength(0.02, "weight of the center term", (0.002, 0.02, 0.2)),
    "alpha": Option(0.5, "step of the centers at each batch", 0.0, 1.0),
}
LABEL_SMOOTHING = _strength(0.1, "share of the uniform label", (0.03, 0.1, 0.2), 1.0)
LIKELIHOOD = _strength(0.1, "weight of the squared distance", (0.01, 0.1))
NON_TARGET_UNIFORMITY = {
    **_strength(0.3, "weight of the regularizer", (0.1, 0.3, 1.0)),
    "divergence": Option(
        "symmetric",
        "which Kullback-Leibler divergence: eq. 8, or a half of eq. 10",
        choices=("symmetric", "q-u", "u-q"),
    ),
}
SUPER_SYMMETRY = _strength(1.0, "weight of the regularizer", (0.1, 1.0, 10.0))

_SIMILARITY = "marginctl.objectives.similarities"
SIMILARITIES = _registry(
    "similarity",
    {
        "linear": PartEntry(f"{_SIMILARITY}:Linear", BIAS),
        "cosine": PartEntry(f"{_SIMILARITY}:Cosine"),
        "angle": PartEntry(f"{_SIMILARITY}:Angle"),
        "gaussian": PartEntry(f"{_SIMILARITY}:Gaussian"),
    },
)
_SCALE = "marginctl.objectives.scales"
SCALES = _registry(
    "scale",
    {
        "fixed": PartEntry(
            f"{_SCALE}:Fixed",
            {
                "value": ScheduleOption(1.0, "multiplies the similarities", 0.0),
                "from_run": TextOption(
                    None, "another objective of the recipe, or a folder of finished trials"
                ),
                "times": Option(
                    1.0, "the scale is so many times the kappa* of from_run", 0.0, math.inf, True
                ),
            },
            exclusive=("from_run", "times"),
        ),
        "learned": PartEntry(f"{_SCALE}:Learned"),
        "adacos-fixed": PartEntry(f"{_SCALE}:AdaCosFixed", similarity="cosine"),
        "adacos": PartEntry(f"{_SCALE}:AdaCos", similarity="cosine"),
        "least-squares": PartEntry(f"{_SCALE}:LeastSquares", POOL, "cosine"),
        "feature-norm": PartEntry(f"{_SCALE}:FeatureNorm", similarity="cosine"),
        "feature-norm-weight-norm": PartEntry(
            f"{_SCALE}:FeatureNormWeightNorm", similarity="cosine"
        ),
    },
)
_MARGIN = "marginctl.objectives.margins"
MARGINS = _registry(
    "margin",
    {
        "none": PartEntry(f"{_MARGIN}:NoMargin"),
        "additive-logit": PartEntry(
            f"{_MARGIN}:AdditiveLogit",
            {
                "margin": ScheduleOption(0.5, "taken from the target's logit"),
                "offset": Option(False, "gradient decay's constant, ln beta = -margin, added"),
            },
        ),
        "additive-cosine": PartEntry(f"{_MARGIN}:AdditiveCosine", ADDITIVE_COSINE, "cosine"),
        "additive-angle": PartEntry(f"{_MARGIN}:AdditiveAngle", ADDITIVE_ANGLE, "cosine"),
        "multiplicative-angle": PartEntry(
            f"{_MARGIN}:MultiplicativeAngle", MULTIPLICATIVE_ANGLE, "cosine"
        ),
        "multiplicative-distance": PartEntry(
            f"{_MARGIN}:MultiplicativeDistance", MULTIPLICATIVE_DISTANCE, "gaussian"
        ),
    },
)
_LOSS = "marginctl.objectives.losses"
LOSSES = _registry(
    "loss",
    {
        "cross-entropy": PartEntry(f"{_LOSS}:CrossEntropy"),
        "hinge": PartEntry(f"{_LOSS}:Hinge", HINGE),
        "dense-hinge": PartEntry(f"{_LOSS}:DenseHinge", HINGE),
        "max-softplus": PartEntry(f"{_LOSS}:MaxSoftplus", HINGE),
    },
)
_REGULARIZER = "marginctl.objectives.regularizers"
REGULARIZERS = _registry(
    "regularizer",
    {
        "center": PartEntry(f"{_REGULARIZER}:Center", CENTER),
        "label-smoothing": PartEntry(f"{_REGULARIZER}:LabelSmoothing", LABEL_SMOOTHING),
        "likelihood": PartEntry(f"{_REGULARIZER}:Likelihood", LIKELIHOOD, "gaussian"),
        "non-target-uniformity": PartEntry(
            f"{_REGULARIZER}:NonTargetUniformity", NON_TARGET_UNIFORMITY
        ),
        "super-symmetry": PartEntry(f"{_REGULARIZER}:SuperSymmetry", SUPER_SYMMETRY),
    },
)
PARTS: Mapping[str, Registry[PartEntry]] = {
    "similarity": SIMILARITIES,
    "scale": SCALES,
    "margin": MARGINS,
    "loss": LOSSES,
    "regularizers": REGULARIZERS,
}

# Why a part is defined on one similarity alone.
_DEFINED_ON = {"cosine": "cosines", "gaussian": "squared distances"}


def validate_part(role: str, kind: object, options: Mapping[str, object]) -> Part:
    """Return a part with all its options, defaults included."""
    entry = PARTS[role].find(str(kind))
    owner = f"objective: {role} {kind}"
    return part(str(kind), **validate_options(owner, entry.options_with(owner, options), options))


def validate_spec(spec: ObjectiveSpec) -> ObjectiveSpec:
    """Return the parts with all their options, or raise RequestError for parts that do not fit."""
    checked: dict[str, list[Part]] = {role: [] for role in PARTS}
    for role, given in spec.parts:
        checked[role].append(validate_part(role, given.kind, dict(given.options)))
        required = PARTS[role][given.kind].similarity
        if required not in (None, spec.similarity.kind):
            domain = _DEFINED_ON.get(str(required), required)
            raise RequestError(
                f"objective: '{given.kind}' is defined on {domain} and the similarity is "
                f"'{spec.similarity.kind}': use similarity '{required}'"
            )
    kinds = [r.kind for r in spec.regularizers]
    if len(set(kinds)) < len(kinds):
        raise RequestError(f"objective: duplicate regularizer: {', '.join(kinds)}")
    (similarity,), (scale,), (margin,), (loss,), regularizers = checked.values()
    ordered = tuple(sorted(regularizers, key=lambda r: r.kind))
    return ObjectiveSpec(similarity, scale, margin, loss, ordered)


def plugin_origins(spec: ObjectiveSpec) -> list[str]:
    """Return `package version` or `file.py digest` of every plug-in that a part comes from."""
    origins = {PARTS[role].origin(given.kind) for role, given in spec.parts}
    return sorted(origin for origin in origins if origin)


@dataclass(frozen=True)
class ScaleSource:
    """The source of a fixed scale: a multiple of the mean kappa* of a finished trial."""

    source: str  # the canonical name of an objective of the same recipe, or a path
    times: float


def scale_source(spec: ObjectiveSpec) -> ScaleSource | None:
    """Return the source of a fixed scale, None where the scale is a number or not fixed."""
    options = dict(spec.scale.options)
    return ScaleSource(options["from_run"], options["times"]) if "from_run" in options else None


def with_scale_value(spec: ObjectiveSpec, value: float) -> ObjectiveSpec:
    """Return the parts with `value` for a scale that is taken from a run, others as they are."""
    return replace(spec, scale=part("fixed", value=value)) if scale_source(spec) else spec


def check_scale_value(name: str, spec: ObjectiveSpec) -> None:
    """Refuse a scale that is taken from a run, in commands that have no such run."""
    source = scale_source(spec)
    if source is not None:
        raise RequestError(
            f"{name}: scale fixed(from_run={source.source}): expected a number here: give value; "
            "only marginctl train takes a scale from a run"
        )


def untrainable_reason(spec: ObjectiveSpec, num_classes: int) -> str | None:
    """Return why a network with so many classes learns nothing, None where it learns."""
    if num_classes == 2 and spec.scale.kind in ("adacos", "adacos-fixed"):
        return "scale is 0 for two classes: AdaCos cannot learn; untrained network"
    if dict(spec.scale.options).get("value") == 0:
        return "scale is 0: the loss is the same for all features; untrained network"
    return None


def two_class_remark(spec: ObjectiveSpec) -> str | None:
    """Return what differs with two classes, besides `untrainable_reason`."""
    if any(r.kind == "non-target-uniformity" for r in spec.regularizers):
        return "one non-target class: the regularizer is exactly 0"
    return None
