"""The loader of images on disk: each image once, transforms, workers, resuming."""

import multiprocessing
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from marginctl.data.images.resizing import SQUARE
from marginctl.data.loading import on_disk_loader, transforms, workers
from marginctl.data.loading.on_disk_loader import OnDiskLoader, _number_draws
from marginctl.data.loading.transforms import ImageTransform
from marginctl.errors import MarginctlError, RequestError
from marginctl.utils.distributed import World
from marginctl.utils.precision import device_config_for
from tests.data.helpers import load_in_memory, load_on_disk
from tests.training.factories import run, trainer

CPU = device_config_for("cpu", "fp32")
MEAN, STD = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


@pytest.fixture(params=[0, 2])
def number_of_workers(request, monkeypatch):
    monkeypatch.setattr(workers, "worker_count", lambda: request.param)
    return request.param


@pytest.fixture
def files(tmp_path):
    """Images of many sizes in two classes: 14 for training, 5 for testing."""
    stream = np.random.default_rng(0)
    for part, count in (("train", 14), ("val", 5)):
        for i in range(count):
            size = (*stream.integers(20, 60, size=2), 3)
            pixels = stream.integers(0, 256, size=size, dtype=np.uint8)
            path = tmp_path / "photos" / part / "ab"[i % 2] / f"{i:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return load_on_disk("folder:photos", tmp_path, 28)


def loader(data, augment="none", seed=0, world=None):
    return OnDiskLoader(data, CPU, seed, augment, world)


def reference(data, part, row):
    """An evaluated image, by torchvision's functions."""
    with Image.open(data.root / part.path(row)) as image:
        rgb = image.convert("RGB")
    scaled = v2.functional.resize(rgb, [32])  # 28 x 256 / 224
    cut = v2.functional.center_crop(scaled, [28])
    return (v2.functional.pil_to_tensor(cut).float() / 255 - MEAN) / STD


def test_test_images_come_once_in_order(files, number_of_workers):
    xs, ys = zip(*loader(files, "imagenet").test_batches(2), strict=True)
    assert [len(y) for y in ys] == [2, 2, 1]
    assert torch.cat(ys).tolist() == files.test_y.tolist()
    expected = torch.stack([reference(files, files.test, i) for i in range(5)])
    assert torch.allclose(torch.cat(xs), expected, atol=1e-5)
    assert xs[0].is_contiguous(memory_format=torch.channels_last)


def test_test_batches_have_a_maximum_size(files, monkeypatch):
    monkeypatch.setattr(on_disk_loader, "MAX_TEST_BATCH", 3)
    assert [len(y) for _, y in loader(files).test_batches(1000)] == [3, 2]


def test_an_epoch_has_every_image_once_and_epochs_differ(files, number_of_workers):
    made, orders = loader(files), []
    whole = torch.stack([reference(files, files.train, i) for i in range(14)])
    for epoch in (0, 1):
        xs, ys = zip(*made.train_batches(epoch, 4), strict=True)
        assert [len(y) for y in ys] == [4, 4, 4, 2]
        order = [int((whole - x).abs().sum((1, 2, 3)).argmin()) for x in torch.cat(xs)]
        assert sorted(order) == list(range(14))
        assert torch.allclose(torch.cat(xs), whole[order], atol=1e-5)
        assert torch.cat(ys).tolist() == files.train_y[order].tolist()
        orders.append(order)
    assert orders[0] != orders[1]


@pytest.mark.parametrize(
    "augment", ["none", "random-crop-flip", "random-resized-crop-flip", "imagenet"]
)
def test_batches_depend_neither_on_workers_nor_on_resuming(files, monkeypatch, augment):
    batches = {}
    for number in (0, 1, 2):
        monkeypatch.setattr(workers, "worker_count", lambda number=number: number)
        before = torch.get_rng_state()
        batches[number] = list(loader(files, augment).train_batches(3, 4))
        assert torch.equal(torch.get_rng_state(), before)  # dropout's stream
        rest = list(loader(files, augment).train_batches(3, 4, first=2))
        for (x, y), (again, labels) in zip(batches[number][2:], rest, strict=True):
            assert torch.equal(x, again)
            assert torch.equal(y, labels)
    for number in (1, 2):
        for (x, _), (again, _) in zip(batches[0], batches[number], strict=True):
            assert torch.equal(x, again)
    other = next(iter(loader(files, augment, seed=1).train_batches(3, 4)))
    assert not torch.equal(other[0], batches[0][0][0])


def test_each_process_gets_its_part_of_every_batch(files):
    alone = list(loader(files, "imagenet").train_batches(0, 5))
    parts = [list(loader(files, "imagenet", world=World(r, 2)).train_batches(0, 5)) for r in (0, 1)]
    for (x, y), (a, la), (b, lb) in zip(alone, *parts, strict=True):
        assert torch.equal(torch.cat([a, b]), x)
        assert torch.equal(torch.cat([la, lb]), y)
    tested = [loader(files, world=World(r, 2)).test_batches(2) for r in (0, 1)]
    labels = [y for part in tested for _, y in part]
    assert torch.cat(labels).tolist() == files.test_y.tolist()


