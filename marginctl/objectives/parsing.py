"""How objectives are written: a preset with options, or a free composition of parts."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from marginctl.errors import RequestError
from marginctl.objectives import plugins
from marginctl.objectives.options import (
    Value,
    accept_options,
    read_options,
    split_outside,
    written_options,
)
from marginctl.objectives.presets import PRESETS, Preset
from marginctl.objectives.spec import (
    CROSS_ENTROPY,
    NO_MARGIN,
    NO_SCALE,
    PARTS,
    Part,
    Spec,
    accept_part,
    accept_spec,
    from_run,
    part,
)
from marginctl.utils.text import did_you_mean, short


class ObjectiveName(ABC):
    """An objective as it is written; `str` gives the canonical form, which `parse` reads."""

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """The parts that it is made of."""

    def __reduce__(self) -> tuple[Callable[[str], "ObjectiveName"], tuple[str]]:
        return parse, (str(self),)  # presets hold functions, which do not pickle


@dataclass(frozen=True)
class PresetName(ObjectiveName):
    """A preset with its options: `NAME:option=value,option=value`."""

    preset: Preset
    options: Mapping[str, Value]  # all of them, defaults included

    @property
    def spec(self) -> Spec:
        return self.preset.build(self.options)

    def __str__(self) -> str:
        options = written_options(self.preset.options, self.options)
        return self.preset.name + (f":{options}" if options else "")


@dataclass(frozen=True)
class Composition(ObjectiveName):
    """Parts that a recipe puts together: `similarity=KIND(option=value);margin=KIND;...`."""

    parts: Spec

    @property
    def spec(self) -> Spec:
        return self.parts

    def __str__(self) -> str:
        spec = self.parts
        shown = {"similarity": [spec.similarity]}
        shown["scale"] = [] if spec.scale == NO_SCALE else [spec.scale]
        shown["margin"] = [] if spec.margin == NO_MARGIN else [spec.margin]
        shown["loss"] = [] if spec.loss == CROSS_ENTROPY else [spec.loss]
        shown["regularizers"] = sorted(spec.regularizers, key=lambda p: p.kind)
        return ";".join(
            f"{role}={'+'.join(_written(role, p) for p in parts)}"
            for role, parts in shown.items()
            if parts
        )


def _written(role: str, made: Part) -> str:
    options = written_options(PARTS[role][made.kind].options, dict(made.options))
    return f"{made.kind}({options})" if options else made.kind


def named(name: str, /, **options: object) -> PresetName:
    """The preset `name` with `options`, checked.

    Raises:
        RequestError: no such preset or option, or a value outside its range.
    """
    plugins.load()
    preset = PRESETS.get(name)
    if preset is None:
        raise RequestError(
            f"unknown objective '{short(name)}': expected one of {', '.join(PRESETS)}, or parts "
            f"such as similarity=cosine;scale=fixed(value=30).{did_you_mean(name, PRESETS)}"
        )
    accepted = accept_options(f"objective '{name}'", preset.options, options)
    return PresetName(preset, MappingProxyType(accepted))


def composed(parts: Mapping[str, Any]) -> Composition:
    """A composition from a recipe's mapping: role -> kind, or {kind: ..., option: value}.

    `regularizers` may be a list. What is left out is the scale 1, no margin, cross-entropy, and no
    regulariser.

    Raises:
        RequestError: an unknown role, kind or option, or parts that do not fit together.
    """
    plugins.load()
    unknown = [role for role in parts if role not in PARTS]
    if unknown:
        raise RequestError(
            f"objective: unknown part '{short(str(unknown[0]))}': expected {', '.join(PARTS)}."
            + did_you_mean(str(unknown[0]), PARTS)
        )
    if "similarity" not in parts:
        known = ", ".join(PARTS["similarity"])
        raise RequestError(f"objective: 'similarity' is missing: expected one of {known}")
    regularizers = parts.get("regularizers", [])
    if not isinstance(regularizers, list):
        regularizers = [regularizers]
    made = {r: _part(r, parts[r]) for r in ("similarity", "scale", "margin", "loss") if r in parts}
    several = tuple(_part("regularizers", one) for one in regularizers)
    return Composition(_canonical(accept_spec(Spec(**made, regularizers=several))))


def _canonical(spec: Spec) -> Spec:
    """The parts, with the source of a scale by its canonical name where it is an objective."""
    found = from_run(spec)
    if found is None:
        return spec
    try:
        name = str(parse(found.source))
    except RequestError:  # a path
        return spec
    return replace(spec, scale=part("fixed", from_run=name, times=found.times))


def _part(role: str, given: object) -> Part:
    options = dict(given) if isinstance(given, Mapping) else {"kind": given}
    if "kind" not in options:
        raise RequestError(
            f"objective: {role}: 'kind' is missing: expected {{kind: KIND, option: value}} with "
            f"one of {', '.join(PARTS[role])}"
        )
    return accept_part(role, options.pop("kind", None), options)


def parse(text: str) -> ObjectiveName:
    """Reads `NAME:option=value,...`, or parts `similarity=KIND(option=value,...);scale=...`.

    Raises:
        RequestError: as `named` and `composed`, or the text has another form.
    """
    text = text.strip()
    if re.match(r"\w+\s*=", text):
        return composed(_parts_in(text))
    name, colon, rest = text.partition(":")
    if ";" in text:
        raise RequestError(
            f"objective '{text}': a preset takes no parts: give options, NAME:option=value,..., or "
            "parts alone, similarity=KIND;scale=KIND;..."
        )
    return named(
        name.strip(),
        **read_options(
            f"objective '{text}'", rest if colon else None, "NAME:option=value,option=value"
        ),
    )


def _parts_in(text: str) -> dict[str, Any]:
    if text.count("(") != text.count(")"):
        raise RequestError(f"objective '{text}': a parenthesis is missing or too many")
    parts: dict[str, Any] = {}
    for item in filter(None, (i.strip() for i in split_outside(text, ";"))):
        role, _, kinds = item.partition("=")
        found = []
        for one in split_outside(kinds, "+"):
            match = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", one)
            if not match:
                raise RequestError(
                    f"objective '{text}': '{item}' is not part=KIND(option=value,...)"
                )
            found.append(
                {"kind": match[1], **read_options(f"objective '{text}'", match[2] or None)}
            )
        if role.strip() in parts:
            raise RequestError(f"objective '{text}': part '{role.strip()}' is given twice")
        parts[role.strip()] = found if role.strip() == "regularizers" else found[0]
        if len(found) > 1 and role.strip() != "regularizers":
            raise RequestError(f"objective '{text}': one {role.strip()} is possible, not several")
    return parts


def available() -> dict[str, dict[str, Value]]:
    """Names of all presets, each with its options and their defaults."""
    plugins.load()
    return {
        name: {key: option.default for key, option in preset.options.items()}
        for name, preset in PRESETS.items()
    }
