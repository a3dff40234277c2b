"""Search spaces: grids of protocols, and the alternative objectives of a table's column."""

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from marginctl.errors import RequestError
from marginctl.metrics.arrays import IntArray
from marginctl.objectives.parsing import ParsedObjective
from marginctl.objectives.tuning import RATES, max_rate, tuning_candidates, with_max_rate
from marginctl.recipe.uci_cv import Protocol, SearchSpace, Tune, UciCvRecipe

# The keys in which the networks of one stack may differ: they take the same steps, each at its
# own learning rate.
VARIANT_KEYS = frozenset({"lr", "momentum", "weight_decay"})
STACK_KEYS = frozenset(Protocol.model_fields) - VARIANT_KEYS  # those in which they agree
MAX_SETTINGS = 10_000_000  # of a grid: their numbers alone fit into memory


@dataclass(frozen=True)
class Setting:
    """One protocol of a grid."""

    number: int  # from 1, in the order of the grid, whichever settings are sampled
    protocol: Protocol
    changed: dict[str, Any]  # the keys of the grid with this setting's values

    def with_repeats(self, repeats: int) -> "Setting":
        return replace(self, protocol=self.protocol.model_copy(update={"repeats": repeats}))

    def __str__(self) -> str:
        return format_setting(self.changed)


@dataclass(frozen=True, eq=False)
class Candidate:
    """An objective with a setting that a tuned column may choose."""

    objective: ParsedObjective
    setting: Setting

    def __str__(self) -> str:
        return f"{self.objective}, {self.setting}" if self.setting.changed else str(self.objective)


def grid_size(space: SearchSpace) -> int:
    return math.prod(len(values) for values in space.protocol.values())


class Grid:
    """The settings of a space, created one by one because there may be millions.

    Indices count from 0 in the order of the grid; a setting's `number` counts from 1.

    Raises:
        RequestError: the grid has more than `MAX_SETTINGS` settings.
    """

    def __init__(self, space: SearchSpace, base: Protocol) -> None:
        self._space, self._base = space, base
        self.size = grid_size(space)
        if self.size > MAX_SETTINGS:
            raise RequestError(
                f"a grid of {self.size} settings: expected at most {MAX_SETTINGS}: name fewer "
                "values"
            )

    def setting(self, index: int) -> Setting:
        values = self._space.protocol
        places = np.unravel_index(index, [len(v) for v in values.values()])
        changed = {key: values[key][int(i)] for key, i in zip(values, places, strict=True)}
        return Setting(index + 1, _changed(self._base, changed), changed)

    def sample(self) -> IntArray:
        """Return the sorted indices of the settings to try: all, or as many as the space asks for.

        A sampled setting brings its variants, which are trained in its stack at little more cost.
        """
        all_indices = np.arange(self.size)
        if self._space.settings is None:
            return all_indices
        group = self.group_ids(all_indices, STACK_KEYS)
        shuffled = list(range(int(group[-1]) + 1))
        random.Random(self._space.seed).shuffle(shuffled)
        rank = np.empty(len(shuffled), np.int64)
        rank[shuffled] = np.arange(len(shuffled))
        by_rank = np.argsort(rank[group], kind="stable")
        return np.sort(by_rank[: self._space.settings])

    def stackable_groups(self, indices: IntArray) -> list[IntArray]:
        """Group the indices of settings that can share a stack, in the order of the first."""
        group = self.group_ids(indices, STACK_KEYS)
        by_group = np.argsort(group, kind="stable")
        edges = np.flatnonzero(np.diff(group[by_group])) + 1
        groups: list[IntArray] = np.split(indices[by_group], edges)
        return sorted(groups, key=lambda members: int(members[0])) if len(indices) else []

    def group_ids(self, indices: IntArray, keys: Collection[str]) -> IntArray:
        """Return (n,) ids, equal for settings that agree in these keys."""
        ids = np.zeros(len(indices), np.int64)
        stride = self.size
        for key, values in self._space.protocol.items():
            stride //= len(values)
            if key in keys:
                ids = ids * len(values) + indices // stride % len(values)
        return ids


def grid_settings(recipe: UciCvRecipe) -> list[Setting]:
    """Return the settings of a recipe's grid; without a grid, its protocol alone."""
    if not recipe.grid:
        return [Setting(1, recipe.protocol, {})]
    grid = Grid(SearchSpace(protocol=recipe.grid), recipe.protocol)
    return [grid.setting(index) for index in range(grid.size)]


def column_candidates(tune: Tune, base: Protocol, column: ParsedObjective) -> tuple[Candidate, ...]:
    """Return what a tuned column chooses from.

    Of a grid these are each alternative of the column with each setting. Where the number of
    settings is limited, every column gets that many (or all that it has), so that a method with
    more options is not tried more often. Otherwise each learning rate is a candidate, and so is
    that of the recipe: a schedule keeps its shape.
    """
    if tune.is_grid:
        objectives, grid = alternatives(tune, column), Grid(tune, base)
        sampled: Sequence[int] = range(grid.size * len(objectives))
        if tune.settings is not None and tune.settings < len(sampled):
            sampled = sorted(random.Random(tune.seed).sample(sampled, tune.settings))
        return tuple(
            Candidate(objectives[index // grid.size], grid.setting(index % grid.size))
            for index in sampled
        )
    rates = RATES[base.optimizer] if tune.rates is None else tune.rates
    listed = tuning_candidates(column, rates, tune.protocol, start=max_rate(base.lr))
    candidates = []
    for number, (objective, rate, others) in enumerate(listed, 1):
        values = {"lr": with_max_rate(base.lr, rate), **others}
        setting = Setting(number, _changed(base, values), {"lr": rate, **others})
        candidates.append(Candidate(objective, setting))
    return tuple(candidates)


def alternatives(space: SearchSpace, column: ParsedObjective) -> list[ParsedObjective]:
    """Return a column's objectives: the column's own, and the alternatives that are declared."""
    return list(dict.fromkeys([column, *space.options.get(str(column), [])]))


def column_alternatives(recipe: UciCvRecipe) -> dict[str, list[ParsedObjective]]:
    assert recipe.search is not None
    return {str(column): alternatives(recipe.search, column) for column in recipe.objectives}


def _changed(base: Protocol, values: Mapping[str, Any]) -> Protocol:
    return Protocol.model_validate({**base.model_dump(), **values})


def format_setting(changed: Mapping[str, Any]) -> str:
    """Return the values of a grid's setting as text: `hidden=4x10, lr=0.01`."""
    return ", ".join(f"{k}={_format_value(v)}" for k, v in changed.items())


def row_name(dataset: str, changed: Mapping[str, Any]) -> str:
    """Return the name of a table's row: the data set, and the setting of a grid."""
    return f"{dataset}, {format_setting(changed)}" if changed else dataset


def _format_value(value: Any) -> str:
    """Return a list of widths as `10-20`, and four layers of one width as `4x10`."""
    if not isinstance(value, list):
        return f"{value}"
    if len(value) > 2 and len(set(value)) == 1:
        return f"{len(value)}x{value[0]}"
    return "-".join(map(str, value)) or "none"
