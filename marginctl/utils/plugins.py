"""Plug-ins: entries for the registries that come from other packages or files. No torch here.

A package names a `Plugin` in its `pyproject.toml`:

    [project.entry-points."marginctl.plugins"]
    focal = "focal:PLUGIN"

A file that belongs to no package defines one as `PLUGIN`, and MARGINCTL_PLUGINS names the file, or
several of them as PATH does. Runs record a package's version, and the digest of a file.
"""

import functools
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from marginctl.errors import RequestError

GROUP = "marginctl.plugins"
FILES = "MARGINCTL_PLUGINS"
KINDS: tuple[str, ...] = ("similarity", "scale", "margin", "loss", "regularizer", "preset")
KINDS += ("backbone", "dataset", "metric", "calibrator", "task", "format", "figure", "paper")


@dataclass(frozen=True)
class Plugin:
    """Entries that a plug-in adds: kind of `KINDS` -> name -> entry of its registry."""

    entries: Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class LoadedPlugin:
    label: str  # its name in error messages
    origin: str  # `package version`, or `file.py digest`
    entries: Mapping[str, Mapping[str, object]] = field(repr=False)


def load_plugins() -> tuple[LoadedPlugin, ...]:
    """Return all plug-ins: those of installed packages, then the files in MARGINCTL_PLUGINS."""
    return _load(os.environ.get(FILES, ""))


@functools.cache
def _load(files: str) -> tuple[LoadedPlugin, ...]:
    from importlib.metadata import entry_points  # slow to import: not for --help

    plugins = []
    for point in sorted(entry_points(group=GROUP), key=lambda p: p.name):
        origin = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
        label = f"plug-in '{point.name}' ({origin})"
        plugins.append(_loaded(point.load, label, origin, "fix or uninstall it"))
    for file in filter(None, files.split(os.pathsep)):
        path, label = Path(file).expanduser(), f"{FILES}={file}"
        try:
            origin = f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
        except OSError as error:
            raise RequestError(f"{label}: cannot be read: {error.strerror or error}") from None
        read = functools.partial(_import_file, path, label)
        plugins.append(_loaded(read, label, origin, "fix it"))
    return tuple(plugins)


def _loaded(read: Callable[[], object], label: str, origin: str, advice: str) -> LoadedPlugin:
    try:
        plugin = read()
    except RequestError:
        raise
    except (Exception, SystemExit) as error:  # a plug-in's code can raise anything
        raise RequestError(f"{label} cannot be loaded: {reason(error)}: {advice}") from None
    if not isinstance(plugin, Plugin):
        raise RequestError(f"{label}: expected a Plugin, got {type(plugin).__name__}")
    for kind in plugin.entries:
        if kind not in KINDS:
            raise RequestError(f"{label}: kind '{kind}': expected one of {', '.join(KINDS)}")
    return LoadedPlugin(label, origin, plugin.entries)


def _import_file(path: Path, label: str) -> object:
    """Import a file as the module of its name and return its `PLUGIN`."""
    name = path.stem
    if not name.isidentifier() or path.suffix != ".py":
        raise RequestError(f"{label}: expected a Python file, NAME.py")
    if name in sys.modules or importlib.util.find_spec(name) is not None:
        raise RequestError(f"{label}: another module is named '{name}': rename the file")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        return module.PLUGIN
    except BaseException:
        del sys.modules[name]
        raise


def reason(error: BaseException) -> str:
    """Return an exception of a plug-in's code on one line: `ZeroDivisionError: reason`."""
    return " ".join(f"{type(error).__name__}: {error}".split())
