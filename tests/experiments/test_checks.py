"""Checks of requests besides those of the recipe's schema."""

from dataclasses import replace

import numpy as np

from marginctl.errors import RequestError
from marginctl.experiments.checks import MAX_LOGIT_BYTES, check_logits_fit
from tests.data.helpers import refusal
from tests.training.factories import images


def test_the_logits_of_many_classes_must_fit_in_memory():
    """As many identities as MS1M-RetinaFace has, with an image of each to test on."""
    identities = 93_431
    own = replace(images(), classes=tuple(map(str, range(identities))))
    most = MAX_LOGIT_BYTES // (4 * identities)
    check_logits_fit(replace(own, test_y=np.zeros(most, np.int64)))
    said = refusal(
        RequestError, check_logits_fit, replace(own, test_y=np.zeros(most + 1, np.int64))
    )
    assert f"{most + 1} test images of 93431 classes: their logits take 4.0 GiB, at most 4" in said
    assert f"test on {most} images or fewer" in said
