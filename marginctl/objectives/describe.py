"""Descriptions of objectives for the commands: formula, source, options, parts and theory."""

from collections.abc import Mapping
from typing import Any

from marginctl.objectives.options import Option, format_value
from marginctl.objectives.parsing import ParsedObjective
from marginctl.objectives.parts import (
    NO_MARGIN,
    NO_SCALE,
    PARTS,
    ObjectiveSpec,
    Part,
    two_class_remark,
    untrainable_reason,
)
from marginctl.objectives.presets import PRESETS
from marginctl.objectives.schedules import SHAPES, Schedule


def describe(objective: ParsedObjective, num_classes: int = 10) -> dict[str, Any]:
    """Return the JSON document of `objectives show`."""
    from marginctl.objectives.theory import remarks  # numpy and scipy, which a list does without

    spec = objective.spec
    return {
        **summarize(objective),
        "two_classes": untrainable_reason(spec, 2) or two_class_remark(spec),
        "classes": num_classes,
        "theory": remarks(spec, num_classes),
        "parts": describe_parts(spec),
    }


def summarize(objective: ParsedObjective) -> dict[str, Any]:
    """Return the first part of `describe`: title, formula, source and options."""
    title, formula, source = "a composition", None, None
    options: Mapping[str, Option] = {}
    if objective.preset is not None:
        preset, origin = PRESETS[objective.preset], PRESETS.origin(objective.preset)
        title, formula, options = preset.title, preset.formula, preset.options
        source = f"{preset.source}; from {origin}" if origin else preset.source
    values = {
        key: str(value) if isinstance(value, Schedule) else value
        for key, value in objective.options.items()
    }
    return {
        "name": str(objective),
        "title": title,
        "formula": formula,
        "source": source,
        "options": [
            {"name": key, "value": values[key], **_record(option)}
            for key, option in options.items()
        ],
    }


def list_parts() -> dict[str, list[dict[str, Any]]]:
    """Return all parts and schedules, a row for each option: for `objectives list --parts`."""
    return {
        "parts": [
            row
            for role, registry in PARTS.items()
            for kind, entry in registry.items()
            for row in _option_rows({"part": role, "kind": kind}, entry.options)
        ],
        "schedules": [
            row
            for kind, shape in SHAPES.items()
            for row in _option_rows({"schedule": kind}, shape.options)
        ],
    }


def _option_rows(name: dict[str, str], options: Mapping[str, Option]) -> list[dict[str, Any]]:
    no_option = {"option": None, "default": None, "expected": None, "help": None}
    rows = [{**name, "option": key, **_record(option)} for key, option in options.items()]
    return rows or [{**name, **no_option}]


def _record(option: Option) -> dict[str, Any]:
    return {"default": option.default, "expected": option.expected, "help": option.help}


def describe_parts(spec: ObjectiveSpec) -> dict[str, str]:
    """Return the parts in words by role, without those that do nothing."""

    def words(part: Part) -> str:
        options = ", ".join(f"{k}={format_value(v)}" for k, v in part.options)
        return f"{part.kind} ({options})" if options else part.kind

    texts: dict[str, list[str]] = {}
    for role, part in spec.parts:
        if part not in (NO_SCALE, NO_MARGIN):
            texts.setdefault(role, []).append(words(part))
    return {role: ", ".join(several) for role, several in texts.items()}
