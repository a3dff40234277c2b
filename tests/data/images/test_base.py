"""What training asks of images holds for those in memory and those in files alike."""

import numpy as np
import pytest

from marginctl.data.images.base import LabelledImages
from marginctl.data.images.in_memory import load_images
from marginctl.data.images.on_disk_sets import load_files
from tests.data.made import paint

ASKED = [name for name, value in vars(LabelledImages).items() if isinstance(value, property)]


@pytest.fixture(params=[load_images, load_files])
def images(request, tmp_path):
    """Three training images of two classes, and two to test on."""
    for path in ("train/a/1", "train/a/2", "train/b/1", "val/a/3", "val/b/2"):
        paint(tmp_path / "set" / f"{path}.png")
    return request.param("folder:set", tmp_path, 16)


def test_all_that_is_asked_is_there(images):
    assert len(ASKED) == 12
    assert all(getattr(images, name) is not None for name in ASKED)
    assert (images.name, images.classes, images.num_classes) == ("folder:set", ("a", "b"), 2)
    assert (images.channels, images.pixels) == (3, 16)
    assert len(images.mean) == len(images.std) == 3
    assert (images.train_y.tolist(), images.test_y.tolist()) == ([0, 0, 1], [0, 1])
    assert images.train_y.dtype == images.test_y.dtype == np.int64
    assert set(images.part_digests) == {"train", "test"}


def test_only_the_training_part_changes(images):
    changed = [images.keeping(np.array([2, 0])), images.relabelled(np.array([1, 0, 1]))]
    assert [other.train_y.tolist() for other in changed] == [[1, 0], [1, 0, 1]]
    for other in changed:
        assert type(other) is type(images)
        assert other.part_digests["test"] == images.part_digests["test"]
        assert other.part_digests["train"] != images.part_digests["train"]
    assert len({images.digest, *(other.digest for other in changed)}) == 3
