"""Objectives: a similarity times a scale, with a margin, through a loss, plus regularisers.

Reading names and options needs no torch; `create` and `compose` import it.
"""

from typing import TYPE_CHECKING

from marginctl.errors import RequestError
from marginctl.objectives.options import Value
from marginctl.objectives.parsing import available, named, parse
from marginctl.objectives.spec import CROSS_ENTROPY, NO_MARGIN, NO_SCALE, Part, Spec, part

if TYPE_CHECKING:
    from torch import Tensor

    from marginctl.objectives.module import Objective

__all__ = ["available", "compose", "create", "part"]


def create(
    name: str,
    num_classes: int,
    feature_dim: int,
    *,
    class_weights: "Tensor | None" = None,
    **options: Value,
) -> "Objective":
    """The preset `name` as an `nn.Module`.

    Args:
        name: a preset's name; or a whole objective as a recipe has it, such as
            `arcgrad:scale=5` or `similarity=cosine;scale=fixed(value=30)`, without options.
        num_classes: C, at least 2.
        feature_dim: d, the length of a feature.
        class_weights: (C,), what a sample of each class counts; all the same where not given.
        options: the preset's options; see `available()`.

    Raises:
        RequestError: an unknown preset or option, or a value outside its range.
    """
    from marginctl.objectives.module import Objective

    if not isinstance(name, str):
        raise RequestError(f"objective {name!r}: expected a name such as 'arcface'")
    whole = ":" in name or "=" in name
    if whole and options:
        raise RequestError(
            f"objective '{name}': its options stand in the name: {', '.join(options)} too is not "
            "possible"
        )
    made = parse(name) if whole else named(name, **options)
    return Objective(made.spec, num_classes, feature_dim, class_weights=class_weights)


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
    """An objective from parts, each made by `part(kind, option=value)`.

    Raises:
        RequestError: a kind that does not exist, or parts that do not fit together.
    """
    from marginctl.objectives import plugins
    from marginctl.objectives.module import Objective

    plugins.load()
    several = regularizers if isinstance(regularizers, tuple | list) else (regularizers,)
    for given in (similarity, scale, margin, loss, *several):
        if not isinstance(given, Part):
            raise RequestError(f"compose: {given!r}: expected a part, such as part('cosine')")
    spec = Spec(similarity, scale, margin, loss, tuple(several))
    return Objective(spec, num_classes, feature_dim, class_weights=class_weights)
