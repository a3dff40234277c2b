"""Fixed scales that are taken from a run: which objective of a recipe is which one's source."""

from collections.abc import Sequence

from marginctl.errors import RequestError
from marginctl.objectives.parsing import parse
from marginctl.objectives.spec import from_run
from marginctl.utils.text import did_you_mean


def source_in(objective: str, objectives: Sequence[str]) -> str | None:
    """The objective among `objectives` whose kappa* another one takes its scale from, if any.

    Args:
        objective, objectives: canonical names.
    """
    found = from_run(parse(objective).spec)
    return found.source if found is not None and found.source in objectives else None


def with_sources(objectives: list[str]) -> list[str]:
    """The canonical `objectives` of a recipe, whose sources are there and have a kappa*.

    What is no objective at all is a path, which is looked at when the recipe is run. A source has
    a least-squares scale, and no scale of its own from a run: there are no circles.

    Raises:
        ValueError: every source that the recipe lacks, or that has no least-squares scale.
    """
    problems = []
    having = [o for o in objectives if parse(o).spec.scale.kind == "least-squares"]
    for objective in objectives:
        found = from_run(parse(objective).spec)
        if found is None or found.source in having or not _is_objective(found.source):
            continue
        said = f"objective '{objective}': from_run = {found.source}: "
        if found.source in objectives:
            said += "has no kappa*: expected one with the least-squares scale, such as cosine-ls"
        else:
            said += "is no objective of this recipe: add it to 'objectives'."
        problems.append(said + did_you_mean(found.source, having))
    if problems:
        raise ValueError("\n".join(problems))
    return objectives


def in_order(objectives: Sequence[str]) -> list[str]:
    """The objectives as they stand, but for those with a source among them, which come last."""
    return sorted(objectives, key=lambda o: source_in(o, objectives) is not None)


def _is_objective(written: str) -> bool:
    try:
        parse(written)
    except RequestError:
        return False
    return True
