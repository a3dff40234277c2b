"""Recipes in files: finding, reading, overriding and validating them."""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

import marginctl
from marginctl.errors import RequestError
from marginctl.recipe.fields import expected_text, shortened
from marginctl.recipe.keys import recipe_keys
from marginctl.utils import yaml
from marginctl.utils.registry import Registry
from marginctl.utils.text import did_you_mean, shorten

PUBLISHED = "published.yaml"  # the published values of a paper, in the folder of its recipes
# names of keys elsewhere, for suggestions
OTHER_KEYS = {
    "learning_rate": "lr",
    "dataset": "name",
    "loss": "objectives",
    "seed": "seeds",
    "num_epochs": "epochs",
}
R = TypeVar("R", bound=BaseModel)
Options = Mapping[str, tuple[str, Any]]  # dotted key -> (option, value or None)


@dataclass(frozen=True)
class RecipeFile:
    """A recipe file and the name of the folder of its runs."""

    name: str
    path: Path


@dataclass(frozen=True)
class RecipeDocument:
    """The content of a recipe before validation."""

    content: dict[str, Any]  # keys and values
    origins: dict[yaml.KeyPath, str]  # file and line, or option, of each key
    file: str  # the origin of keys that have none

    @property
    def task(self) -> str:
        return str(self.content.get("task"))


def recipes_folder() -> Path:
    """Return the folder of the shipped recipes: in a checkout, or inside the installed package."""
    package = Path(marginctl.__file__).parent
    checkout = package.parent / "recipes"
    return checkout if (package.parent / "pyproject.toml").is_file() else package / "_recipes"


def shipped_recipes() -> dict[str, Path]:
    """Return the recipes of this package and of plug-ins: `<paper>/<table>` and the file."""
    shipped = recipes_folder()
    folders = {"": shipped} | {
        f"{name}/": Path(folder)
        for name, folder in papers_registry().items()
        if not Path(folder).is_relative_to(shipped)
    }
    return {
        prefix + path.relative_to(folder).with_suffix("").as_posix(): path
        for prefix, folder in folders.items()
        for path in sorted(folder.rglob("*.yaml"))
        if path.name != PUBLISHED
    }


@functools.cache
def papers_registry() -> Registry[str]:
    """Return the registry of papers; the entry is the folder, so adding a paper adds no code."""
    folders = sorted(recipes_folder().glob(f"*/{PUBLISHED}"))
    shipped = {path.parent.name: str(path.parent) for path in folders}
    return Registry("paper", str, shipped, check=_check_paper)


def _check_paper(name: str, folder: str) -> None:
    if not (Path(folder) / PUBLISHED).is_file():
        raise RequestError(f"no {PUBLISHED} in {folder}")


def find_recipe(name: str) -> RecipeFile:
    """Return a shipped recipe by its name, or a file by its path."""
    known = shipped_recipes()
    if name in known:
        return RecipeFile(name, known[name])
    path = Path(name)
    if path.is_file():
        return RecipeFile(folder_name(path.stem), path)
    raise RequestError(
        f"no recipe '{name}': expected a file, or a name that marginctl recipes list shows."
        f"{did_you_mean(name, known)}"
    )


def folder_name(text: str) -> str:
    """Return `text` as the name of a folder: letters, digits, `_`, `.` and `-`."""
    return re.sub(r"[^\w.-]+", "-", text).strip(".-") or "recipe"


def read_document(recipe: RecipeFile) -> RecipeDocument:
    content, lines = yaml.read(recipe.path)
    if not isinstance(content, dict):
        raise RequestError(f"{recipe.path}:1: expected a mapping such as 'task: uci-cv'")
    origins: dict[yaml.KeyPath, str] = {p: f"{recipe.path}:{n}" for p, n in lines.items()}
    return RecipeDocument(content, origins, str(recipe.path))


def load_recipe(
    recipe: RecipeFile,
    schema: type[R],
    overrides: Iterable[str] = (),
    options: Options | None = None,
) -> R:
    """Read and validate a recipe file, as `validate`."""
    return validate(schema, read_document(recipe), overrides, options)


def validate(
    schema: type[R],
    document: RecipeDocument,
    overrides: Iterable[str] = (),
    options: Options | None = None,
) -> R:
    """Return the validated recipe in a document.

    Raises:
        RequestError: one line for each problem: file and line (or option), key, value and what
            was expected.
    """
    options = options or {}
    given = {key: option for key, (option, value) in options.items() if value is not None}
    for override in overrides:
        key, equals, text = (piece.strip() for piece in override.partition("="))
        option = f"--set {shorten(override)}"
        if not equals or not all(key.split(".")):
            raise RequestError(f"{option}: expected dotted.key=value")
        if "[" in key:
            raise RequestError(
                f"{option}: a key has no brackets: set a list as a whole, such as seeds=[0,1]"
            )
        value = yaml.parse_scalar(text, option)
        for other, name in given.items():
            if any(f"{leaf}.".startswith(f"{other}.") for leaf in _leaves(key, value)):
                raise RequestError(f"{name} and {option}: both set '{other}': give one of them")
        _assign(document, key, value, option)
    grid = document.content.get("grid")
    for key, option in given.items():
        if isinstance(grid, dict) and key in grid:
            raise RequestError(f"{option}: the grid sets '{key}': give --set grid.{key}=[...]")
        _assign(document, key, options[key][1], option)
    if problems := _undecodable(document.content, document.origins, document.file):
        raise RequestError(*problems)
    try:
        return schema.model_validate(document.content)
    except ValidationError as error:
        names = {key: option for key, (option, _) in options.items()}
        raise RequestError(*_error_lines(schema, error, document, names)) from None


