"""What an objective is, in words: formula, source, options, parts, and what theory says of it."""

from collections.abc import Mapping
from typing import Any

from marginctl.objectives import plugins
from marginctl.objectives.options import Option, Value, plain
from marginctl.objectives.parsing import PresetName, parse
from marginctl.objectives.schedules import SHAPES, Schedule
from marginctl.objectives.spec import (
    NO_MARGIN,
    NO_SCALE,
    PARTS,
    Part,
    Spec,
    remark_for_two,
    untrained,
)


def described(written: str, classes: int = 10) -> dict[str, Any]:
    """All that `objectives show` says of an objective, as a JSON document.

    Args:
        written: a preset, with options or without, or parts.
        classes: C, for what theory says.

    Raises:
        RequestError: no such objective.
    """
    from marginctl.objectives.theory import remarks  # numpy and scipy, which a list does without

    spec = parse(written).spec
    return {
        **entry(written),
        "two_classes": untrained(spec, 2) or remark_for_two(spec),
        "classes": classes,
        "theory": remarks(spec, classes),
        "parts": parts_of(spec),
    }


def entry(written: str) -> dict[str, Any]:
    """What `objectives list` says of an objective: the first part of `described`."""
    found = parse(written)
    about: dict[str, Any] = {"title": "a composition", "formula": None, "source": None}
    options: Mapping[str, Option] = {}
    values: Mapping[str, Value] = {}
    if isinstance(found, PresetName):
        preset, values = found.preset, found.options
        source = f"{preset.source}; from {preset.origin}" if preset.origin else preset.source
        about = {"title": preset.title, "formula": preset.formula, "source": source}
        options = preset.options
    return {
        "name": str(found),
        **about,
        "options": [
            {
                "name": key,
                "default": option.default,
                "value": str(values[key]) if isinstance(values[key], Schedule) else values[key],
                "expected": option.expected,
                "help": option.help,
            }
            for key, option in options.items()
        ],
    }


def described_parts() -> dict[str, list[dict[str, Any]]]:
    """Every kind of every part, and every schedule, a row for each option: for `list --parts`."""
    plugins.load()

    def rows(named: dict[str, Any], options: Mapping[str, Option]) -> list[dict[str, Any]]:
        nothing = {"option": None, "default": None, "expected": None, "help": None}
        return [
            {
                **named,
                "option": key,
                "default": option.default,
                "expected": option.expected,
                "help": option.help,
            }
            for key, option in options.items()
        ] or [{**named, **nothing}]

    return {
        "parts": [
            row
            for role, kinds in PARTS.items()
            for kind, made in kinds.items()
            for row in rows({"part": role, "kind": kind}, made.options)
        ],
        "schedules": [
            row for kind, shape in SHAPES.items() for row in rows({"schedule": kind}, shape.options)
        ],
    }


def parts_of(spec: Spec) -> dict[str, str]:
    """The five parts in words, those that do nothing left out."""

    def words(made: Part) -> str:
        options = ", ".join(f"{k}={plain(v)}" for k, v in made.options)
        return f"{made.kind} ({options})" if options else made.kind

    shown = {
        "similarity": words(spec.similarity),
        "scale": "" if spec.scale == NO_SCALE else words(spec.scale),
        "margin": "" if spec.margin == NO_MARGIN else words(spec.margin),
        "loss": words(spec.loss),
        "regularizers": ", ".join(words(r) for r in spec.regularizers),
    }
    return {role: text for role, text in shown.items() if text}
