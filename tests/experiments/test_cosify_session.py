"""The baseline of cosify: the metrics of the source model, or why it has none."""

import dataclasses

import pytest
import torch

from marginctl.experiments.cosify_session import baseline_record
from marginctl.experiments.source_model import SourceModel
from marginctl.models.registry import ModelSpec
from marginctl.recipe.cosify import CosifyRecipe
from marginctl.utils.distributed import World
from tests.training.factories import CPU, images, run, trainer

RECIPE = CosifyRecipe.model_validate(
    {"task": "cosify", "source_model": "x", "model": "mlp:width=8", "data": {"name": "digits"}}
)


def source_of(made, **changes):
    """Return the source model of a trainer's network."""
    state = made.state_dict()
    source = SourceModel(
        path="x",
        weights="0" * 64,
        model=ModelSpec.parse("mlp:width=8"),
        spec=made.objective.spec,
        backbone=state["model"],
        objective=state["objective"],
        moments=tuple(state["normalization"]),
        classes=state["classes"],
        data=made.recipe.data,
        image_size=state["image_size"],
        row="x",
        trained_with="soft",
        seed=0,
    )
    return dataclasses.replace(source, **changes)


@pytest.mark.parametrize("objective", ["soft:bias=true", "cosine:scale=10", "l-gm"])
def test_it_is_the_accuracy_of_the_network(objective):
    made = trainer(objective, model="mlp:width=8")
    run(made)
    record = baseline_record(source_of(made), RECIPE, images(), (), CPU, World())
    tested = made.predict()
    right = (tested.similarities.argmax(1) == tested.labels).double().mean().item()
    assert record["top1"] == pytest.approx(100 * right)
    assert (record["n"], record["reason"]) == (21, None)
    assert record["interval"][0] < record["top1"] <= record["interval"][1]
    assert record["detection"]["misclassification"]["n_out"] == round(21 * (1 - right))
    assert (record["kappa"] is None) == (objective == "l-gm")


def test_kappa_is_by_directions():
    made = trainer("cosine-ls", model="mlp:width=8")
    tested = made.predict()
    own = made.objective.optimal_scale(tested.features).double().mean().item()
    record = baseline_record(source_of(made), RECIPE, images(), (), CPU, World())
    assert record["kappa"] == pytest.approx(own)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"classes": ["a", "b"]}, "it has 2 classes, the data 3"),
        ({"classes": ["a", "b", "c"]}, "class 'class0' is none of the 3 classes of the network"),
    ],
)
def test_other_classes_have_no_metrics(changes, said):
    record = baseline_record(
        source_of(trainer("soft"), **changes), RECIPE, images(), (), CPU, World()
    )
    assert said in record["reason"]
    assert {record[key] for key in ("top1", "interval", "n", "kappa", "detection")} == {None}


def test_a_network_that_is_not_finite_has_a_reason():
    made = trainer("soft", model="mlp:width=8")
    found = source_of(made)
    found.backbone["layers.0.weight"].fill_(torch.nan)
    record = baseline_record(found, RECIPE, images(), (), CPU, World())
    assert "is not finite" in record["reason"]
