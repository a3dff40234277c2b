"""Classes of parts that other packages bring."""

import pkgutil
from typing import Any

from marginctl.errors import RequestError
from marginctl.objectives.losses import Loss
from marginctl.objectives.margins import Margin
from marginctl.objectives.regularizers import Regularizer
from marginctl.objectives.scales import Scale
from marginctl.objectives.similarities import Similarity

_BASES = {
    "similarity": Similarity,
    "scale": Scale,
    "margin": Margin,
    "loss": Loss,
    "regularizers": Regularizer,
}


def imported(path: str, kind: str, role: str) -> Any:
    """The class of a part from another package.

    Raises:
        RequestError: there is none, or one that is not below its role's base.
    """
    base = _BASES[role]
    try:
        found = pkgutil.resolve_name(path)
    except Exception as error:  # anything can happen in another package
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise RequestError(f"the part '{kind}': {path} cannot be imported: {reason}") from None
    if not (isinstance(found, type) and issubclass(found, base)):
        raise RequestError(f"the part '{kind}': {path}: expected a class below {base.__name__}")
    return found


def broken(path: str, kind: str, error: Exception) -> RequestError:
    """The error for a part that fails."""
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return RequestError(f"the part '{kind}' ({path}) fails: {reason}")
