"""The schema of a `transfer` recipe."""

import pytest
from pydantic import ValidationError

from marginctl.experiments.tasks import load_any_recipe
from marginctl.models.registry import ModelSpec
from marginctl.objectives.parsing import parse
from marginctl.recipe.load import RecipeFile, shipped_recipes
from marginctl.recipe.transfer import L2_PENALTIES, TransferRecipe

RESNET18 = ModelSpec.parse("resnet18")


def recipe(**more):
    return TransferRecipe.model_validate({"task": "transfer", "source_models": ["a"], **more})


def test_what_is_left_out_is_table_8s_and_ours():
    made = recipe()
    assert (made.method, made.train.epochs, made.train.batch_size) == ("probe", 60, 128)
    assert (str(made.optim.lr), made.optim.backbone_lr_factor) == ("cosine(end=0,start=0.1)", 0.01)
    assert (made.optim.momentum, made.optim.weight_decay) == (0.9, 1e-4)
    assert made.objectives == [parse("soft:bias=true")]
    assert made.probe.l2_penalties == list(L2_PENALTIES) == sorted(L2_PENALTIES, reverse=True)


def test_source_models_and_penalties_are_distinct_and_penalties_descend():
    made = recipe(source_models=["b", "a", "b"], probe={"l2_penalties": [0.1, 10.0, 0.1]})
    assert made.source_models == ["b", "a"]
    assert made.probe.l2_penalties == [10.0, 0.1]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"source_models": []}, "at least 1 item"),
        ({"data": {"augment": "random-crop"}}, "data.augment = random-crop"),
        ({"ood": ["mnist"]}, "ood\n  Extra inputs"),
        ({"pairs": ["a.txt"]}, "pairs\n  Extra inputs"),
        ({"method": "finetune"}, "'probe' or 'fine-tune'"),
        ({"probe": {"validation_fraction": 1.0}}, "less than 1"),
        ({"probe": {"l2_penalties": []}}, "at least 1 item"),
        ({"optim": {"backbone_lr_factor": 0.0}}, "greater than 0"),
        ({"grid": {"optim.backbone_lr_factor": [2.0]}}, "less than or equal to 1"),
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
    assert recipe(method="fine-tune", data={"augment": "random-crop"}).data.augment == "random-crop"


def test_images_are_prepared_as_those_of_the_start():
    own = recipe(data={"name": "folder:x"}, grid={"method": ["probe", "fine-tune"]})
    (_, probe), (_, tuned) = own.settings()
    made = probe.for_source_model("b", RESNET18, probe.data, 32)
    assert (made.source_models, made.model) == (["b"], RESNET18)
    assert (made.data.resolved_size, made.data.streamed) == (32, False)
    assert made.train.precision == "fp32"  # its features are
    of_weights = tuned.for_source_model("w", RESNET18, None, 224)
    assert (of_weights.data.resolved_size, of_weights.data.streamed) == (224, True)
    assert of_weights.train.precision == "auto"
    asked = recipe(
        data={"name": "folder:x", "image_size": 64, "load": "memory"}, method="fine-tune"
    )
    made = asked.for_source_model("w", RESNET18, None, 224)
    assert (made.data.resolved_size, made.data.streamed) == (64, False)


@pytest.mark.parametrize("name", [n for n in shipped_recipes() if "transfer" in n or "table1" in n])
def test_shipped_recipes_expand(name):
    found = load_any_recipe(RecipeFile(name, shipped_recipes()[name]))
    if isinstance(found, TransferRecipe):
        assert found.settings()
