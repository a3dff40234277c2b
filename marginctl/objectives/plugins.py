"""Parts and presets from other packages, found by an entry point. No torch here.

A package names an `Extension` in its `pyproject.toml`:

    [project.entry-points."marginctl.objectives"]
    focal = "focal:EXTENSION"

Or a file that is no package holds one as `EXTENSION`, and MARGINCTL_EXTENSIONS names the file, or
several as in PATH. The file's digest stands in runs for a version.

Its parts are classes below `Similarity`, `Scale`, `Margin`, `Loss` or `Regularizer`; they are named
by their import path, so that torch is imported only when one is used.
"""

import functools
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path

from marginctl.errors import RequestError
from marginctl.objectives.options import Option
from marginctl.objectives.presets import PRESETS, Preset
from marginctl.objectives.schedules import Timed, timed
from marginctl.objectives.spec import PARTS, Kind, Spec, accept_spec, part

__all__ = ["Extension", "Kind", "Option", "Preset", "Spec", "Timed", "part", "timed"]

GROUP = "marginctl.objectives"
FILES = "MARGINCTL_EXTENSIONS"


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
        _load(
            point.load, f"the extension '{point.name}' ({origin})", origin, "Mend or uninstall it."
        )
    for file in filter(None, os.environ.get(FILES, "").split(os.pathsep)):
        path = Path(file).expanduser()
        at = f"{FILES}={file}"
        try:
            origin = f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
        except OSError as error:
            raise RequestError(f"{at}: cannot be read: {error.strerror or error}") from None
        _load(functools.partial(_of_file, path, at), at, origin, "Mend it.")


def _load(read: Callable[[], object], of: str, origin: str, advice: str) -> None:
    try:
        _add(read(), of, origin)
    except RequestError:
        raise
    except (Exception, SystemExit) as error:  # anything can happen in another's code
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise RequestError(f"{of} cannot be loaded: {reason}. {advice}") from None


def _of_file(path: Path, at: str) -> object:
    """The `EXTENSION` of a file, which is from then on a module by the file's name."""
    name = path.stem
    if not name.isidentifier() or path.suffix != ".py":
        raise RequestError(f"{at}: expected a Python file, NAME.py")
    if name in sys.modules or importlib.util.find_spec(name) is not None:
        raise RequestError(f"{at}: there is another module '{name}': give the file another name")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        return module.EXTENSION
    except BaseException:
        del sys.modules[name]
        raise


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