def test_flip_only_flips_the_squares_of_images_in_memory(files, tmp_path):
    in_memory = load_in_memory("folder:photos", tmp_path, 28)
    made = loader(replace(files, resizing=SQUARE), "flip")
    (x, _), *_ = made.test_batches(5)
    squares = torch.tensor(in_memory.test.x).permute(0, 3, 1, 2).float() / 255
    assert torch.allclose(x, (squares - MEAN) / STD, atol=1e-5)
    plain = torch.tensor(in_memory.train.x).permute(0, 3, 1, 2).float() / 255
    plain = (plain - MEAN) / STD
    mirrored = 0
    for (x, _), rows in zip(made.train_batches(0, 14), [made._order(0)], strict=True):
        for found, expected in zip(x, plain[rows], strict=True):
            same = torch.allclose(found, expected, atol=1e-5)
            assert same or torch.allclose(found, expected.flip(-1), atol=1e-5)
            mirrored += not same
    assert 2 < mirrored < 12


def test_random_crops_are_windows_of_the_resized_image():
    """Each column of pixels has its own grey, each row another red: a window tells its place."""
    grid = np.zeros((32, 32, 3), np.uint8)
    grid[..., 0], grid[..., 1] = 5 * np.arange(32)[:, None], 5 * np.arange(32)
    image, places, flips = Image.fromarray(grid), set(), 0
    for row in range(60):
        x, shift = ImageTransform(28, "random-crop-flip", 0, 0)(image, row)
        assert not shift.any()
        found = x.permute(1, 2, 0).numpy()
        top, left = found[0, 0, 0] // 5, found[0, :, 1].min() // 5
        flip = found[0, 0, 1] > found[0, -1, 1]
        window = grid[top : top + 28, left : left + 28]
        assert np.array_equal(found, window[:, ::-1] if flip else window)
        places.add((int(top), int(left)))
        flips += bool(flip)
    assert len(places) > 15
    assert {p for place in places for p in place} == {0, 1, 2, 3, 4}
    assert 18 < flips < 42


def test_distribution_of_random_resized_crops():
    """Red rises by one a row, green by one a column, so that colours tell where a part lies.

    What rises evenly still does when it is scaled, but at the very edge: the middles of the second
    and of the last but one of 16 pixels are 13/16 of the part apart.
    """
    grid = np.zeros((240, 240, 3), np.uint8)
    grid[..., 0], grid[..., 1], grid[..., 2] = np.arange(240)[:, None], np.arange(240), 77
    areas, shapes, lefts, flips = [], [], [], 0
    for row in range(2000):
        x, shift = ImageTransform(16, "random-resized-crop-flip", 0, 0)(Image.fromarray(grid), row)
        assert x.shape == (3, 16, 16)
        assert bool((x[2] == 77).all())
        assert not shift.any()
        red, green = x[0].double(), x[1].double()
        height = (red[-2] - red[1]).mean().item() * 16 / 13
        width = (green[:, -2] - green[:, 1]).mean().item() * 16 / 13
        flips += width < 0
        width = abs(width)
        areas.append(width * height / 240**2)
        shapes.append(np.log(width / height))
        if width < 200:
            lefts.append((green.mean().item() + 0.5 - width / 2) / (240 - width))
    # uniform from 0.08 to 1, and the logarithm of the shape; what does not fit is drawn again
    stream = np.random.default_rng(0)
    area = stream.uniform(0.08, 1, 100_000)
    shape = stream.uniform(-np.log(4 / 3), np.log(4 / 3), 100_000)
    fits = area * np.exp(np.abs(shape)) <= 1
    for found, expected in ((areas, area[fits]), (shapes, shape[fits])):
        quantiles = np.linspace(0, 1, 11)
        assert np.quantile(found, quantiles) == pytest.approx(
            np.quantile(expected, quantiles), abs=0.05
        )
    assert np.mean(lefts) == pytest.approx(0.5, abs=0.03)
    assert 900 < flips < 1100


def test_distribution_of_imagenet_augmentation():
    """Lighting has the covariance P diag(0.1 lambda)^2 P'; jitter scales by 0.6 to 1.4."""
    grey = Image.new("RGB", (40, 40), (100, 100, 100))
    shifts, means = [], []
    for row in range(3000):
        x, shift = ImageTransform(8, "imagenet", 0, 0)(grey, row)
        shifts.append(shift)
        means.append(x.float().mean().item() / 100)
    vectors = torch.tensor(transforms.PCA_EIGENVECTORS)
    assert torch.allclose(vectors.T @ vectors, torch.eye(3), atol=2e-3)
    spread = vectors @ torch.diag(0.1 * torch.tensor([0.2175, 0.0188, 0.0045])) ** 2 @ vectors.T
    assert torch.allclose(torch.cov(torch.stack(shifts).T), spread, rtol=0.15, atol=2e-6)
    assert min(means) == pytest.approx(0.6, abs=0.02)
    assert max(means) == pytest.approx(1.4, abs=0.02)
    assert np.mean(means) == pytest.approx(1, abs=0.02)


