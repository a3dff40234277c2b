"""OOD data sets: only their test splits, by name and group, and errors."""

import numpy as np
import pytest
from PIL import Image

from marginctl.data.images.image_sets import load_ood_datasets
from marginctl.data.images.registry import OPENOOD_SETS, parse_ood_name
from marginctl.data.paths import MissingDataError
from marginctl.errors import RequestError
from tests.data.helpers import load_in_memory


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return load_in_memory("digits", tmp_path_factory.mktemp("none"))


def photos(root, count=3):
    """Images of noise in a folder without a training split."""
    stream = np.random.default_rng(0)
    for name in ("a", "b"):
        folder = root / "val" / name
        folder.mkdir(parents=True)
        for i in range(count):
            pixels = stream.integers(0, 256, (20, 12, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{i}.png")
    return f"folder:{root}"


def test_sets_with_only_test_files(data_dir, digits):
    written = ["near=fashion-mnist", "far=cifar-10"]
    fashion, cifar = load_ood_datasets(written, digits, data_dir, stream=False)
    assert (fashion.group, cifar.group) == ("near", "far")
    assert fashion.images.test.x.shape == (10_000, 28, 28, 1)
    assert cifar.images.test.x.shape == (10_000, 32, 32, 3)
    assert (len(cifar.images.train_y), cifar.images.train.x.shape) == (0, (0, 32, 32, 3))
    # the digest of the test split of the complete set
    assert cifar.digest == "e600ce11aaf5eb6759aae8ec88c3ab7c664a3bb307f49f95ddb7a5333c26325a"


def test_a_folder_in_memory_and_on_disk(tmp_path, digits):
    name = photos(tmp_path / "photos")
    (held,) = load_ood_datasets([name], digits, tmp_path, stream=False)
    assert held.images.test.x.shape == (6, 8, 8, 3)
    (listed,) = load_ood_datasets([name], digits, tmp_path, stream=True)
    assert (len(listed.images.test), listed.images.image_size) == (6, 8)
    assert (held.group, listed.images.name) == (None, name)


def test_unsuitable_ood_sets(tmp_path, digits):
    name = photos(tmp_path / "photos")
    for written, said in (
        (["digits"], "ood digits: these are the test images of digits"),
        ([f"near={name}", f"far={name}"], f"ood far={name}: duplicate"),
        (["nowhere"], "unknown image set 'nowhere'"),
        (["nearby=mnist"], "unknown image set 'nearby=mnist'"),
    ):
        with pytest.raises(RequestError, match=said):
            load_ood_datasets(written, digits, tmp_path, stream=False)


def test_only_test_files_are_required(tmp_path, digits):
    with pytest.raises(MissingDataError) as caught:
        load_ood_datasets(["cifar-10"], digits, tmp_path, stream=False)
    said = str(caught.value)
    assert "no test_batch.bin in" in said
    assert f"or all of test_batch in {tmp_path / 'cifar-10-batches-py'}" in said
    assert "data_batch" not in said


def test_openood_gives_the_sets_of_the_network_s_images(data_dir, digits, monkeypatch):
    sets = {"near": ("fashion-mnist", "no-such-set"), "far": ("cifar-10",)}
    monkeypatch.setitem(OPENOOD_SETS, "digits", sets)
    loaded = load_ood_datasets(["openood"], digits, data_dir, stream=False)
    written = ["near=fashion-mnist", "far=cifar-10"]
    alone = load_ood_datasets(written, digits, data_dir, stream=False)
    assert [(s.group, s.images.name, s.digest) for s in loaded] == [
        (s.group, s.images.name, s.digest) for s in alone
    ]
    more = load_ood_datasets(["openood", "mnist"], digits, data_dir, stream=False)
    assert [s.images.name for s in more] == ["fashion-mnist", "cifar-10", "mnist"]
    with pytest.raises(RequestError, match="ood cifar-10: duplicate"):
        load_ood_datasets(["openood", "cifar-10"], digits, data_dir, stream=False)


def test_every_set_of_openood_without_files_is_one_line(data_dir, tmp_path):
    cifar = load_in_memory("cifar-10", data_dir, test_only=True)
    with pytest.raises(MissingDataError) as caught:
        load_ood_datasets(["openood"], cifar, tmp_path, stream=False)
    lines = caught.value.lines
    for name, file, folder in (
        ("cifar-100", "test.bin", "cifar-100-binary"),
        ("mnist", "t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz", "MNIST/raw"),
        ("svhn", "test_32x32.mat", "svhn"),
    ):
        (line,) = (line for line in lines if line.startswith(f"data set '{name}': "))
        assert line.startswith(f"data set '{name}': no {file} in {tmp_path / folder}: put the ")
    assert len({line.partition(":")[0] for line in lines}) == len(lines) >= 4
    (tmp_path / "MNIST").symlink_to(data_dir / "MNIST")
    with pytest.raises(MissingDataError) as caught:
        load_ood_datasets(["openood"], cifar, tmp_path, stream=False)
    assert len(caught.value.lines) == len(lines)
    assert caught.value.lines[-1] == "ood: or name the sets without them: --ood far=mnist"


def test_a_name_may_hold_an_equals_sign():
    assert parse_ood_name("far=folder:a=b") == ("far", "folder:a=b")
    assert parse_ood_name("folder:near=c") == (None, "folder:near=c")


def test_classes_may_be_in_the_folder_itself(tmp_path, digits):
    photos(tmp_path / "set")
    flat = (tmp_path / "set" / "val").rename(tmp_path / "flat")
    for streamed in (False, True):
        (found,) = load_ood_datasets([f"folder:{flat}"], digits, tmp_path, stream=streamed)
        assert found.images.test_y.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.images.test.path(0) == "a/0.png"
    (flat / "train").mkdir()  # then it has splits, and one is missing
    with pytest.raises(MissingDataError, match="no folder"):
        load_ood_datasets([f"folder:{flat}"], digits, tmp_path, stream=False)
