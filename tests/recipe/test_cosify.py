"""The recipe of `cosify`: Table 8's settings where it says nothing, and what its start adds."""

import pytest
from pydantic import ValidationError

from marginctl.errors import RequestError
from marginctl.models.registry import ModelSpec
from marginctl.objectives.parsing import parse
from marginctl.recipe.cosify import CosifyRecipe
from marginctl.recipe.image_data import ImageData

RESNET18 = ModelSpec.parse("resnet18")


def recipe(**keys):
    return CosifyRecipe.model_validate({"task": "cosify", "source_model": "runs/x", **keys})


def test_what_is_left_out_is_table_8():
    made = recipe()
    assert (made.train.epochs, made.train.batch_size) == (30, 256)
    assert (made.optim.optimizer, made.optim.momentum) == ("sgd", 0.9)
    assert (str(made.optim.lr), made.optim.weight_decay) == ("cosine(end=0,start=0.01)", 1e-4)
    assert (made.objectives, made.blocks) == ([parse("cosine-ls")], "1-4")


def test_blocks_in_a_grid_name_the_rows():
    settings = recipe(grid={"blocks": [4, "3-4"], "optim.lr": [0.1]}).settings()
    assert [s for s, _ in settings] == [
        {"blocks": "4", "optim.lr": 0.1},
        {"blocks": "3-4", "optim.lr": 0.1},
    ]
    assert [(type(made), made.blocks) for _, made in settings] == [
        (CosifyRecipe, "4"),
        (CosifyRecipe, "3-4"),
    ]
    assert [s for s, _ in recipe(blocks=4).settings()] == [{"blocks": "4"}]
    with pytest.raises(ValidationError, match="'1-4', '2-4', '3-4', '4' or 'head'"):
        recipe(grid={"blocks": ["2"]})


def test_what_the_start_adds():
    trained = ImageData(name="cifar-100", subset_size=500, augment="random-crop")
    made = recipe(data={"augment": "none"}).with_source_model(RESNET18, trained, 32)
    assert (made.model, made.data.name) == (RESNET18, "cifar-100")
    assert (made.data.subset_size, made.data.augment) == (500, "none")
    other = recipe(data={"name": "digits"}).with_source_model(RESNET18, trained, 32)
    assert (other.data.name, other.data.subset_size, other.data.image_size) == (
        "digits",
        None,
        None,
    )
    files = recipe(data={"name": "folder:x"}).with_source_model(RESNET18, None, 96)
    assert files.data.image_size == 96
    kept = recipe(data={"name": "folder:x", "image_size": 64}).with_source_model(
        "resnet18", None, 96
    )
    assert kept.data.image_size == 64
    listed = {"data.name": ["digits", "folder:x"]}
    for _, made in recipe(grid=listed).with_source_model(RESNET18, None, 96).settings():
        assert made.data.image_size == 96  # also where no set of files is named but in the grid


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"model": "resnet34"},
            "model = resnet34: the network of runs/x is resnet18: leave 'model' out",
        ),
        ({}, "source_model = runs/x: its images are unknown: name images with --data"),
        (
            {"data": {"name": "folder:x", "load": "memory", "augment": "imagenet"}},
            "data.augment = imagenet of folder:x, held in memory",
        ),
    ],
)
def test_what_does_not_go_together_is_a_line(keys, said):
    with pytest.raises((RequestError, ValidationError), match=said.replace("(", r"\(")):
        recipe(**keys).with_source_model(RESNET18, None, 32)
