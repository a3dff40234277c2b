"""Images in memory and on disk: the same attributes, and classes matched by name."""

import numpy as np
import pytest

from marginctl.data.names import class_numbers
from marginctl.errors import RequestError
from tests.data.helpers import load_in_memory, load_on_disk, paint, refusal

ATTRIBUTES = [
    "name",
    "train_y",
    "test_y",
    "classes",
    "num_classes",
    "channels",
    "image_size",
    "digest_description",
    "split_digests",
    "digest",
    "mean",
    "std",
]


@pytest.fixture(params=[load_in_memory, load_on_disk])
def images(request, tmp_path):
    """Three training images of two classes, and two test images."""
    for path in ("train/a/1", "train/a/2", "train/b/1", "val/a/3", "val/b/2"):
        paint(tmp_path / "set" / f"{path}.png")
    return request.param("folder:set", tmp_path, 16)


def test_all_attributes(images):
    assert all(getattr(images, name) is not None for name in ATTRIBUTES)
    assert (images.name, images.classes, images.num_classes) == ("folder:set", ("a", "b"), 2)
    assert (images.channels, images.image_size) == (3, 16)
    assert len(images.mean) == len(images.std) == 3
    assert (images.train_y.tolist(), images.test_y.tolist()) == ([0, 0, 1], [0, 1])
    assert images.train_y.dtype == images.test_y.dtype == np.int64
    assert set(images.split_digests) == {"train", "test"}


def test_only_the_training_split_changes(images):
    changed = [images.select(np.array([2, 0])), images.with_labels(np.array([1, 0, 1]))]
    assert [other.train_y.tolist() for other in changed] == [[1, 0], [1, 0, 1]]
    for other in changed:
        assert type(other) is type(images)
        assert other.split_digests["test"] == images.split_digests["test"]
        assert other.split_digests["train"] != images.split_digests["train"]
    assert len({images.digest, *(other.digest for other in changed)}) == 3


@pytest.mark.parametrize(
    ("names", "classes", "numbers"),
    [
        (("a", "b"), ("b", "a"), [1, 0]),
        (("b",), ("a", "b", "c"), [1]),
        (("0", "10", "2"), [str(i) for i in range(11)], [0, 10, 2]),
        (("e\u0301",), ("x", "\u00e9"), [1]),
        (("\u00e9",), ("e\u0301", "x"), [0]),
    ],
)
def test_classes_are_matched_by_name(names, classes, numbers):
    assert class_numbers("set", names, classes).tolist() == numbers


@pytest.mark.parametrize("names", [("a", "B"), ("cat", "b"), ("0", "1"), ("b ",)])
def test_other_names_are_refused(names):
    assert "is none of the 2 classes of the network (a, b): rename it, or remove it" in refusal(
        RequestError, class_numbers, "set", names, ("a", "b")
    )


def test_labels_of_other_classes(images):
    other = images.with_classes(("b", "c", "a"))
    assert other.classes == ("b", "c", "a")
    assert (other.train_y.tolist(), other.test_y.tolist()) == ([2, 2, 0], [2, 0])
