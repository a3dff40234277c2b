"""Parts and presets from other packages, found by an entry point. No torch here.

A package names an `Extension` in its `pyproject.toml`:

    [project.entry-points."marginctl.objectives"]
    focal = "focal:EXTENSION"

Its parts are classes below `Similarity`, `Scale`, `Margin`, `Loss` or `Regularizer`; they are named
by their import path, so that torch is imported only when one is used.
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points

from marginctl.errors import RequestError
from marginctl.objectives.option import Option
from marginctl.objectives.presets import PRESETS, Preset
from marginctl.objectives.schedule import Timed, timed
from marginctl.objectives.spec import PARTS, Kind, Spec, accept_spec, part

__all__ = ["Extension", "Kind", "Option", "Preset", "Spec", "Timed", "part", "timed"]

GROUP = "marginctl.objectives"


@dataclass(frozen=True)
class Extension:
    """What a package adds.

    Args:
        parts: (role, kind) -> `Kind(options, on, made_by="module:Class")`; the roles are
            similarity, scale, margin, loss and regularizers.
        presets: named compositions, of its own parts or of the ones that are here.
    """

    parts: Mapping[tuple[str, str], Kind] = field(default_factory=dict)
    presets: Sequence[Preset] = ()


@functools.cache
def load() -> None:
    """Adds what installed packages register to `PARTS` and `PRESETS`; once in a process.

    Raises:
        RequestError: an extension that cannot be loaded or is not what it must be, or a name that
            is taken.
    """
    for point in sorted(entry_points(group=GROUP), key=lambda p: p.name):
        origin = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
        of = f"the extension '{point.name}' ({origin})"
        try:
            _add(point.load(), of, origin)
        except RequestError:
            raise
        except (Exception, SystemExit) as error:  # anything can happen in another package
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise RequestError(f"{of} cannot be loaded: {reason}. Mend or uninstall it.") from None


def _add(extension: object, of: str, origin: str) -> None:
    if not isinstance(extension, Extension):
        raise RequestError(f"{of}: expected an Extension, found {type(extension).__name__}")
    for (role, kind), made in extension.parts.items():
        _check(of, made, Kind, "the part")
        if role not in PARTS:
            raise RequestError(f"{of}: role '{role}': expected one of {', '.join(PARTS)}")
        _check_name(of, kind, PARTS[role])
        if made.made_by is None:
            raise RequestError(f"{of}: part '{kind}': made_by is missing: 'module:Class'")
        _check_options(of, kind, made.options)
        PARTS[role][kind] = replace(made, origin=origin)
    for preset in extension.presets:
        _check(of, preset, Preset, "the preset")
        _check_name(of, preset.name, PRESETS)
        _check_options(of, preset.name, preset.options)
        defaults = {key: option.default for key, option in preset.options.items()}
        built = preset.build(defaults)
        _check(of, built, Spec, f"what preset '{preset.name}' builds")
        try:
            accept_spec(built)
        except RequestError as error:
            raise RequestError(f"{of}: preset '{preset.name}': {error.lines[0]}") from None
        PRESETS[preset.name] = replace(preset, origin=origin)


def _check(of: str, value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise RequestError(f"{of}: {what}: expected {kind.__name__}, found {value!r}")


def _check_options(of: str, name: str, options: Mapping[str, Option]) -> None:
    for key, option in options.items():
        _check(of, option, Option, f"option '{key}' of '{name}'")
        if option.default is None:
            raise RequestError(f"{of}: option '{key}' of '{name}': expected a default")


def _check_name(of: str, name: str, taken: Iterable[str]) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", str(name)):
        raise RequestError(f"{of}: '{name}': expected a name of small letters, digits and hyphens")
    if name in taken:
        raise RequestError(f"{of}: the name '{name}' is taken: choose another")


def origins(spec: Spec) -> list[str]:
    """`package version` of every extension that a composition has parts of."""
    found = {PARTS[role][made.kind].origin for role, made in spec.parts}
    return sorted(origin for origin in found if origin)
