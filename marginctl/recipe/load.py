"""Reading recipes with every error at once, and overrides."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

import marginctl
from marginctl.errors import RequestError
from marginctl.recipe.cosify import CosifyRecipe
from marginctl.recipe.fields import expected_in, shown
from marginctl.recipe.train import TrainRecipe
from marginctl.recipe.transfer import TransferRecipe
from marginctl.recipe.uci_cv import Recipe
from marginctl.utils import yaml
from marginctl.utils.text import did_you_mean, short

TASKS: Mapping[str, type[Recipe] | type[TrainRecipe]] = {
    "uci-cv": Recipe,
    "train": TrainRecipe,
    "cosify": CosifyRecipe,
    "transfer": TransferRecipe,
}
PUBLISHED = "published.yaml"  # the published values of a paper, in the folder of its recipes
R = TypeVar("R", bound=BaseModel)


def shipped_folder() -> Path:
    """The folder of the shipped recipes: live in a checkout, a copy in an installed package."""
    package = Path(marginctl.__file__).parent
    checkout = package.parent / "recipes"
    return checkout if (package.parent / "pyproject.toml").is_file() else package / "_recipes"


def shipped() -> dict[str, Path]:
    """The shipped recipes: `<paper>/<table>` and the file."""
    folder = shipped_folder()
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.yaml"))
        if path.name != PUBLISHED
    }


def paper_folders() -> dict[str, Path]:
    """Return the folder of each paper by its name: those that hold its published values."""
    return {
        path.parent.name: path.parent for path in sorted(shipped_folder().glob(f"*/{PUBLISHED}"))
    }


@dataclass(frozen=True)
class Source:
    """Where a recipe comes from: the name that its runs are stored under, and its file."""

    name: str
    path: Path


def find(recipe: str) -> Source:
    """A shipped recipe by its name, or a file by its path.

    Raises:
        RequestError: neither exists.
    """
    known = shipped()
    if recipe in known:
        return Source(recipe, known[recipe])
    path = Path(recipe)
    if path.is_file():
        return Source(stored_name(path.stem), path)
    raise RequestError(
        f"no recipe '{recipe}': expected a file, or a name that marginctl recipes list shows."
        f"{did_you_mean(recipe, known)}"
    )


def stored_name(said: str) -> str:
    """The name of a folder for what is said in words: letters, digits, `_`, `.` and `-`."""
    return re.sub(r"[^\w.-]+", "-", said).strip(".-") or "recipe"


def load(
    source: Source,
    overrides: Iterable[str] = (),
    options: Mapping[str, tuple[str, Any]] | None = None,
) -> Recipe:
    """Reads and checks a `uci-cv` recipe, as `load_as`."""
    return load_as(Recipe, source, overrides, options)


def load_any(source: Source, overrides: Iterable[str] = ()) -> Recipe | TrainRecipe:
    """Reads and checks a recipe of any task, as `load_as`."""
    document, _ = yaml.read(source.path)
    task = document.get("task") if isinstance(document, dict) else None
    return load_as(TASKS.get(str(task), Recipe), source, overrides)


def load_as(
    model: type[R],
    source: Source,
    overrides: Iterable[str] = (),
    options: Mapping[str, tuple[str, Any]] | None = None,
) -> R:
    """Reads and checks a recipe.

    Args:
        model: the schema of its task.
        source: from `find`.
        overrides: `dotted.key=value`, as given to --set.
        options: what other options of the command line set: dotted key -> (option, value), None
            where one was not given. These come last.

    Raises:
        RequestError: one line for every problem, each with its file and line (or option), key,
            value and what was expected.
    """
    document, lines = yaml.read(source.path)
    if not isinstance(document, dict):
        raise RequestError(f"{source.path}:1: expected a mapping such as 'task: uci-cv'")
    origin: dict[yaml.KeyPath, str] = {p: f"{source.path}:{n}" for p, n in lines.items()}
    task = str(document.get("task"))
    if task in TASKS and TASKS[task] is not model:
        known = shipped().get(source.name) == source.path
        raise RequestError(
            f"{origin[('task',)]}: task = '{task}': run it with marginctl {task} "
            f"{source.name if known else source.path}"
        )
    return check(model, document, origin, f"{source.path}", overrides, options)


def check(
    model: type[R],
    document: dict[str, Any],
    origin: dict[yaml.KeyPath, str],
    file: str,
    overrides: Iterable[str] = (),
    options: Mapping[str, tuple[str, Any]] | None = None,
) -> R:
    """Checks a recipe's document, as `load_as`.

    Args:
        origin: where each key of the document comes from; `file` for those that are not there.
    """
    for override in overrides:
        key, equals, text = override.partition("=")
        option = f"--set {short(override)}"
        if not equals or not key.strip():
            raise RequestError(f"{option}: expected dotted.key=value")
        _assign(
            document,
            origin,
            key.strip(),
            yaml.parse_scalar(text, option),
            option,
        )
    options = options or {}
    for key, (option, value) in options.items():
        if value is not None:
            _assign(document, origin, key, value, option)
    if problems := _no_text(document, origin, file):
        raise RequestError(*problems)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        ways = {key: option for key, (option, _) in options.items()}
        raise RequestError(*_explain(model, error, origin, file, ways)) from None


def _no_text(
    value: Any, origin: Mapping[yaml.KeyPath, str], where: str, place: yaml.KeyPath = ()
) -> list[str]:
    """A line for each value that no record can hold: a path's bytes that the locale cannot read."""
    where = origin.get(place, where)
    if isinstance(value, str) and any("\ud800" <= sign <= "\udfff" for sign in value):
        return [
            f"{where}: {shown(value)}: is no text in this locale: rename it, or set LC_ALL=C.UTF-8"
        ]
    inner = dict(enumerate(value)) if isinstance(value, list) else value
    items = inner.items() if isinstance(inner, dict) else ()
    return [line for key, of in items for line in _no_text(of, origin, where, (*place, key))]


