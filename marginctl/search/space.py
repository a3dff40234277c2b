"""What a search tries: protocols from a grid, and the ways in which a method may be run."""

import math
import random
from dataclasses import dataclass
from typing import Any

from marginctl.recipe import Protocol, Recipe, Search


@dataclass(frozen=True)
class Setting:
    """One protocol of a search, at one number of repeats.

    Attributes:
        number: from 1, in the order of the grid; the same whatever else is tried.
        changed: the searched keys, for a reader.
    """

    number: int
    protocol: Protocol
    changed: dict[str, Any]

    def repeated(self, repeats: int) -> "Setting":
        protocol = self.protocol.model_copy(update={"repeats": repeats})
        return Setting(self.number, protocol, self.changed)

    def __str__(self) -> str:
        return ", ".join(f"{k}={_plain(v)}" for k, v in self.changed.items())


def grid_size(search: Search) -> int:
    """How many settings the grid has."""
    return math.prod(len(values) for values in search.protocol.values())


def settings_of(recipe: Recipe) -> list[Setting]:
    """All settings of the grid, or as many as the recipe asks for, drawn with its seed."""
    search = recipe.search
    assert search is not None
    total = grid_size(search)
    numbers = list(range(total))
    if search.settings is not None and search.settings < total:
        numbers = sorted(random.Random(search.seed).sample(range(total), search.settings))
    return [_setting(recipe.protocol, search, number) for number in numbers]


def _setting(base: Protocol, search: Search, number: int) -> Setting:
    changed: dict[str, Any] = {}
    rest = number
    for key, values in reversed(search.protocol.items()):
        rest, i = divmod(rest, len(values))
        changed[key] = values[i]
    changed = {key: changed[key] for key in search.protocol}
    return Setting(number + 1, Protocol.model_validate({**base.model_dump(), **changed}), changed)


def variants_of(recipe: Recipe) -> dict[str, list[str]]:
    """Each column's objectives: as it is written, and the ways that the search declares."""
    declared = {} if recipe.search is None else recipe.search.options
    return {
        column: list(dict.fromkeys([column, *declared.get(column, [])]))
        for column in recipe.objectives
    }


def _plain(value: Any) -> str:
    return "-".join(map(str, value)) or "none" if isinstance(value, list) else f"{value}"
