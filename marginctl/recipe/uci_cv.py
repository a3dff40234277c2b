"""The schema of a `uci-cv` recipe."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from marginctl.data.tabular.uci import check_uci_name, uci_definitions
from marginctl.objectives.parsing import parse
from marginctl.objectives.spec import check_number
from marginctl.recipe.fields import (
    OWN_WORDS,
    STRICT,
    About,
    Paper,
    PaperTable,
    Rate,
    Seeds,
    canonical_objective,
    each,
    expected_in,
    shown,
)
from marginctl.utils.text import did_you_mean


def _stratified(value: Any) -> Any:
    if isinstance(value, bool) or value == "equal-test-counts":
        return value
    raise PydanticCustomError(OWN_WORDS, "expected true, false or equal-test-counts")


def _with_number(written: Any) -> str:
    name = canonical_objective(written)
    check_number(f"objective '{name}'", parse(name).spec)
    return name


class Protocol(BaseModel):
    """How every network of a `uci-cv` recipe is trained and tested.

    The defaults are those of own-data, and ours: of all these the ArcGrad paper gives only the
    folds and the repeats.
    """

    model_config = STRICT

    hidden: Annotated[
        list[Annotated[int, Field(ge=1, le=65536)]],
        Field(max_length=100, description="widths of the hidden layers, each with ReLU"),
    ] = [10, 10]
    linear_last_hidden: Annotated[bool, Field(description="the last hidden layer has no ReLU")] = (
        False
    )
    batch_norm: Annotated[
        Literal["none", "before-relu", "after-relu"], Field(description="in every hidden layer")
    ] = "none"
    initialization: Annotated[
        Literal["default", "xavier", "kaiming"],
        Field(description="uniform: PyTorch's of a linear layer, Glorot's or He's, zero biases"),
    ] = "default"
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    lr: Rate = 1e-3
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
        bool | Literal["equal-test-counts"],
        BeforeValidator(_stratified),
        Field(description="equal-test-counts: all folds test the same number of rows per class"),
    ] = False


class Round(BaseModel):
    """A round of a search: every setting that is left at so many repeats; the nearest are kept."""

    model_config = STRICT

    repeats: Annotated[int, Field(ge=1, le=100_000)]
    keep: Annotated[int, Field(ge=1, le=10_000)]


class Space(BaseModel):
    """What is tried: a grid of protocols, and other ways in which a column may be run."""

    model_config = STRICT

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
        return {each([key], _with_number)[0]: each(v, _with_number) for key, v in options.items()}


def _checked_grid(grid: dict[str, list[Any]], where: str) -> dict[str, list[Any]]:
    """A grid of protocols, each value once as the protocol has it.

    Raises:
        ValueError: every problem of its keys and values.
    """
    problems: list[str] = []
    canonical: dict[str, list[Any]] = {}
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
                read = getattr(Protocol.model_validate({key: value}), key)
                known_values = canonical.setdefault(key, [])
                known_values += [] if read in known_values else [read]
            except ValidationError as error:
                said = expected_in(error.errors(include_url=False)[0])
                problems.append(f"{where}.{key} = {shown(value)}: {said}")
    if problems:
        raise ValueError("\n".join(problems))
    return canonical


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


class Recipe(BaseModel):
    """A cross-validation of objectives on data sets: what `marginctl uci-cv` runs."""

    model_config = STRICT

    paper: Paper | None = None
    table: PaperTable | None = None
    about: About = About()
    task: Literal["uci-cv"]
    datasets: Literal["all"] | Annotated[list[str], Field(min_length=1)] = "all"
    objectives: Annotated[list[str], Field(min_length=1)]
    protocol: Protocol = Protocol()
    seeds: Seeds = [0]
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
        return each(written, _with_number) if isinstance(written, list) else written

    @field_validator("grid")
    @classmethod
    def _known_grid(cls, grid: dict[str, list[Any]], info: ValidationInfo) -> dict[str, list[Any]]:
        if grid and (info.data.get("tuning") or info.data.get("search")):
            raise ValueError("grid: not beside 'search' or 'tuning': take one of them")
        return _checked_grid(grid, "grid")

    @field_validator("datasets")
    @classmethod
    def _known_datasets(cls, names: str | list[str]) -> str | list[str]:
        return names if isinstance(names, str) else each(names, check_uci_name)

    @field_validator("seeds")
    @classmethod
    def _distinct_seeds(cls, seeds: list[int]) -> list[int]:
        return list(dict.fromkeys(seeds))

    @property
    def dataset_names(self) -> list[str]:
        return list(uci_definitions()) if self.datasets == "all" else list(self.datasets)
