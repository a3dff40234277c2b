"""Which objective of a recipe has its scale from which other one."""

import pytest

from marginctl.recipe.image_recipe import sources_first
from marginctl.recipe.train import TrainRecipe

BATCH = "similarity=cosine;scale=fixed(from_run=cosine-ls:pool=batch,times=2)"


def recipe(*objectives):
    return TrainRecipe.model_validate({"task": "train", "objectives": list(objectives)})


def test_sources_come_first_and_names_are_canonical():
    parts = {
        "similarity": "cosine",
        "scale": {"kind": "fixed", "from_run": "cosine-ls:pool=sample"},
    }
    found = recipe(parts, BATCH, "soft", "cosine-ls", "cosine-ls:pool=batch").objectives
    name = "similarity=cosine;scale=fixed(from_run=cosine-ls)"
    assert list(map(str, found[:2])) == [name, BATCH]
    ordered = ["soft", "cosine-ls", "cosine-ls:pool=batch", name, BATCH]
    assert list(map(str, sources_first(found))) == ordered


def test_a_source_may_be_a_composition():
    source = "similarity=cosine;scale=least-squares;margin=additive-cosine(margin=0.2)"
    name = f"similarity=cosine;scale=fixed(from_run={source},times=2)"
    assert list(map(str, recipe(name, source).objectives)) == [name, source]


@pytest.mark.parametrize(
    ("objectives", "said"),
    [
        ([BATCH, "cosine-ls"], "from_run = cosine-ls:pool=batch: is no objective of this recipe"),
        (["similarity=cosine;scale=fixed(from_run=soft)", "soft"], "from_run = soft: has no kappa"),
        (
            [f"similarity=cosine;scale=fixed(from_run={BATCH})", BATCH, "cosine-ls:pool=batch"],
            "has no kappa",
        ),
    ],
)
def test_a_source_without_kappa_is_refused(objectives, said):
    with pytest.raises(ValueError, match="objectives") as refused:
        recipe(*objectives)
    assert said in str(refused.value)