def _undecodable(
    value: Any, origins: Mapping[yaml.KeyPath, str], where: str, place: yaml.KeyPath = ()
) -> list[str]:
    """Return a line for each text with bytes that the locale cannot decode: no record holds it."""
    where = origins.get(place, where)
    if isinstance(value, str) and any("\ud800" <= sign <= "\udfff" for sign in value):
        return [
            f"{where}: {shortened(value)}: is no text in this locale: rename it, or set "
            "LC_ALL=C.UTF-8"
        ]
    inner = dict(enumerate(value)) if isinstance(value, list) else value
    items = inner.items() if isinstance(inner, dict) else ()
    return [
        line for key, item in items for line in _undecodable(item, origins, where, (*place, key))
    ]


def _leaves(key: str, value: Any) -> list[str]:
    """Return the dotted keys that an override sets; those of a mapping are below its key."""
    if not isinstance(value, dict):
        return [key]
    return [leaf for inner in value for leaf in _leaves(f"{key}.{inner}", value[inner])]


def _assign(document: RecipeDocument, dotted: str, value: Any, where: str) -> None:
    place: yaml.KeyPath = tuple(dotted.split("."))
    if place[0] == "grid":  # its keys are dotted themselves
        place = tuple(dotted.split(".", 1))
    inner, origins = document.content, document.origins
    for depth, key in enumerate(place[:-1], 1):
        origins.setdefault(place[:depth], where)
        child = inner.setdefault(str(key), {})
        if not isinstance(child, dict):
            origin = origins.get(place[:depth], where)
            raise RequestError(
                f"{origin}: '{shorten(str(key))}' is not a mapping and has no keys below it: set "
                "it as a whole"
            )
        inner = child
    inner[str(place[-1])] = value
    for known in [p for p in origins if p[: len(place)] == place]:
        del origins[known]
    origins[place] = where


def _error_lines(
    schema: type[BaseModel],
    error: ValidationError,
    document: RecipeDocument,
    options: Mapping[str, str],
) -> list[str]:
    """Return one line for each problem: where, key = value, what was expected."""
    lines = []
    origins = document.origins
    for problem in error.errors(include_url=False):
        place = _place(problem, document.content)
        where = next(
            (origins[place[:n]] for n in range(len(place), -1, -1) if place[:n] in origins),
            document.file,
        )
        key = ".".join(str(k) for k in place)
        if problem["type"] == "extra_forbidden":
            fields = _fields_at(schema, place[:-1])
            text = f"unknown key '{shorten(key)}': expected one of {', '.join(fields)}."
            wanted = OTHER_KEYS.get(str(place[-1]), str(place[-1]))
            keys = (row.key for row in recipe_keys(schema) if row.key.split(".")[-1] == wanted)
            # `lr` is the key of a section
            named = next((f" Did you mean '{key}'?" for key in keys), "")
            lines.append(f"{where}: {text}{named or did_you_mean(str(place[-1]), fields)}")
        elif problem["type"] == "missing":
            advice = f", or give {options[key]}" if key in options else ""
            lines.append(f"{where}: key '{key}' is missing: add it{advice}")
        elif problem["type"] == "value_error":
            lines += [f"{where}: {line}" for line in str(problem["ctx"]["error"]).splitlines()]
        elif key == "datasets" and problem["type"] == "literal_error":
            continue  # the other half of the union says what is wrong
        else:
            lines.append(
                f"{where}: {key} = {shortened(problem['input'])}: {expected_text(problem)}"
            )
    return list(dict.fromkeys(lines))


def _place(problem: Any, content: Any) -> yaml.KeyPath:
    """Return where a problem is; pydantic adds the branches of unions, which are no keys."""
    place: list[str | int] = []
    for key in problem["loc"]:
        if (isinstance(content, dict) and key in content) or (
            isinstance(content, list) and isinstance(key, int)
        ):
            content = content[key]
            place.append(key)
    return (*place, *problem["loc"][-1:]) if problem["type"] == "missing" else tuple(place)


def _fields_at(schema: type[BaseModel], place: yaml.KeyPath) -> list[str]:
    """Return the keys of a section, whatever the number of an item in a list."""
    section = "".join(f"{key}." for key in place if isinstance(key, str))
    keys = (row.key.replace("[]", "") for row in recipe_keys(schema))
    below = (key.removeprefix(section) for key in keys if key.startswith(section))
    return list(dict.fromkeys(key.partition(".")[0] for key in below))
