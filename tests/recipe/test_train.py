"""The data section of a `train` recipe: what fits a set, and what suits it where it is left out."""

import pytest
from pydantic import ValidationError

from marginctl.recipe.train import ImageData, TrainRecipe


@pytest.mark.parametrize(
    ("data", "streamed", "side"),
    [
        ({"name": "digits"}, False, 64),
        ({"name": "folder:x"}, False, 64),
        ({"name": "folder:x", "pixels": 32}, False, 32),
        ({"name": "folder:x", "load": "stream"}, True, 224),
        ({"name": "list:x"}, True, 224),
        ({"name": "imagenet", "pixels": 160}, True, 160),
        ({"name": "places-365", "load": "stream"}, True, 224),
    ],
)
def test_what_suits_a_set(data, streamed, side):
    found = ImageData.model_validate(data)
    assert (found.streamed, found.side) == (streamed, side)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"name": "imagenet", "load": "memory"}, "data.load = memory of imagenet: expected stream"),
        ({"name": "mnist", "load": "stream"}, "data.load = stream of mnist: expected memory"),
        (
            {"name": "list:x", "augment": "crop"},
            "data.augment = crop of list:x, streamed: expected one of none, crop-flip, imagenet",
        ),
        (
            {"name": "folder:x", "augment": "imagenet"},
            "data.augment = imagenet of folder:x, held in memory: expected one of none, crop, "
            "crop-flip",
        ),
        (
            {"name": "digits", "blacklist": "b.txt"},
            "data.blacklist = b.txt of digits: expected a streamed set",
        ),
    ],
)
def test_what_does_not_fit(data, expected):
    with pytest.raises(ValidationError) as caught:
        ImageData.model_validate(data)
    (problem,) = caught.value.errors()
    assert problem["msg"] == f"Value error, {expected}"


def test_a_grid_over_sets_takes_what_suits_each():
    recipe = TrainRecipe.model_validate(
        {"task": "train", "grid": {"data.name": ["digits", "list:x", "imagenet"]}}
    )
    assert [own.data.streamed for _, own in recipe.settings()] == [False, True, True]
