"""The schema of a `transfer` recipe."""

import pytest
from pydantic import ValidationError

from marginctl.recipe import TransferRecipe, load_any, shipped
from marginctl.recipe.load import Source
from marginctl.recipe.transfer import STRENGTHS


def recipe(**more):
    return TransferRecipe.model_validate({"task": "transfer", "starts": ["a"], **more})


def test_what_is_left_out_is_table_8s_and_ours():
    made = recipe()
    assert (made.method, made.train.epochs, made.train.batch_size) == ("probe", 60, 128)
    assert (made.optim.lr, made.optim.backbone) == ("cosine(end=0,start=0.1)", 0.01)
    assert (made.optim.momentum, made.optim.weight_decay) == (0.9, 1e-4)
    assert made.objectives == ["soft:bias=true"]
    assert made.probe.strengths == list(STRENGTHS) == sorted(STRENGTHS, reverse=True)


def test_starts_and_strengths_stand_once_strengths_from_strong_to_weak():
    made = recipe(starts=["b", "a", "b"], probe={"strengths": [0.1, 10.0, 0.1]})
    assert made.starts == ["b", "a"]
    assert made.probe.strengths == [10.0, 0.1]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"starts": []}, "at least 1 item"),
        ({"data": {"augment": "crop"}}, "data.augment = crop"),
        ({"ood": ["mnist"]}, "transfer tells no foreign images apart"),
        ({"pairs": ["a.txt"]}, "pairs: transfer verifies none: leave it out"),
        ({"method": "finetune"}, "'probe' or 'fine-tune'"),
        ({"probe": {"share": 1.0}}, "less than 1"),
        ({"probe": {"strengths": []}}, "at least 1 item"),
        ({"optim": {"backbone": 0.0}}, "greater than 0"),
        ({"grid": {"optim.backbone": [2.0]}}, "less than or equal to 1"),
        (
            {"objectives": ["similarity=cosine;scale=fixed(from_run=runs/x,times=2)"]},
            "transfer takes no scale from a run",
        ),
    ],
)
def test_what_does_not_fit_is_refused(more, said):
    with pytest.raises(ValidationError, match=said):
        recipe(**more)


def test_augmentation_is_for_fine_tuning():
    assert recipe(method="fine-tune", data={"augment": "crop"}).data.augment == "crop"


def test_images_are_prepared_as_those_of_the_start():
    own = recipe(data={"name": "folder:x"}, grid={"method": ["probe", "fine-tune"]})
    (_, probe), (_, tuned) = own.settings()
    made = probe.for_start("b", "resnet18", probe.data, 32)
    assert (made.start, made.starts, made.model) == ("b", ["b"], "resnet18")
    assert (made.data.side, made.data.streamed) == (32, False)
    assert made.train.precision == "fp32"  # its features are
    of_weights = tuned.for_start("w", "resnet18", None, 224)
    assert (of_weights.data.side, of_weights.data.streamed) == (224, True)
    assert of_weights.train.precision == "auto"
    asked = recipe(data={"name": "folder:x", "pixels": 64, "load": "memory"}, method="fine-tune")
    made = asked.for_start("w", "resnet18", None, 224)
    assert (made.data.side, made.data.streamed) == (64, False)


@pytest.mark.parametrize("name", [n for n in shipped() if "transfer" in n or "table1" in n])
def test_shipped_recipes_expand(name):
    found = load_any(Source(name, shipped()[name]))
    if isinstance(found, TransferRecipe):
        assert found.settings()