def test_lighting_is_added_before_normalisation(files, monkeypatch):
    monkeypatch.setattr(transforms, "_pca_lighting", lambda: torch.tensor([0.1, 0.0, -0.2]))
    constant = torch.full((3, 2, 2), 51).byte()
    monkeypatch.setattr(transforms, "compose", lambda *arguments: lambda image: constant)
    x, _ = next(iter(loader(files, "imagenet").train_batches(0, 4)))
    expected = (torch.tensor([0.3, 0.2, 0.0]).view(3, 1, 1) - MEAN) / STD
    assert torch.allclose(x, expected.expand(4, 3, 2, 2), atol=1e-6)


@pytest.mark.parametrize("content", [b"no image", None])
def test_a_corrupt_image_is_named(files, number_of_workers, content):
    path = files.root / files.train.path(3)
    path.write_bytes(path.read_bytes()[:900] if content is None else content)
    with pytest.raises(RequestError) as caught:
        list(loader(files).train_batches(0, 4))
    (line,) = caught.value.lines
    assert line.startswith(f"{path}: cannot be decoded: ")
    assert line.endswith(": repair it, or remove it from the data set")
    assert "\n" not in line
    assert line.count(str(path)) == 1


def test_a_dead_worker_is_one_line(files, monkeypatch):
    import os

    monkeypatch.setattr(workers, "worker_count", lambda: 1)
    monkeypatch.setattr(workers, "open_rgb", lambda path: os._exit(9))
    with pytest.raises(MarginctlError, match="a process that decodes images has died"):
        list(loader(files).train_batches(0, 4))


def test_workers_live_as_long_as_the_loader(files, monkeypatch):
    monkeypatch.setattr(workers, "worker_count", lambda: 2)
    before = {process.pid for process in multiprocessing.active_children()}
    batches, processes = loader(files, "imagenet"), []
    for epoch in range(2):
        list(batches.train_batches(epoch, 4))
        processes.append({p.pid for p in multiprocessing.active_children()} - before)
    assert processes[0] == processes[1]
    assert len(processes[0]) == 2
    next(batches.train_batches(2, 4))  # an epoch that is left in its middle
    monkeypatch.setattr(workers, "worker_count", lambda: 0)
    for ours, fresh in zip(
        batches.train_batches(3, 4), loader(files, "imagenet").train_batches(3, 4), strict=True
    ):
        assert torch.equal(ours[0], fresh[0])
    del batches
    assert {process.pid for process in multiprocessing.active_children()} == before


def test_worker_count(monkeypatch):
    for cores, processes, expected in (
        (1, None, 0),
        (2, None, 2),
        (64, None, 16),
        (8, 2, 4),
        (3, 2, 0),
    ):
        monkeypatch.setattr(workers, "usable_cores", lambda cores=cores: cores)
        monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
        if processes:
            monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
        assert workers.worker_count() == expected
    monkeypatch.setenv("MARGINCTL_DECODE_WORKERS", "24")
    assert workers.worker_count() == 24


def test_a_resumed_training_is_the_same_with_other_workers(files, monkeypatch):
    """Killed in the middle of an epoch, and resumed with two workers in place of none."""
    changes = {
        "data": {
            "name": "folder:photos",
            "load": "stream",
            "augment": "imagenet",
            "image_size": 28,
        },
        "train": {"batch_size": 4, "epochs": 2},
    }
    monkeypatch.setattr(workers, "worker_count", lambda: 0)
    whole = trainer(of=files, **changes)
    run(whole)
    stopped = trainer(of=files, **changes)
    run(stopped, until=6)
    state = stopped.state_dict()
    monkeypatch.setattr(workers, "worker_count", lambda: 2)
    resumed = trainer(of=files, **changes)
    resumed.load_state_dict(state)
    run(resumed)
    assert resumed.step == whole.step == 8
    assert resumed.weights_digest() == whole.weights_digest()
    tested = resumed.predict()
    assert tested.labels.tolist() == files.test_y.tolist()


def test_repeated_rows_are_different_draws():
    rows = np.array([3, 1, 3, 0, 3, 1])
    assert _number_draws(rows, 5).tolist() == [3, 1, 8, 0, 13, 6]
    assert _number_draws(np.array([2, 0, 1]), 3).tolist() == [2, 0, 1]


def test_errors_of_parsers_are_not_repeated(files, monkeypatch):
    def raises(path):
        raise ValueError("invalid literal for int() with base 10: b'\\xe0'")

    monkeypatch.setattr(workers, "open_rgb", raises)
    with pytest.raises(RequestError, match="cannot be decoded: its content is corrupt: repair it"):
        list(loader(files).train_batches(0, 4))
