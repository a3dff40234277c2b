"""The schema of a `uci-cv` recipe."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from marginctl.data.tabular.uci import check_uci_name, uci_definitions
from marginctl.objectives.parsing import ParsedObjective, parse_any
from marginctl.objectives.parts import check_scale_value
from marginctl.objectives.tuning import max_rate
from marginctl.recipe import fields
from marginctl.utils.text import did_you_mean

BaselineName = Literal["majority", "logistic-regression", "gradient-boosting"]
BASELINES: tuple[str, ...] = get_args(BaselineName)
INNER_FOLDS = 3  # of tuning and of the baselines, unless the recipe says otherwise; our choice


@dataclass(frozen=True)
class SklearnBaseline:
    """A classifier of scikit-learn that is compared with the objectives."""

    name: str
    inner_folds: int = INNER_FOLDS  # of the training rows, which choose its setting

    def __str__(self) -> str:
        return self.name


def _stratified(value: Any) -> Any:
    if isinstance(value, bool) or value == "equal-test-counts":
        return value
    raise PydanticCustomError(fields.CUSTOM_ERROR, "expected true, false or equal-test-counts")


def _numbered_objective(value: Any) -> ParsedObjective:
    """Return an objective whose scale is a number."""
    objective = parse_any(value)
    check_scale_value(f"objective '{objective}'", objective.spec)
    return objective


class Protocol(fields.Section):
    """Training and cross-validation of every network of a `uci-cv` recipe.

    The defaults are ours: the ArcGrad paper gives only the folds and the repeats.
    """

    hidden: list[Annotated[int, Field(ge=1, le=65536)]] = Field(default=[10, 10], max_length=100)
    """widths of the hidden layers, each with ReLU"""
    linear_last_hidden: bool = False
    """no ReLU after the last hidden layer"""
    batch_norm: Literal["none", "before-relu", "after-relu"] = "none"
    """in every hidden layer"""
    initialization: Literal["default", "xavier", "kaiming"] = "default"
    """PyTorch's default, or Glorot's or He's uniform one"""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    lr: fields.LearningRate = 1e-3
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """sgd only"""
    epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 32
    weight_decay: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 5e-4
    scaling: Literal["none", "standard", "minmax"] = "standard"
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: every class has the same total weight in the loss"""
    folds: Annotated[int, Field(ge=2, le=1_000_000)] = 10
    repeats: Annotated[int, Field(ge=1, le=100_000)] = 10
    stratified: Annotated[bool | Literal["equal-test-counts"], BeforeValidator(_stratified)] = False
    """equal-test-counts: all folds test the same number of rows per class"""


# keys of the protocol, each with its values
ProtocolGrid = dict[str, Annotated[list[Any], Field(min_length=1)]]


class SearchRound(fields.Section):
    """A round of a search: runs the remaining settings and keeps the nearest ones."""

    repeats: Annotated[int, Field(ge=1, le=100_000)]
    keep: Annotated[int, Field(ge=1, le=10_000)]


class SearchSpace(fields.Section):
    """A grid of protocols, and alternatives of the objectives."""

    protocol: Annotated[ProtocolGrid, Field(min_length=1)]
    """keys of the protocol, each with its values"""
    options: dict[str, Annotated[list[ParsedObjective], Field(min_length=1)]] = Field(default={})
    """objectives, each with alternatives that stand for it"""
    settings: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """number of settings to draw; default: all"""
    seed: Annotated[int, Field(ge=0)] = 0

    @field_validator("protocol")
    @classmethod
    def _known_values(cls, grid: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return _validated_grid(grid, "protocol")

    @field_validator("options", mode="before")
    @classmethod
    def _canonical(cls, options: Any) -> Any:
        if not isinstance(options, dict) or not all(isinstance(v, list) for v in options.values()):
            return options
        return {
            str(fields.map_all([key], _numbered_objective)[0]): fields.map_all(
                v, _numbered_objective
            )
            for key, v in options.items()
        }


def _validated_grid(grid: dict[str, list[Any]], where: str) -> dict[str, list[Any]]:
    """Return a grid with validated, distinct values, or raise ValueError with all problems."""
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
                validated = getattr(Protocol.model_validate({key: value}), key)
                distinct = canonical.setdefault(key, [])
                if validated not in distinct:
                    distinct.append(validated)
            except ValidationError as error:
                expected = fields.expected_text(error.errors(include_url=False)[0])
                problems.append(f"{where}.{key} = {fields.shortened(value)}: {expected}")
    if problems:
        raise ValueError("\n".join(problems))
    return canonical


class Search(SearchSpace):
    """The search of `uci-cv --search` for the protocol of a published table."""

    rounds: list[SearchRound] = Field(default=[SearchRound(repeats=1, keep=1)], min_length=1)
    nearest_by: Literal["points", "effects", "stds"] = "points"
    """compared with the table: means, effects of methods, standard deviations"""


class Tune(SearchSpace):
    """The candidates that every objective chooses from, within the training rows of each network.

    With a learning rate in `protocol`, or with `options`, the candidates are the grid of both.
    Otherwise each of `rates` is one candidate, and the values of the objective's own options and
    of `protocol` are spread over the rates: see `objectives.tuning`.
    """

    rates: Annotated[fields.PositiveNumbers | None, Field(min_length=1)] = None
    """learning rates; default: 11 of the optimizer"""
    protocol: ProtocolGrid = Field(default={})
    """keys of the protocol, each with its values"""
    inner_folds: Annotated[int, Field(ge=2, le=1000)] = INNER_FOLDS

    @property
    def is_grid(self) -> bool:
        """Whether the candidates are a grid of named values."""
        return bool(self.options) or "lr" in self.protocol

    @model_validator(mode="after")
    def _one_form(self) -> "Tune":
        if self.is_grid and self.rates is not None:
            raise ValueError(
                "tune.rates: expected no 'options' and no 'protocol.lr' in the same section: use "
                "one of them"
            )
        if not self.is_grid and self.settings is not None:
            raise ValueError(
                "tune.settings: draws from a grid: name 'options' or 'protocol.lr', or leave it out"
            )
        return self


class UciCvRecipe(fields.Section):
    """A cross-validation of objectives on data sets: what `marginctl uci-cv` runs."""

    paper: fields.Paper | None = None
    table: fields.PaperTable | None = None
    about: fields.About = fields.About()
    task: Literal["uci-cv"]
    datasets: Literal["all"] | Annotated[list[str], Field(min_length=1)] = "all"
    objectives: Annotated[list[ParsedObjective], Field(min_length=1)]
    untuned_objectives: list[ParsedObjective] = Field(default=[])
    """objectives in place of these without tuning; default: the same"""
    baselines: Annotated[list[BaselineName], fields.Distinct] = Field(default=[])
    """scikit-learn classifiers to run on the same folds"""
    protocol: Protocol = Protocol()
    seeds: fields.Seeds = Field(default=[0])
    search: Search | None = None
    tune: Tune | None = None
    grid: ProtocolGrid = Field(default={})
    """keys of the protocol, each with its values; a row for every setting"""
    figure: Literal["accuracy", "angles"] = "accuracy"
    """the curves that --figure plots over the grid"""

    @model_validator(mode="after")
    def _batches_can_be_normalised(self) -> "UciCvRecipe":
        grids = [self.grid, *(space.protocol for space in (self.search, self.tune) if space)]
        for grid in grids:
            norms = grid.get("batch_norm", [self.protocol.batch_norm])
            sizes = grid.get("batch_size", [self.protocol.batch_size])
            if 1 in sizes and any(norm != "none" for norm in norms):
                raise ValueError(
                    "protocol.batch_size = 1, expected at least 2 with protocol.batch_norm: one "
                    "row has no variance: use larger batches, or leave batch_norm out"
                )
        return self

    @model_validator(mode="after")
    def _rate_can_be_tuned(self) -> "UciCvRecipe":
        if self.tune is not None and not self.tune.is_grid:
            try:
                max_rate(self.protocol.lr)
            except ValueError as error:
                raise ValueError(
                    f"protocol.lr = {self.protocol.lr}: {error}: use another schedule, or leave "
                    "'tune' out"
                ) from None
        return self

    @field_validator("objectives", "untuned_objectives", mode="before")
    @classmethod
    def _canonical_objectives(cls, texts: Any) -> Any:
        return fields.map_all(texts, _numbered_objective) if isinstance(texts, list) else texts

    @field_validator("grid")
    @classmethod
    def _known_grid(cls, grid: dict[str, list[Any]], info: ValidationInfo) -> dict[str, list[Any]]:
        if grid and (info.data.get("tune") or info.data.get("search")):
            raise ValueError(
                "grid: expected no 'search' or 'tune' in the same recipe: use one of them, or add "
                "--no-tune"
            )
        return _validated_grid(grid, "grid")

    @field_validator("datasets")
    @classmethod
    def _known_datasets(cls, names: str | list[str], info: ValidationInfo) -> str | list[str]:
        if isinstance(names, str) or (info.context or {}).get(fields.RECORDED):
            return names
        return fields.map_all(names, check_uci_name)

    @property
    def measured(self) -> bool:
        """Whether more than the accuracy is measured: in all but the paper's own tables."""
        return self.paper is None

    @property
    def dataset_names(self) -> list[str]:
        return list(uci_definitions()) if self.datasets == "all" else list(self.datasets)
