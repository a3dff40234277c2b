"""What a search or a tuning tries: protocols from a grid, and the ways to run a method."""

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.errors import RequestError
from marginctl.objectives.parsing import ObjectiveName, parse
from marginctl.recipe import Protocol, Recipe, Space

# What may differ between networks that train side by side: they take the same steps, each at its
# own rate.
LANE_KEYS = frozenset({"lr", "momentum", "weight_decay"})
MOST_SETTINGS = 10_000_000  # of a grid: their numbers alone fit into memory

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Setting:
    """One protocol of a grid.

    Attributes:
        number: from 1, in the order of the grid; the same whatever else is tried.
        changed: the keys of the grid, for a reader.
    """

    number: int
    protocol: Protocol
    changed: dict[str, Any]

    def repeated(self, repeats: int) -> "Setting":
        protocol = self.protocol.model_copy(update={"repeats": repeats})
        return Setting(self.number, protocol, self.changed)

    def __str__(self) -> str:
        return said(self.changed)


@dataclass(frozen=True, eq=False)
class Candidate:
    """One of the settings that a tuned method chooses from."""

    objective: ObjectiveName
    setting: Setting

    def __str__(self) -> str:
        return f"{self.objective}, {self.setting}" if self.setting.changed else str(self.objective)


def grid_size(space: Space) -> int:
    """How many settings the grid has."""
    return math.prod(len(values) for values in space.protocol.values())


class Grid:
    """The settings of a space, made one by one: there may be millions of them.

    Numbers count from 0 in the order of the grid; a setting's own number counts from 1.

    Raises:
        RequestError: more settings than can be drawn from.
    """

    def __init__(self, space: Space, base: Protocol) -> None:
        self._space, self._base = space, base
        self.size = grid_size(space)
        if self.size > MOST_SETTINGS:
            raise RequestError(
                f"a grid of {self.size} settings: expected at most {MOST_SETTINGS}: name fewer "
                "values"
            )

    def setting(self, number: int) -> Setting:
        return _setting(self._base, self._space, number)

    def drawn(self) -> IntArray:
        """(n,) numbers in their order: all, or as many as the space asks for, by its seed.

        What is drawn has all its rates and decays, which train side by side at little more cost.
        """
        every = np.arange(self.size)
        if self._space.settings is None:
            return every
        company = self.index(every, exclude=LANE_KEYS)
        chosen = list(range(int(company[-1]) + 1))
        random.Random(self._space.seed).shuffle(chosen)
        place = np.empty(len(chosen), np.int64)
        place[chosen] = np.arange(len(chosen))
        in_turn = np.argsort(place[company], kind="stable")
        return np.sort(in_turn[: self._space.settings])

    def companies(self, numbers: IntArray) -> list[IntArray]:
        """The numbers that can train side by side, together, in the order of the first of each."""
        company = self.index(numbers, exclude=LANE_KEYS)
        by_company = np.argsort(company, kind="stable")
        edges = np.flatnonzero(np.diff(company[by_company])) + 1
        found: list[IntArray] = np.split(numbers[by_company], edges)
        return sorted(found, key=lambda members: int(members[0])) if len(numbers) else []

    def index(
        self,
        numbers: IntArray,
        *,
        include: Collection[str] = tuple(Protocol.model_fields),
        exclude: Collection[str] = (),
    ) -> IntArray:
        """(n,): equal for settings that differ in other keys alone."""
        found = np.zeros(len(numbers), np.int64)
        stride = self.size
        for key, values in self._space.protocol.items():
            stride //= len(values)
            if key in include and key not in exclude:
                found = found * len(values) + numbers // stride % len(values)
        return found


def settings_in(recipe: Recipe) -> list[Setting]:
    """The settings of a recipe's grid; without one, its protocol alone."""
    if not recipe.grid:
        return [Setting(1, recipe.protocol, {})]
    grid = Grid(Space(protocol=recipe.grid), recipe.protocol)
    return [grid.setting(number) for number in range(grid.size)]


def candidates_of(space: Space, base: Protocol, column: str) -> tuple[Candidate, ...]:
    """What a tuned column chooses from: each way of running it, with each setting of the grid.

    Where the space has a number of settings, every column gets that many (or all that it has), so
    that a method with more options is not tried more often.
    """
    ways = ways_of(space, column)
    size = grid_size(space)
    drawn = _drawn(size * len(ways), space.settings, space.seed)
    return tuple(
        Candidate(parse(ways[number // size]), _setting(base, space, number % size))
        for number in drawn
    )


def ways_of(space: Space, column: str) -> list[str]:
    """A column's objectives: as it is written, and the other ways that are declared."""
    return list(dict.fromkeys([column, *space.options.get(column, [])]))


def variants_of(recipe: Recipe) -> dict[str, list[str]]:
    """Of every column of a search, the ways in which it is run."""
    assert recipe.search is not None
    return {column: ways_of(recipe.search, column) for column in recipe.objectives}


def _drawn(total: int, asked: int | None, seed: int) -> Sequence[int]:
    if asked is None or asked >= total:
        return range(total)
    return sorted(random.Random(seed).sample(range(total), asked))


def _setting(base: Protocol, space: Space, number: int) -> Setting:
    changed: dict[str, Any] = {}
    rest = number
    for key, values in reversed(space.protocol.items()):
        rest, i = divmod(rest, len(values))
        changed[key] = values[i]
    changed = {key: changed[key] for key in space.protocol}
    return Setting(number + 1, Protocol.model_validate({**base.model_dump(), **changed}), changed)


def said(changed: Mapping[str, Any]) -> str:
    """What a setting of a grid changes, for a reader: `hidden=4x10, lr=0.01`."""
    return ", ".join(f"{k}={_plain(v)}" for k, v in changed.items())


def row_name(dataset: str, changed: Mapping[str, Any]) -> str:
    """The row of a table: the data set, and the setting of a grid."""
    return f"{dataset}, {said(changed)}" if changed else dataset


def _plain(value: Any) -> str:
    """`10-20`, and `4x10` for four layers of one width."""
    if not isinstance(value, list):
        return f"{value}"
    if len(value) > 2 and len(set(value)) == 1:
        return f"{len(value)}x{value[0]}"
    return "-".join(map(str, value)) or "none"
