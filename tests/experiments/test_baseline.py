"""The untouched network on the test images: its numbers, or why it has none."""

import dataclasses

import pytest
import torch

from marginctl.experiments import source_model
from marginctl.experiments.baseline import before_record
from marginctl.recipe.cosify import CosifyRecipe
from marginctl.utils.distributed import World
from tests.training.factories import CPU, images, run, trainer

RECIPE = CosifyRecipe.model_validate(
    {"task": "cosify", "source_model": "x", "model": "mlp:width=8", "data": {"name": "digits"}}
)


def of(made, **changes):
    """A start, as reading its checkpoint gives it."""
    state = made.state_dict()
    found = source_model.Start(
        *("x", "0" * 64, "mlp:width=8", made.objective.spec, state["model"], state["objective"]),
        tuple(state["normalization"]),
        state["classes"],
        made.recipe.data,
        state["image_size"],
    )
    return dataclasses.replace(found, **changes)


@pytest.mark.parametrize("objective", ["soft:bias=true", "cosine:scale=10", "l-gm"])
def test_it_is_what_the_network_was_measured_as(objective):
    made = trainer(objective, model="mlp:width=8")
    run(made)
    record = before_record(of(made), RECIPE, images(), (), CPU, World())
    tested = made.predict()
    right = (tested.similarities.argmax(1) == tested.labels).double().mean().item()
    assert record["top1"] == pytest.approx(100 * right)
    assert (record["n"], record["reason"]) == (21, None)
    assert record["interval"][0] < record["top1"] <= record["interval"][1]
    assert record["detection"]["misclassification"]["n_out"] == round(21 * (1 - right))
    assert (record["kappa"] is None) == (objective == "l-gm")


def test_its_kappa_is_that_of_directions():
    made = trainer("cosine-ls", model="mlp:width=8")
    tested = made.predict()
    own = made.objective.optimal_scale(tested.features).double().mean().item()
    record = before_record(of(made), RECIPE, images(), (), CPU, World())
    assert record["kappa"] == pytest.approx(own)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"classes": ["a", "b"]}, "it tells 2 classes apart, and the data has 3"),
        ({"classes": ["a", "b", "c"]}, "its classes have other names"),
    ],
)
def test_other_classes_have_no_numbers(changes, said):
    record = before_record(of(trainer("soft"), **changes), RECIPE, images(), (), CPU, World())
    assert record["reason"] == said
    assert {record[key] for key in ("top1", "interval", "n", "kappa", "detection")} == {None}


def test_a_network_that_is_not_finite_is_told():
    made = trainer("soft", model="mlp:width=8")
    found = of(made)
    found.backbone["layers.0.weight"].fill_(torch.nan)
    record = before_record(found, RECIPE, images(), (), CPU, World())
    assert "is not finite" in record["reason"]
