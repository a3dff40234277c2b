"""The text form of objectives: a preset with options, or a composition of parts. No torch here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from marginctl.errors import RequestError
from marginctl.objectives.options import (
    TextForm,
    Value,
    format_options,
    parse_options,
    split_top_level,
    validate_options,
)
from marginctl.objectives.parts import (
    CROSS_ENTROPY,
    NO_MARGIN,
    NO_SCALE,
    PARTS,
    ObjectiveSpec,
    Part,
    part,
    scale_source,
    validate_part,
    validate_spec,
)
from marginctl.objectives.presets import PRESETS, Preset
from marginctl.utils.text import did_you_mean, shorten


@dataclass(frozen=True, eq=False)
class ParsedObjective(TextForm):
    """An objective of a recipe or an option: a preset with options, or a composition of parts.

    The canonical text has sorted options, and no defaults.
    """

    spec: ObjectiveSpec
    preset: str | None = None
    options: Mapping[str, Value] = field(default_factory=dict)

    @cached_property
    def _text(self) -> str:
        if self.preset is None:
            return _format_parts(self.spec)
        options = format_options(PRESETS[self.preset].options, self.options)
        return self.preset + (f":{options}" if options else "")

    @classmethod
    def read(cls, value: object) -> "ParsedObjective":
        return parse_any(value)


def _format_parts(spec: ObjectiveSpec) -> str:
    defaults = {"scale": NO_SCALE, "margin": NO_MARGIN, "loss": CROSS_ENTROPY}
    texts: dict[str, list[str]] = {}
    for role, given in spec.parts:
        if given == defaults.get(role):
            continue
        options = format_options(PARTS[role][given.kind].options, dict(given.options))
        texts.setdefault(role, []).append(f"{given.kind}({options})" if options else given.kind)
    return ";".join(f"{role}={'+'.join(kinds)}" for role, kinds in texts.items())


def parse_any(value: object) -> ParsedObjective:
    """Return the objective in a text or in a mapping of parts; a parsed one as it is."""
    if isinstance(value, ParsedObjective):
        return value
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, Mapping):
        return parse_parts(value)
    raise RequestError(f"objective {shorten(repr(value))}: expected a name, or a mapping of parts")


def parse(text: str) -> ParsedObjective:
    """Return the objective in `NAME:option=value,...` or `similarity=KIND(option=value);...`."""
    text = text.strip()
    if re.match(r"\w+\s*=", text):
        return parse_parts(_split_parts(text))
    name, colon, rest = text.partition(":")
    if ";" in text:
        raise RequestError(
            f"objective '{text}': a preset takes no parts: give options, NAME:option=value,..., or "
            "parts alone, similarity=KIND;scale=KIND;..."
        )
    options = parse_options(
        f"objective '{text}'", rest if colon else None, "NAME:option=value,option=value"
    )
    return parse_preset(name.strip(), **options)


def parse_preset(name: str, /, **options: object) -> ParsedObjective:
    """Return the preset `name` with `options`."""
    preset: Preset = PRESETS.find(name)
    values = validate_options(f"objective '{name}'", preset.options, options)
    return ParsedObjective(preset.build(**values), name, MappingProxyType(values))


def parse_parts(parts: Mapping[str, Any]) -> ParsedObjective:
    """Return the composition of a mapping: role -> kind, or {kind: KIND, option: value}.

    `regularizers` may be a list. The defaults are the scale 1, no margin, cross-entropy, and no
    regularizers.
    """
    unknown = [role for role in parts if role not in PARTS]
    if unknown:
        raise RequestError(
            f"objective: unknown part '{shorten(str(unknown[0]))}': expected {', '.join(PARTS)}."
            + did_you_mean(str(unknown[0]), PARTS)
        )
    if "similarity" not in parts:
        known = ", ".join(PARTS["similarity"])
        raise RequestError(f"objective: 'similarity' is missing: expected one of {known}")
    given = dict(parts)
    regularizers = given.pop("regularizers", [])
    if not isinstance(regularizers, list):
        regularizers = [regularizers]
    spec = ObjectiveSpec(
        **{role: _parse_part(role, one) for role, one in given.items()},
        regularizers=tuple(_parse_part("regularizers", one) for one in regularizers),
    )
    return ParsedObjective(_canonical(validate_spec(spec)))


def _canonical(spec: ObjectiveSpec) -> ObjectiveSpec:
    """Return the parts with the source of a scale by its canonical name, if it is an objective."""
    source = scale_source(spec)
    if source is None:
        return spec
    try:
        name = str(parse(source.source))
    except RequestError:  # a path
        return spec
    return replace(spec, scale=part("fixed", from_run=name, times=source.times))


def _parse_part(role: str, given: object) -> Part:
    options = dict(given) if isinstance(given, Mapping) else {"kind": given}
    if "kind" not in options:
        raise RequestError(
            f"objective: {role}: 'kind' is missing: expected {{kind: KIND, option: value}} with "
            f"one of {', '.join(PARTS[role])}"
        )
    return validate_part(role, options.pop("kind"), options)


def _split_parts(text: str) -> dict[str, Any]:
    """Return the mapping that `parse_parts` takes from `similarity=KIND(option=value);..."""
    if text.count("(") != text.count(")"):
        raise RequestError(f"objective '{text}': unbalanced parentheses")
    parts: dict[str, Any] = {}
    for item in filter(None, (i.strip() for i in split_top_level(text, ";"))):
        role, _, kinds = (piece.strip() for piece in item.partition("="))
        several = []
        for one in split_top_level(kinds, "+"):
            match = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", one)
            if not match:
                raise RequestError(
                    f"objective '{text}': '{item}' is not part=KIND(option=value,...)"
                )
            options = parse_options(f"objective '{text}'", match[2] or None)
            several.append({"kind": match[1], **options})
        if role in parts:
            raise RequestError(f"objective '{text}': part '{role}' is given twice")
        if len(several) > 1 and role != "regularizers":
            raise RequestError(f"objective '{text}': expected one {role}, not several")
        parts[role] = several if role == "regularizers" else several[0]
    return parts


def available() -> dict[str, dict[str, Value]]:
    """Return the names of all presets, each with its options and their defaults."""
    return {
        name: {key: option.default for key, option in preset.options.items()}
        for name, preset in PRESETS.items()
    }


def check_plugins() -> None:
    """Load the parts and presets of plug-ins, for callers that take a RequestError as bad data."""
    len(PRESETS)
    for registry in PARTS.values():
        len(registry)
