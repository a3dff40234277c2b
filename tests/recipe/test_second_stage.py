"""Two stages in one recipe: what each trains with, and what is refused."""

import pytest
from pydantic import ValidationError

from marginctl.recipe.cosify import CosifyRecipe
from marginctl.recipe.image_data import ImageData
from marginctl.recipe.train import TrainRecipe

LEAST = {"task": "train", "optim": {"lr": 0.2, "momentum": 0.5}, "train": {"batch_size": 256}}


def recipe(**changes):
    return TrainRecipe.model_validate({**LEAST, **changes})


def test_the_first_stage_is_the_recipe_without_the_second():
    (first, plain), (second, whole) = recipe(second_stage={}).settings()
    assert (first, second) == ({"stage": "first"}, {"stage": "second"})
    assert plain == plain.in_stage() == recipe()
    assert TrainRecipe.model_validate(whole.model_dump()) == whole  # as run.json has it
    own = whole.in_stage()
    assert (own.train.epochs, own.train.batch_size, own.train.sampling) == (
        *(30, 256),
        "class-balanced",
    )
    assert own.optim == plain.optim


def test_what_the_second_stage_says_is_its_own():
    said = {"epochs": 3, "lr": "cosine(start=0.5,end=0)", "weight_decay": 0.0}
    said |= {"batch_size": 8, "sampling": "random"}
    train = {
        "epochs": 7,
        "reference_run": "x",
        "difficulty_groups": 3,
        "gradient_norm_samples": 4,
        "grad_accum_steps": 2,
    }
    (_, first), (setting, second) = recipe(second_stage=said, train=train).settings()
    own = second.in_stage()
    assert (own.train.epochs, own.train.batch_size, own.train.sampling) == (3, 8, "random")
    assert (
        own.train.reference_run,
        own.train.difficulty_groups,
        own.train.gradient_norm_samples,
    ) == (None, 5, 0)
    assert (own.train.grad_accum_steps, own.optim.momentum) == (2, 0.5)
    assert (own.optim.lr, own.optim.weight_decay) == ("cosine(end=0,start=0.5)", 0)
    assert (first.train.epochs, first.train.reference_run) == (7, "x")
    assert setting["stage"].startswith("second:epochs=3:sampling=random:lr=cosine(")


def test_a_grid_has_both_stages_of_each_value():
    found = recipe(second_stage={"epochs": 2}, grid={"data.subset_fraction": [0.5, 1.0]}).settings()
    assert [(s["data.subset_fraction"], s["stage"]) for s, _ in found] == [
        *((0.5, "first"), (0.5, "second:epochs=2")),
        *((1.0, "first"), (1.0, "second:epochs=2")),
    ]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"epochs": 0}, "greater than or equal to 1"),
        ({"sampling": "balanced"}, "'random' or 'class-balanced'"),
        ({"lr": "fast"}, "fast"),
        ({"blocks": "4"}, "Extra inputs are not permitted"),
    ],
)
def test_what_is_wrong_in_a_second_stage(second, said):
    with pytest.raises(ValidationError, match=said) as caught:
        recipe(second_stage=second)
    assert len(caught.value.errors()) == 1


def test_cosify_has_one_stage():
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        CosifyRecipe.model_validate({"task": "cosify", "source_model": "x", "second_stage": {}})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            {"max_per_class": 5},
            "data.max_per_class = 5 without data.imbalance_factor: it is the size",
        ),
        (
            {"imbalance_factor": 10, "subset_fraction": 0.5},
            "data.imbalance_factor = 10 and data.subset_fraction = 0.5: expected one",
        ),
        (
            {"imbalance_factor": 10, "subset_size": 9},
            "data.imbalance_factor = 10 and data.subset_size = 9: expected one",
        ),
        ({"imbalance_factor": 0.5}, "greater than or equal to 1"),
        ({"imbalance_factor": 10, "max_per_class": 0}, "greater than or equal to 1"),
    ],
)
def test_what_is_wrong_in_a_long_tail(data, said):
    with pytest.raises(ValidationError, match=said):
        ImageData.model_validate({"name": "digits", **data})
