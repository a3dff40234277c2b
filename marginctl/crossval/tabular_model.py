"""A network for a table that is trained on all rows, saved in a file, and predicts new rows."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from marginctl.crossval.executors import one_thread
from marginctl.crossval.nested_cv import train_and_choose
from marginctl.crossval.preprocessing import Layout, expand, expand_rows, fit_fold, layout_of
from marginctl.crossval.search_space import Candidate, Setting
from marginctl.crossval.stack import NetworkSplit, Stack, StackTuning
from marginctl.crossval.stacked_networks import StackedLayer, StackedNetworks, hidden_layers
from marginctl.data.tabular.dataset import Column, TabularDataset
from marginctl.errors import MarginctlError
from marginctl.metrics.arrays import FloatArray
from marginctl.objectives.functional import ObjectiveFunction
from marginctl.objectives.parsing import ParsedObjective
from marginctl.recipe.uci_cv import Protocol
from marginctl.runs.base_record import Objective, Percent, parse_objective
from marginctl.runs.model_file import ModelFile, ModelRecord, Tensors, save_model_file

KIND = "table"
BLOCK = 4096  # rows that are predicted at a time
# Errors of tensors that do not fit the document.
MISMATCH_ERRORS = (KeyError, IndexError, RuntimeError, ValueError, TypeError)


class ColumnRecord(ModelRecord):
    """A feature column; of a categorical one, the categories in order."""

    name: str
    categories: list[str]


class TabularRecord(ModelRecord):
    """The document of a model for a table."""

    data: str  # name and SHA-256 digest of the training table, and its rows that were trained on
    digest: str
    rows: Annotated[int, Field(ge=2)]
    columns: Annotated[list[ColumnRecord], Field(min_length=1)]
    classes: Annotated[list[str], Field(min_length=2)]
    # of the classes in Python; files have text
    label_type: Literal["text", "int", "float", "bool"] = "text"
    target: str  # the label column; empty where it has no name
    decimal_mark: str  # of the training table, where it can be seen
    # the `Layout` of the inputs
    numeric: list[int]
    missing: list[int]
    categories: dict[int, list[int]]
    objective: Objective
    protocol: dict[str, Any]
    seed: int
    chosen: str  # the candidate, or the objective where nothing was tuned
    # in percent on the inner folds of all training rows; None if not tuned
    inner_accuracy: Percent | None


@dataclass(frozen=True, eq=False)
class TabularModel:
    """A trained network with its preprocessing."""

    record: TabularRecord
    # `center`, `shift`, `factor` and `fill` of the inputs, (d',) each, and the network's weights,
    # with a leading dimension of 1
    tensors: Tensors

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(c.name, tuple(c.categories)) for c in self.record.columns)

    @torch.no_grad()
    def predict_proba(self, x: FloatArray) -> FloatArray:
        """Return (n, C) class probabilities: the softmax of the logits without margin.

        Args:
            x: (n, d) values as in `TabularDataset.x`, NaN where missing.
        """
        record = self.record
        layout = Layout(record.numeric, record.missing, record.categories)
        tensors, layers, objective = self._network
        weight, bias = tensors["class_weight"], tensors.get("class_bias")
        blocks = [np.zeros((0, len(record.classes)))]
        for first in range(0, len(x), BLOCK):
            inputs = expand_rows(x[first : first + BLOCK], self.columns, layout, np.nan)
            centered = inputs - self.tensors["center"]
            scaled = torch.as_tensor(centered, dtype=tensors["shift"].dtype)
            scaled = (scaled - tensors["shift"]) * tensors["factor"]
            features = torch.where(scaled.isnan(), tensors["fill"], scaled).unsqueeze(0)
            for layer in layers:
                features = layer.forward_eval(features)
            logits = objective.logits(features, weight, tensors, bias)
            blocks.append(logits[0].double().softmax(-1).numpy())
        return np.concatenate(blocks)

    @cached_property
    def _network(self) -> tuple[dict[str, torch.Tensor], list[StackedLayer], ObjectiveFunction]:
        """The tensors, hidden layers and objective of the network."""
        record = self.record
        tensors = {name: torch.as_tensor(value) for name, value in self.tensors.items()}
        # nothing is trained: the gradients are never written
        layers = hidden_layers(Protocol.model_validate(record.protocol), tensors, tensors, tensors)
        spec = parse_objective(record.objective).spec
        return tensors, layers, ObjectiveFunction(spec, len(record.classes))

    def save(self, path: Path) -> None:
        save_model_file(path, KIND, self.record, self.tensors)

    @classmethod
    def from_file(cls, file: ModelFile) -> "TabularModel":
        """Return the model of a file.

        Raises:
            RequestError: it is corrupt, or holds no model of a table.
        """
        model = cls(file.record(KIND, TabularRecord), file.tensors)
        try:
            model.predict_proba(np.full((1, len(model.columns)), np.nan))
        except MISMATCH_ERRORS as error:
            raise file.corrupt(f"its tensors do not fit: {str(error).splitlines()[0]}") from None
        return model


def fit_model(
    dataset: TabularDataset,
    objective: ParsedObjective,
    protocol: Protocol,
    seed: int = 0,
    tuning: StackTuning | None = None,
) -> TabularModel:
    """Choose a candidate by inner folds of all training rows, and train it on all of them.

    The training rows are all rows, or those that a fixed test split leaves.

    Args:
        objective, protocol: used as they are without a tuning.
        seed: of inner folds, weights and batches.

    Raises:
        MarginctlError: the loss is not finite.
    """
    rows = np.arange(dataset.num_rows)
    train = rows if dataset.fixed_test is None else np.delete(rows, dataset.fixed_test)
    split = NetworkSplit(0, 0, train, rows[:0])
    stack = Stack(dataset, objective, protocol, seed, 0, 1, tuning, custom_splits=(split,))
    with one_thread():
        trained = train_and_choose(stack, "cpu", lambda cost: None)
    chosen, inner_accuracy = Candidate(objective, Setting(1, protocol, {})), None
    if tuning is not None:
        (choice,) = trained.choices
        chosen, inner_accuracy = tuning.candidates[choice.candidate], choice.inner_accuracy
    if trained.result.diverged[0]:
        raise MarginctlError(
            f"{dataset.name}: {chosen}: the loss is not finite: choose a lower learning rate"
        )
    layout = layout_of(dataset)
    summary = dataset.summary
    record = TabularRecord(
        data=dataset.name,
        digest=dataset.digest,
        rows=len(train),
        columns=[ColumnRecord(name=c.name, categories=[*c.categories]) for c in dataset.columns],
        classes=list(dataset.classes),
        target=summary.target if summary else "",
        decimal_mark=summary.decimal_mark if summary else "",
        numeric=list(layout.numeric),
        missing=list(layout.missing),
        categories={j: list(codes) for j, codes in layout.categories.items()},
        objective=str(chosen.objective),
        protocol=chosen.setting.protocol.model_dump(mode="json", exclude_defaults=True),
        seed=seed,
        chosen=str(chosen),
        inner_accuracy=inner_accuracy,
    )
    return TabularModel(record, _tensors(trained.networks[0], train))


def _tensors(networks: StackedNetworks, train: Any) -> dict[str, Any]:
    """Return the tensors of a model of the first of some networks."""
    dataset = networks.stack.dataset
    x = expand(dataset)
    fill, _ = fit_fold(dataset, x, train)
    # New rows may lack a number, or one of two categories, that no training row lacks: it becomes
    # the median too, which is the more frequent one of two categories.
    complete = ~np.isnan(x[train]).any(0)
    binary = [
        len(dataset.columns[j].categories) == 2 and not np.isnan(dataset.x[:, j]).any()
        for j, values in layout_of(dataset).categories.items()
        for _ in values
    ]
    complete[len(complete) - len(binary) :] = binary
    fill[complete] = np.median(x[np.ix_(train, np.flatnonzero(complete))], axis=0)
    shift, factor = (t[0, 0].cpu() for t in (networks.shift, networks.factor))
    centered_fill = torch.as_tensor(fill - networks.center, dtype=shift.dtype)
    tensors = {**networks.weights, **networks.state, **networks.running}
    return {
        **{name: value[:1].cpu().numpy() for name, value in tensors.items()},
        "center": networks.center,
        "shift": shift.numpy(),
        "factor": factor.numpy(),
        "fill": ((centered_fill - shift) * factor).numpy(),
    }
