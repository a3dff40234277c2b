"""Registries: for each kind of thing that a plug-in can add, one mapping of names to entries."""

import functools
import pkgutil
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from marginctl.errors import RequestError
from marginctl.utils import plugins
from marginctl.utils.text import did_you_mean, shorten

E = TypeVar("E")


class Registry(Mapping[str, E]):
    """The entries of one kind by name: built-in ones, then those of plug-ins.

    The first look-up loads the plug-ins. Entries name classes and functions by import path, so that
    listing them imports nothing.

    Args:
        label: what error messages call the kind, where that is not `kind`.
        also: what a user can write besides a name, for error messages.
        other_names: names by which entries are known elsewhere; they are refused with ours.
        check: raises RequestError for an entry of a plug-in that cannot work.
    """

    def __init__(
        self,
        kind: str,
        entry_type: type[E],
        builtin: Mapping[str, E],
        *,
        label: str | None = None,
        also: str | None = None,
        other_names: Mapping[str, str] = MappingProxyType({}),
        check: Callable[[str, E], None] | None = None,
    ) -> None:
        self.kind, self.label, self.also = kind, label or kind, also
        self._other_names = other_names
        self.builtin = dict(builtin)
        self._entry_type, self._check = entry_type, check
        self._added: dict[str, E] = {}
        self._origins: dict[str, str] = {}
        self._loaded: tuple[plugins.LoadedPlugin, ...] = ()

    def __getitem__(self, name: str) -> E:
        return self._entries()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def find(self, name: str) -> E:
        entries = self._entries()
        if name not in entries:
            if ours := self.name_of(str(name)):
                raise RequestError(f"{self.label} '{name}' is named '{ours}' here")
            also = f", or {self.also}" if self.also else ""
            raise RequestError(
                f"unknown {self.label} '{shorten(str(name))}': expected one of {', '.join(entries)}"
                f"{also}.{did_you_mean(str(name), entries)}"
            )
        return entries[name]

    def name_of(self, name: str) -> str | None:
        """Return the name of an entry in another spelling, such as `ArcFace`, or known by it."""
        plain = name.lower().replace("_", "-")
        return plain if plain in self else self._other_names.get(plain)

    def origin(self, name: str) -> str | None:
        """Return the `package version` or `file.py digest` of a plug-in's entry, else None."""
        self._entries()
        return self._origins.get(name)

    def _entries(self) -> Mapping[str, E]:
        loaded = plugins.load_plugins()
        if loaded is not self._loaded:
            added: dict[str, E] = {}
            origins: dict[str, str] = {}
            for plugin in loaded:
                for name, entry in plugin.entries.get(self.kind, {}).items():
                    where = f"{plugin.label}: {self.kind} '{name}'"
                    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", str(name)):
                        raise RequestError(
                            f"{where}: expected a name of small letters, digits and hyphens"
                        )
                    if name in self.builtin or name in added:
                        raise RequestError(f"{where}: the name is taken: choose another")
                    added[name] = self._checked(where, name, entry)
                    origins[name] = plugin.origin
            self._added, self._origins, self._loaded = added, origins, loaded
        return ChainMap(self._added, self.builtin)

    def _checked(self, where: str, name: str, entry: object) -> E:
        if not isinstance(entry, self._entry_type):
            raise RequestError(f"{where}: expected {self._entry_type.__name__}, got {entry!r}")
        try:
            if self._check is not None:
                self._check(name, entry)
        except RequestError as error:
            raise RequestError(f"{where}: {error.lines[0]}") from None
        except Exception as error:  # a plug-in's code can raise anything
            raise RequestError(f"{where} cannot be loaded: {plugins.reason(error)}") from None
        return entry


@functools.cache
def import_object(path: str, owner: str, base: type | None = None) -> Any:
    """Return the object that `module:name` names; `owner` is what an error calls its entry."""
    try:
        imported = pkgutil.resolve_name(path)
    except Exception as error:  # a plug-in's code can raise anything
        raise RequestError(f"{owner}: cannot import {path}: {plugins.reason(error)}") from None
    if base is not None and not (isinstance(imported, type) and issubclass(imported, base)):
        raise RequestError(f"{owner}: {path}: expected a subclass of {base.__name__}")
    return imported
