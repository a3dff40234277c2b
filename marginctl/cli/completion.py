"""Shell completion of names; nothing here imports torch."""

from collections.abc import Callable
from pkgutil import resolve_name


def _names(path: str, *more: str) -> Callable[[str], list[str]]:
    """Return the completion of the names that a mapping, or the function of one, at a path has."""

    def complete(incomplete: str) -> list[str]:
        known = resolve_name(path)
        names = [*(known() if callable(known) else known), *more]
        return [name for name in names if name.startswith(incomplete)]

    return complete


recipe = _names("marginctl.recipe.load:shipped_recipes")
uci_set = _names("marginctl.data.tabular.uci:uci_definitions", "all")
images = _names("marginctl.data.images.registry:IMAGE_SETS", "folder:", "list:")
model = _names("marginctl.models.registry:BACKBONES")
benchmark = _names("marginctl.bench.suite:BENCHMARKS")
_preset = _names("marginctl.objectives.presets:PRESETS")


def objective(incomplete: str) -> list[str]:
    """Complete the name of a preset, or its options after a colon."""
    from marginctl.objectives.presets import PRESETS

    name, colon, given = incomplete.partition(":")
    if not colon or name not in PRESETS:
        return _preset(incomplete)
    before, comma, last = given.rpartition(",")
    options = [f"{option}=" for option in PRESETS[name].options]
    return [f"{name}:{before}{comma}{option}" for option in options if option.startswith(last)]
