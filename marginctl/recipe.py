"""Recipes: the typed schema, reading with every error at once, and overrides."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from marginctl import typed_yaml
from marginctl.data.uci import check_name, definitions
from marginctl.errors import RequestError
from marginctl.objectives.names import composed, parse
from marginctl.objectives.schedule import rate
from marginctl.text import did_you_mean

_OWN_WORDS = "own_words"


def _rate(value: Any) -> float | str:
    """A learning rate as `rate` gives it; what is wrong, in its words."""
    try:
        return rate(value)
    except ValueError as error:
        raise PydanticCustomError(_OWN_WORDS, "{text}", {"text": str(error)}) from None


def _stratified(value: Any) -> Any:
    if isinstance(value, bool) or value == "rounded-up":
        return value
    raise PydanticCustomError(_OWN_WORDS, "expected true, false or rounded-up")


_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)


class Protocol(BaseModel):
    """How every network of a `uci-cv` recipe is trained and tested.

    The defaults are those of arcgrad/table1. They are ours: of all these the ArcGrad paper gives
    only the folds and the repeats.
    """

    model_config = _STRICT

    hidden: Annotated[
        list[Annotated[int, Field(ge=1, le=65536)]],
        Field(max_length=100, description="widths of the hidden layers, each with ReLU"),
    ] = [10, 10]
    linear_feature: Annotated[bool, Field(description="the last hidden layer has no ReLU")] = False
    batch_norm: Annotated[
        Literal["none", "before-relu", "after-relu"], Field(description="in every hidden layer")
    ] = "none"
    initialization: Annotated[
        Literal["default", "xavier", "kaiming"],
        Field(description="uniform: PyTorch's of a linear layer, Glorot's or He's, zero biases"),
    ] = "default"
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    lr: Annotated[float | str, BeforeValidator(_rate)] = 1e-3
    momentum: Annotated[float, Field(ge=0, lt=1, description="of sgd alone")] = 0.9
    epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 32
    weight_decay: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 5e-4
    scaling: Literal["none", "standard", "minmax"] = "standard"
    class_weights: Annotated[
        Literal["none", "balanced"],
        Field(description="balanced: each class of the training rows counts the same in the loss"),
    ] = "none"
    folds: Annotated[int, Field(ge=2, le=1_000_000)] = 10
    repeats: Annotated[int, Field(ge=1, le=100_000)] = 10
    stratified: Annotated[
        bool | Literal["rounded-up"],
        BeforeValidator(_stratified),
        Field(description="rounded-up: each fold tests the same number of rows of each class"),
    ] = False


class Round(BaseModel):
    """A round of a search: every setting that is left at so many repeats; the nearest are kept."""

    model_config = _STRICT

    repeats: Annotated[int, Field(ge=1, le=100_000)]
    keep: Annotated[int, Field(ge=1, le=1_000_000)]


class Space(BaseModel):
    """What is tried: a grid of protocols, and other ways in which a column may be run."""

    model_config = _STRICT

    protocol: Annotated[
        dict[str, Annotated[list[Any], Field(min_length=1)]],
        Field(min_length=1, description="keys of the protocol, each with the values to try"),
    ]
    options: Annotated[
        dict[str, Annotated[list[str], Field(min_length=1)]],
        Field(description="columns, each with other ways in which the method may be run"),
    ] = {}
    settings: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="drawn from the grid; all where not set")
    ] = None
    seed: Annotated[int, Field(ge=0)] = 0

    @field_validator("protocol")
    @classmethod
    def _known_values(cls, grid: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return _checked_grid(grid, "protocol")

    @field_validator("options", mode="before")
    @classmethod
    def _canonical(cls, options: Any) -> Any:
        if not isinstance(options, dict) or not all(isinstance(v, list) for v in options.values()):
            return options
        return {_each([key], _objective)[0]: _each(v, _objective) for key, v in options.items()}


def _checked_grid(grid: dict[str, list[Any]], where: str) -> dict[str, list[Any]]:
    """A grid of protocols, with every problem of its keys and values."""
    problems: list[str] = []
    for key, values in grid.items():
        if key not in Protocol.model_fields or key in ("folds", "repeats"):
            known = [k for k in Protocol.model_fields if k not in ("folds", "repeats")]
            problems.append(
                f"{where}: unknown key '{key}': expected {', '.join(known)}."
                + did_you_mean(key, known)
            )
            continue
        for value in values:
            try:
                Protocol.model_validate({key: value})
            except ValidationError as error:
                said = _expected(error.errors(include_url=False)[0])
                problems.append(f"{where}.{key} = {_shown(value)}: {said}")
    if problems:
        raise ValueError("\n".join(problems))
    return grid


class Search(Space):
    """What `uci-cv --search` tries, to come near a published table."""

    rounds: Annotated[list[Round], Field(min_length=1)] = [Round(repeats=1, keep=1)]
    nearest_by: Annotated[
        Literal["points", "effects", "stds"],
        Field(description="what is compared with the table: means, methods' effects, deviations"),
    ] = "points"


class Tuning(Space):
    """What every column chooses from, inside the training rows of each network."""

    protocol: Annotated[
        dict[str, Annotated[list[Any], Field(min_length=1)]],
        Field(description="keys of the protocol, each with the values to try"),
    ] = {}
    inner_folds: Annotated[int, Field(ge=2, le=1000)] = 3


class About(BaseModel):
    """What `recipes list` says of a recipe; nothing here changes a result."""

    model_config = _STRICT

    data: str = ""
    cost: str = ""
    status: str = "never run"


class Recipe(BaseModel):
    """A cross-validation of objectives on data sets: what `marginctl uci-cv` runs."""

    model_config = _STRICT

    paper: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,40}$")] | None = None
    table: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]{1,20}$")] | None = None
    about: About = About()
    task: Literal["uci-cv"]
    datasets: Literal["all"] | Annotated[list[str], Field(min_length=1)] = "all"
    objectives: Annotated[list[str], Field(min_length=1)]
    protocol: Protocol = Protocol()
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], Field(min_length=1)] = [0]
    search: Search | None = None
    tuning: Tuning | None = None
    grid: Annotated[
        dict[str, Annotated[list[Any], Field(min_length=1)]],
        Field(description="keys of the protocol, each with its values: a row for each setting"),
    ] = {}
    figure: Annotated[
        Literal["accuracy", "angles"], Field(description="what --figure draws along the grid")
    ] = "accuracy"

    @field_validator("objectives", mode="before")
    @classmethod
    def _canonical_objectives(cls, written: Any) -> Any:
        """Canonical names: of a preset, `NAME:option=value`, or of a mapping of parts."""
        return _each(written, _objective) if isinstance(written, list) else written

    @field_validator("grid")
    @classmethod
    def _known_grid(cls, grid: dict[str, list[Any]], info: ValidationInfo) -> dict[str, list[Any]]:
        if grid and (info.data.get("tuning") or info.data.get("search")):
            raise ValueError("grid: not beside 'search' or 'tuning': take one of them")
        return _checked_grid(grid, "grid")

    @field_validator("datasets")
    @classmethod
    def _known_datasets(cls, names: str | list[str]) -> str | list[str]:
        return names if isinstance(names, str) else _each(names, check_name)

    @field_validator("seeds")
    @classmethod
    def _distinct_seeds(cls, seeds: list[int]) -> list[int]:
        return list(dict.fromkeys(seeds))

    @property
    def dataset_names(self) -> list[str]:
        return list(definitions()) if self.datasets == "all" else list(self.datasets)


def _objective(written: Any) -> str:
    if isinstance(written, dict):
        return str(composed(written))
    if isinstance(written, str):
        return str(parse(written))
    raise RequestError(f"objective {_shown(written)}: expected a name, or a mapping of parts")


def _each(values: Iterable[Any], read: Any) -> list[str]:
    """Reads every value, gathers all problems, and drops what stands twice."""
    seen: dict[str, None] = {}
    problems: list[str] = []
    for value in values:
        try:
            seen[read(value)] = None
        except RequestError as error:
            problems += error.lines
    if problems:
        raise ValueError("\n".join(problems))
    return list(seen)


def shipped_folder() -> Path:
    """The folder of the shipped recipes: live in a checkout, a copy in an installed package."""
    package = Path(__file__).parent
    checkout = package.parent / "recipes"
    return checkout if (package.parent / "pyproject.toml").is_file() else package / "_recipes"


def shipped() -> dict[str, Path]:
    """The shipped recipes: `<paper>/<table>` and the file."""
    folder = shipped_folder()
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.yaml"))
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
        return Source(re.sub(r"[^\w.-]+", "-", path.stem).strip(".-") or "recipe", path)
    raise RequestError(
        f"no recipe '{recipe}': expected a file, or one of {', '.join(known)} "
        f"(see marginctl recipes list).{did_you_mean(recipe, known)}"
    )


def load(
    source: Source,
    overrides: Iterable[str] = (),
    options: Mapping[str, tuple[str, Any]] | None = None,
) -> Recipe:
    """Reads and checks a recipe.

    Args:
        source: from `find`.
        overrides: `dotted.key=value`, as given to --set.
        options: what other options of the command line set: dotted key -> (option, value). These
            come last.

    Raises:
        RequestError: one line for every problem, each with its file and line (or option), key,
            value and what was expected.
    """
    document, lines = typed_yaml.read(source.path)
    if not isinstance(document, dict):
        raise RequestError(f"{source.path}:1: expected a mapping such as 'task: uci-cv'")
    origin: dict[typed_yaml.Place, str] = {p: f"{source.path}:{n}" for p, n in lines.items()}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise RequestError(f"--set {override}: expected dotted.key=value")
        _assign(
            document,
            origin,
            key.strip(),
            typed_yaml.scalar(text, f"--set {override}"),
            f"--set {override}",
        )
    for key, (option, value) in (options or {}).items():
        _assign(document, origin, key, value, option)
    try:
        return Recipe.model_validate(document)
    except ValidationError as error:
        raise RequestError(*_explain(error, origin, f"{source.path}")) from None


def _assign(
    document: dict[str, Any],
    origin: dict[typed_yaml.Place, str],
    dotted: str,
    value: Any,
    where: str,
) -> None:
    place: typed_yaml.Place = tuple(dotted.split("."))
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
    error: ValidationError, origin: Mapping[typed_yaml.Place, str], file: str
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
            fields = _fields_at(place[:-1])
            text = f"unknown key '{key}': expected one of {', '.join(fields)}."
            lines.append(f"{nearest}: {text}{did_you_mean(str(place[-1]), fields)}")
        elif problem["type"] == "missing":
            lines.append(f"{nearest}: key '{key}' is missing: add it")
        elif problem["type"] == "value_error":
            lines += [f"{nearest}: {line}" for line in str(problem["ctx"]["error"]).splitlines()]
        elif key == "datasets" and problem["type"] == "literal_error":
            continue  # the other half of the union says what is wrong
        else:
            lines.append(f"{nearest}: {key} = {_shown(problem['input'])}: {_expected(problem)}")
    return list(dict.fromkeys(lines))


def _expected(problem: Mapping[str, Any]) -> str:
    """What was expected in place of a value, from one of pydantic's errors."""
    if problem["type"] == _OWN_WORDS:
        return str(problem["msg"])
    expected = re.sub("^(Input should be|List should have) ", "", problem["msg"])
    return "expected " + expected.split(" after validation")[0]


def _is_union_branch(key: str | int) -> bool:
    return isinstance(key, str) and ("[" in key or key == "str")


def _fields_at(place: tuple[str | int, ...]) -> list[str]:
    model: Any = Recipe
    for key in place:
        if isinstance(key, str):  # and not the number of an item
            model = _model_in(model.model_fields[key].annotation)
    return list(model.model_fields)


def _model_in(annotation: Any) -> Any:
    """The model of a field: itself, or an optional one, or that of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for m in map(_model_in, get_args(annotation)) if m is not None), None)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def summaries() -> list[dict[str, str | None]]:
    """What `recipes list` shows of each shipped recipe."""
    rows: list[dict[str, str | None]] = []
    for name, path in shipped().items():
        recipe = load(Source(name, path))
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
        target.write_text(typed_yaml.read_text(source.path, str(source.path)), "utf-8")
    except OSError as error:
        raise RequestError(f"{target}: cannot be written: {error.strerror or error}") from None
    return target
