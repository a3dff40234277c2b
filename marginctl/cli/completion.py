"""Shell completion of names; nothing here imports torch."""

from collections.abc import Iterable


def _matching(prefix: str, known: Iterable[str]) -> list[str]:
    return [name for name in known if name.startswith(prefix)]


def recipe(incomplete: str) -> list[str]:
    """Complete the name of a shipped recipe."""
    from marginctl.recipe.load import shipped_recipes

    return _matching(incomplete, shipped_recipes())


def objective(incomplete: str) -> list[str]:
    """Complete the name of a preset, or its options after a colon."""
    from marginctl.objectives.presets import PRESETS

    name, colon, given = incomplete.partition(":")
    if not colon or name not in PRESETS:
        return _matching(incomplete, PRESETS)
    before, comma, last = given.rpartition(",")
    options = _matching(last, (f"{option}=" for option in PRESETS[name].options))
    return [f"{name}:{before}{comma}{option}" for option in options]


def uci_set(incomplete: str) -> list[str]:
    """Complete the name of a UCI data set."""
    from marginctl.data.tabular.uci import uci_definitions

    return _matching(incomplete, [*uci_definitions(), "all"])


def images(incomplete: str) -> list[str]:
    """Complete the name of an image set; `folder:` and `list:` take a path."""
    from marginctl.data.images.registry import FOLDER_PREFIX, IMAGE_SETS, LIST_PREFIX

    return _matching(incomplete, [*IMAGE_SETS, FOLDER_PREFIX, LIST_PREFIX])


def model(incomplete: str) -> list[str]:
    """Complete the name of a backbone."""
    from marginctl.models.registry import BACKBONES

    return _matching(incomplete, BACKBONES)


def benchmark(incomplete: str) -> list[str]:
    """Complete the name of a benchmark."""
    from marginctl.bench.suite import BENCHMARKS

    return _matching(incomplete, BENCHMARKS)
