"""The keys of a recipe by its schema: what each takes, its default and its meaning."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

_TYPES = {
    "integer": "integer",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "object": "mapping",
    "null": "none",
}
_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}


class _Schema(GenerateJsonSchema):
    def encode_default(self, dft: Any) -> Any:
        return json.loads(json.dumps(dft, default=str))  # objectives and models are texts


@dataclass(frozen=True)
class RecipeKey:
    """A key of a recipe.

    Attributes:
        key: with its section, such as `optim.lr`; `[]` after a list of mappings.
        takes: the type with its range, or the choices.
        default: as YAML; empty where the key is required.
    """

    key: str
    takes: str
    default: str
    description: str


def recipe_keys(schema: type[BaseModel]) -> list[RecipeKey]:
    """Return the keys of a task's recipes, those of its sections included."""
    document = schema.model_json_schema(mode="serialization", schema_generator=_Schema)
    return list(_keys(document, document.get("$defs", {}), ""))


def _keys(
    section: Mapping[str, Any], sections: Mapping[str, Any], prefix: str
) -> Iterator[RecipeKey]:
    for name, field in section["properties"].items():
        key, inner = prefix + name, [*_references(field)]
        if inner:
            many = "[]" if "items" in str(field) else ""
            for reference in inner:
                yield from _keys(sections[reference], sections, f"{key}{many}.")
        else:
            default = _value(field["default"]) if "default" in field else ""
            description = " ".join(field.get("description", "").split())
            yield RecipeKey(key, _takes(field), default, description)


def _references(field: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the sections that a field holds: by itself, as a choice, or in a list."""
    if "$ref" in field:
        yield field["$ref"].rpartition("/")[2]
    for one in (*field.get("anyOf", ()), *filter(None, [field.get("items")])):
        yield from _references(one)


def _takes(field: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(map(_takes, field["anyOf"])))
    if "enum" in field or "const" in field:
        return ", ".join(map(_value, field.get("enum", [field.get("const")])))
    if field.get("type") == "array":
        return f"list of {_takes(field['items'])}"
    bounds = (f", {word} {field[bound]:g}" for bound, word in _BOUNDS.items() if bound in field)
    return _TYPES.get(field.get("type", ""), "any value") + "".join(bounds)


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