def _assign(
    document: dict[str, Any],
    origin: dict[yaml.KeyPath, str],
    dotted: str,
    value: Any,
    where: str,
) -> None:
    place: yaml.KeyPath = tuple(dotted.split("."))
    if place[0] == "grid":  # its keys are dotted themselves
        place = tuple(dotted.split(".", 1))
    inner = document
    for depth, key in enumerate(place[:-1], 1):
        origin.setdefault(place[:depth], where)
        child = inner.setdefault(str(key), {})
        if not isinstance(child, dict):
            said = origin.get(place[:depth], where)
            raise RequestError(f"{said}: '{key}' is not a mapping and has no keys below it")
        inner = child
    inner[str(place[-1])] = value
    for known in [p for p in origin if p[: len(place)] == place]:
        del origin[known]
    origin[place] = where


def _explain(
    model: type[BaseModel],
    error: ValidationError,
    origin: Mapping[yaml.KeyPath, str],
    file: str,
    options: Mapping[str, str],
) -> list[str]:
    """Every problem as one line: where, key = value, what was expected."""
    lines = []
    for problem in error.errors(include_url=False):
        # Places in a union carry the branch's name, which is no key of the recipe.
        place = tuple(k for k in problem["loc"] if not _is_union_branch(k))
        nearest = next(
            (origin[place[:n]] for n in range(len(place), -1, -1) if place[:n] in origin), file
        )
        key = ".".join(str(k) for k in place)
        if problem["type"] == "extra_forbidden":
            fields = _fields_at(model, place[:-1])
            text = f"unknown key '{short(key)}': expected one of {', '.join(fields)}."
            lines.append(f"{nearest}: {text}{did_you_mean(str(place[-1]), fields)}")
        elif problem["type"] == "missing":
            way = f", or give {options[key]}" if key in options else ""
            lines.append(f"{nearest}: key '{key}' is missing: add it{way}")
        elif problem["type"] == "value_error":
            lines += [f"{nearest}: {line}" for line in str(problem["ctx"]["error"]).splitlines()]
        elif key == "datasets" and problem["type"] == "literal_error":
            continue  # the other half of the union says what is wrong
        else:
            lines.append(f"{nearest}: {key} = {shown(problem['input'])}: {expected_in(problem)}")
    return list(dict.fromkeys(lines))


def _is_union_branch(key: str | int) -> bool:
    return isinstance(key, str) and ("[" in key or key == "str")


def _fields_at(model: Any, place: tuple[str | int, ...]) -> list[str]:
    for key in place:
        if isinstance(key, str):  # and not the number of an item
            model = _model_in(model.model_fields[key].annotation)
    return list(model.model_fields)


def _model_in(annotation: Any) -> Any:
    """The model of a field: itself, or an optional one, or that of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for m in map(_model_in, get_args(annotation)) if m is not None), None)


def summaries() -> list[dict[str, str | None]]:
    """What `recipes list` shows of each shipped recipe."""
    rows: list[dict[str, str | None]] = []
    for name, path in shipped().items():
        recipe = load_any(Source(name, path))
        rows.append(
            {
                "name": name,
                "path": str(path),
                "paper": recipe.paper,
                "table": recipe.table,
                "task": recipe.task,
                **recipe.about.model_dump(),
            }
        )
    return rows


def copy(recipe: str, to: Path, *, force: bool) -> Path:
    """Copies a recipe's file to `to`, or into it where it is a folder; returns the file.

    Raises:
        RequestError: there is a file already and `force` is not set, or it cannot be written.
    """
    source = find(recipe)
    target = to / source.path.name if to.is_dir() else to
    if target.exists() and not force:
        raise RequestError(f"{target}: exists already: name another file, or add --force")
    try:
        target.write_text(yaml.read_text(source.path, str(source.path)), "utf-8")
    except OSError as error:
        raise RequestError(f"{target}: cannot be written: {error.strerror or error}") from None
    return target
