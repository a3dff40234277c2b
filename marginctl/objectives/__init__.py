"""Objectives: a similarity times a scale, with a margin, through a loss, plus regularizers.

Reading names and options needs no torch; `create` and `compose` import it.
"""

from typing import TYPE_CHECKING

from marginctl.errors import RequestError
from marginctl.objectives.options import Option, Value
from marginctl.objectives.parsing import available, parse, parse_preset
from marginctl.objectives.parts import (
    CROSS_ENTROPY,
    NO_MARGIN,
    NO_SCALE,
    ObjectiveSpec,
    Part,
    PartEntry,
    part,
)
from marginctl.objectives.presets import Preset
from marginctl.objectives.schedules import ScheduleOption
from marginctl.utils.plugins import Plugin

if TYPE_CHECKING:
    from torch import Tensor

    from marginctl.objectives.module import Objective

__all__ = [
    "ObjectiveSpec",
    "Option",
    "PartEntry",
    "Plugin",
    "Preset",
    "ScheduleOption",
    "available",
    "compose",
    "create",
    "part",
]


def create(
    name: str,
    num_classes: int,
    feature_dim: int,
    *,
    class_weights: "Tensor | None" = None,
    **options: Value,
) -> "Objective":
    """Return the preset `name` as an `nn.Module`.

    Args:
        name: a preset's name; or a complete objective as in a recipe, such as `arcgrad:scale=5` or
            `similarity=cosine;scale=fixed(value=30)`, without further options.
        num_classes: C, at least 2.
        feature_dim: d, the length of a feature.
        class_weights: (C,), the weight of a sample of each class; 1 by default.
        options: the preset's options; see `available()`.

    Raises:
        RequestError: an unknown preset or option, or a value outside its range.
    """
    from marginctl.objectives.module import Objective

    if not isinstance(name, str):
        raise RequestError(f"objective {name!r}: expected a name such as 'arcface'")
    complete = ":" in name or "=" in name
    if complete and options:
        raise RequestError(
            f"objective '{name}': the name has options already: add {', '.join(options)} to it"
        )
    objective = parse(name) if complete else parse_preset(name, **options)
    return Objective(objective.spec, num_classes, feature_dim, class_weights=class_weights)


def compose(
    num_classes: int,
    feature_dim: int,
    *,
    similarity: Part,
    scale: Part = NO_SCALE,
    margin: Part = NO_MARGIN,
    loss: Part = CROSS_ENTROPY,
    regularizers: tuple[Part, ...] = (),
    class_weights: "Tensor | None" = None,
) -> "Objective":
    """Return an objective of parts, each written as `part(kind, option=value)`."""
    from marginctl.objectives.module import Objective

    several = regularizers if isinstance(regularizers, tuple | list) else (regularizers,)
    for given in (similarity, scale, margin, loss, *several):
        if not isinstance(given, Part):
            raise RequestError(f"compose: {given!r}: expected a part, such as part('cosine')")
    spec = ObjectiveSpec(similarity, scale, margin, loss, tuple(several))
    return Objective(spec, num_classes, feature_dim, class_weights=class_weights)
