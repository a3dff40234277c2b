"""What a shell completes: names of recipes, objectives, data sets and models. Quick: no torch."""

from collections.abc import Iterable


def _begun(begin: str, known: Iterable[str]) -> list[str]:
    return [name for name in known if name.startswith(begin)]


def recipe(incomplete: str) -> list[str]:
    """Shipped recipes."""
    from marginctl.recipe.load import shipped_recipes

    return _begun(incomplete, shipped_recipes())


def objective(incomplete: str) -> list[str]:
    """Presets, and the options of one whose name is whole."""
    from marginctl.objectives.presets import PRESETS

    name, colon, given = incomplete.partition(":")
    if not colon or name not in PRESETS:
        return _begun(incomplete, PRESETS)
    before, comma, last = given.rpartition(",")
    options = _begun(last, (f"{option}=" for option in PRESETS[name].options))
    return [f"{name}:{before}{comma}{option}" for option in options]


def uci_set(incomplete: str) -> list[str]:
    """UCI sets."""
    from marginctl.data.tabular.uci import uci_definitions

    return _begun(incomplete, [*uci_definitions(), "all"])


def images(incomplete: str) -> list[str]:
    """Sets of images; `folder:` and `list:` take a path."""
    from marginctl.data.images.registry import FOLDER_PREFIX, IMAGE_SETS, LIST_PREFIX

    return _begun(incomplete, [*IMAGE_SETS, FOLDER_PREFIX, LIST_PREFIX])


def model(incomplete: str) -> list[str]:
    """Backbones."""
    from marginctl.models.registry import BACKBONES

    return _begun(incomplete, BACKBONES)


def benchmark(incomplete: str) -> list[str]:
    """Benchmarks."""
    from marginctl.bench.suite import BENCHMARKS

    return _begun(incomplete, BENCHMARKS)
