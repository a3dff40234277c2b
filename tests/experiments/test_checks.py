"""Checks of requests besides those of the recipe's schema."""

from dataclasses import replace

import numpy as np
import pytest

from marginctl.errors import RequestError
from marginctl.experiments.checks import MAX_LOGIT_BYTES, check_images, check_logits_fit
from marginctl.recipe.train import TrainRecipe
from tests.data.helpers import refusal
from tests.training.factories import images


def test_the_logits_of_many_classes_must_fit_in_memory():
    """As many identities as MS1M-RetinaFace has, with an image of each to test on."""
    identities = 93_431
    own = replace(images(), classes=tuple(map(str, range(identities))))
    most = MAX_LOGIT_BYTES // (4 * identities)
    fits, too_many = (
        replace(own, test=replace(own.test, y=np.zeros(count, np.int64)))
        for count in (most, most + 1)
    )
    check_logits_fit(fits)
    said = refusal(RequestError, check_logits_fit, too_many)
    assert f"{most + 1} test images of 93431 classes: their logits take 4.0 GiB, at most 4" in said
    assert f"test on {most} images or fewer" in said


@pytest.mark.parametrize(
    ("objective", "reason"),
    [
        ("adacos", "scale is 0 for two classes: AdaCos cannot learn; untrained network"),
        ("adacos-fixed", "scale is 0 for two classes: AdaCos cannot learn; untrained network"),
        ("similarity=cosine;scale=adacos;margin=additive-cosine(margin=0.1)", "scale is 0 for two"),
    ],
)
def test_an_objective_that_cannot_learn_two_classes_is_refused(objective, reason):
    """The condition of uci-cv's footnote; with three classes it learns."""
    recipe = TrainRecipe.model_validate(
        {"task": "train", "data": {"name": "digits"}, "model": "mlp", "objectives": [objective]}
    )
    three = replace(images(), classes=("a", "b", "c"))
    check_images(recipe, three)
    line = refusal(RequestError, check_images, recipe, replace(three, classes=("a", "b")))
    assert line.startswith(f"objective '{recipe.objectives[0]}' on data set '{three.name}' (2 ")
    assert reason in line
