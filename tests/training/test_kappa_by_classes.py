"""kappa* and the number of classes of one data set."""

from pathlib import Path

from marginctl.data.images.image_sets import load_image_set
from tests.training.kappa_by_classes import measure


def test_kappa_falls_with_the_number_of_classes_of_digits():
    """Unlike in the supplement's Sec. 6.2; Table 8 names data sets of 10 classes and more."""
    found = measure(load_image_set("digits", Path(), 8, stream=False), [2, 3, 10], 1, epochs=5)
    for way in ("trained", "same_features"):
        assert found[way][2] > found[way][3] > found[way][10]
    assert min(found["accuracy"].values()) > [95]
