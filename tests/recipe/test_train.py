"""The data section of a `train` recipe: what fits a set, and what suits it where it is left out."""

import pytest
from pydantic import ValidationError

from marginctl.errors import RequestError
from marginctl.recipe.image_data import ImageData
from marginctl.recipe.load import RecipeFile, load_recipe
from marginctl.recipe.train import TrainRecipe
from marginctl.utils.text import shorten


@pytest.mark.parametrize(
    ("data", "streamed", "side"),
    [
        ({"name": "digits"}, False, 64),
        ({"name": "folder:x"}, False, 64),
        ({"name": "folder:x", "image_size": 32}, False, 32),
        ({"name": "folder:x", "load": "stream"}, True, 224),
        ({"name": "list:x"}, True, 224),
        ({"name": "imagenet", "image_size": 160}, True, 160),
        ({"name": "places-365", "load": "stream"}, True, 224),
    ],
)
def test_what_suits_a_set(data, streamed, side):
    found = ImageData.model_validate(data)
    assert (found.streamed, found.resolved_size) == (streamed, side)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"name": "imagenet", "load": "memory"}, "data.load = memory of imagenet: expected stream"),
        ({"name": "mnist", "load": "stream"}, "data.load = stream of mnist: expected memory"),
        (
            {"name": "list:x", "augment": "random-crop"},
            "data.augment = random-crop of list:x, streamed: expected one of none, flip, "
            "random-crop-flip, random-resized-crop-flip, imagenet",
        ),
        (
            {"name": "folder:x", "augment": "imagenet"},
            "data.augment = imagenet of folder:x, held in memory: expected one of none, flip, "
            "random-crop, random-crop-flip, reflect-crop-flip",
        ),
        (
            {"name": "cifar-100", "augment": "random-resized-crop-flip"},
            "data.augment = random-resized-crop-flip of cifar-100, held in "
            "memory: expected one of none, flip, "
            "random-crop, random-crop-flip, reflect-crop-flip",
        ),
        (
            {"name": "digits", "exclude": "b.txt"},
            "data.exclude = b.txt of digits: expected a streamed data set",
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


@pytest.mark.parametrize("name", ["imagenet", "list:x"])
def test_a_set_on_disk_is_not_loaded_in_memory(name):
    with pytest.raises(ValidationError, match=f"load = memory of {name}: expected stream"):
        ImageData(name=name, load="memory")


NOT_FINITE = (float("nan"), float("inf"))


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("subset_fraction", (0, -0.1, 1.01, *NOT_FINITE)),
        ("label_noise", (-0.1, 1, 2, *NOT_FINITE)),
        ("imbalance_factor", (0.5, *NOT_FINITE)),
        ("max_per_class", (0, -1)),
        ("image_size", (0, -1, 3)),
    ],
)
def test_numbers_out_of_range(key, values):
    for value in values:
        with pytest.raises(ValidationError) as caught:
            ImageData.model_validate({"name": "folder:x", key: value})
        assert [problem["loc"] for problem in caught.value.errors()] == [(key,)], value


BROKEN = """\
task: train
data:
  name: digts
  subset_fraction: 2.0
model: resnt18
objectives: [sofd, "arcgrad:scale=-1"]
optim:
  lr: fast
  momentun: 0.9
train: {epochs: 0, precision: fp8}
seeds: [-1]
grid:
  data.subset_fraction: [0.5, 2.0]
  train.epochz: [1]
  model: [mlp, "mlp:width=0"]
  optim.lr: [0.1, slow]
"""


def lines_of(source, *overrides):
    with pytest.raises(RequestError) as caught:
        load_recipe(source, TrainRecipe, overrides)
    return list(caught.value.lines)


def test_every_error_at_once_with_its_line(tmp_path):
    """Ledger 32: also those of a grid, beside what else is wrong."""
    path = tmp_path / "r.yaml"
    path.write_text(BROKEN)
    expected = [
        ("3: unknown image set 'digts'", "Did you mean 'digits'?"),
        ("4: data.subset_fraction = 2.0: expected less than or equal to 1", ""),
        ("5: unknown model 'resnt18'", "Did you mean 'resnet18'?"),
        ("6: unknown objective 'sofd'", "Did you mean 'soft'?"),
        ("6: objective 'arcgrad': scale = '-1': expected a finite number above 0", ""),
        ("8: optim.lr = 'fast': expected a number above 0", ""),
        ("9: unknown key 'optim.momentun'", "Did you mean 'momentum'?"),
        ("10: train.epochs = 0: expected greater than or equal to 1", ""),
        ("10: train.precision = 'fp8': expected 'auto', 'fp32', 'tf32', 'bf16' or 'fp16'", ""),
        ("11: seeds.0 = -1: expected greater than or equal to 0", ""),
        ("13: grid.data.subset_fraction.1 = 2.0: expected less than or equal to 1", ""),
        ("14: grid: unknown key 'train.epochz'", "Did you mean 'train.epochs'?"),
        ("15: model 'mlp': width = '0': expected an integer at least 1", ""),
        ("16: grid.optim.lr.1 = 'slow': expected a number above 0", ""),
    ]
    found = lines_of(RecipeFile("r", path))
    for start, end in expected:
        assert any(li.startswith(f"{path}:{start}") and li.endswith(end) for li in found), start
    assert len(found) == len(expected), found


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        ("{data.load: [stream]}", "grid: data.load = stream of digits: expected memory"),
        (
            "{optim.nesterov: [true], optim.momentum: [0.9, 0.0]}",
            "grid: optim.nesterov = true with optimizer = sgd and momentum = 0: expected sgd and a "
            "momentum above 0",
        ),
        ("{train.epochs: 3}", "grid.train.epochs = 3: expected a list, such as [1, 2]"),
        ("{train.epochs: []}", "grid.train.epochs = []: expected at least 1 item"),
        (
            f"{{train.epochs: {list(range(1, 102))}, train.batch_size: {list(range(1, 102))}}}",
            "grid: 10201 combinations: expected at most 10000",
        ),
    ],
    ids=lambda text: text[:24],
)
def test_a_grid_that_is_refused_names_its_option(tmp_path, grid, expected):
    """Ledger 32: in the words of every other error, and with the option that gave it."""
    path = tmp_path / "r.yaml"
    path.write_text("task: train\n")
    (line,) = lines_of(RecipeFile("r", path), f"grid={grid}")
    assert line == f"--set {shorten(f'grid={grid}')}: {expected}"


def test_values_that_fit_only_together_are_a_grid():
    recipe = TrainRecipe.model_validate(
        {"task": "train", "grid": {"data.name": ["list:x"], "data.augment": ["imagenet"]}}
    )
    assert len(recipe.settings()) == 1
