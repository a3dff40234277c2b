"""The loader of images in memory: each image once, augmentation, resuming, class balance."""

import numpy as np
import pytest
import torch

from marginctl.data.loading.loader import PADDING, InMemoryLoader
from marginctl.utils.distributed import World
from marginctl.utils.precision import device_config_for
from tests.training.factories import images

CPU = device_config_for("cpu", "fp32")


def loader(data, augment="none", seed=0):
    return InMemoryLoader(data, CPU, seed, augment)


@pytest.mark.parametrize(
    ("n", "size", "expected"),
    [
        (50, 8, [8] * 6 + [2]),
        (49, 8, [8] * 5 + [9]),  # a last batch of one has no variance: it joins the one before
        (8, 8, [8]),
        (5, 8, [5]),
        (1, 8, [1]),
        (3, 1, [1, 1, 1]),
    ],
)
def test_sizes(n, size, expected):
    made = images(n=max(n, 3))
    found = loader(made)
    found.train = type(found.train)(found.train.x[:n], found.train.y[:n])
    assert found.batch_sizes(size) == expected


def test_an_epoch_holds_every_image_once_and_epochs_differ():
    data = images(n=50)
    made = loader(data)
    orders = []
    for epoch in (0, 1):
        xs, ys = zip(*made.train_batches(epoch, 8), strict=True)
        x, y = torch.cat(xs), torch.cat(ys)
        whole = (
            torch.as_tensor(data.train.x).permute(0, 3, 1, 2).float() / 255 - data.mean[0]
        ) / data.std[0]
        order = [int((whole - row).abs().sum((1, 2, 3)).argmin()) for row in x]
        assert sorted(order) == list(range(50))
        assert torch.allclose(x, whole[order], atol=1e-5)
        assert y.tolist() == data.train_y[order].tolist()
        orders.append(order)
    assert orders[0] != orders[1]


def test_flip_mirrors_and_cuts_nothing():
    data = images(n=40, channels=3)
    (found, _), (plain, _) = (next(loader(data, a).train_batches(0, 40)) for a in ("flip", "none"))
    mirrored = [not torch.allclose(a, b, atol=1e-5) for a, b in zip(found, plain, strict=True)]
    assert 10 < sum(mirrored) < 30
    for was, a, b in zip(mirrored, found, plain, strict=True):
        assert torch.allclose(a, b.flip(-1) if was else b, atol=1e-5)


@pytest.mark.parametrize("augment", ["random-crop", "random-crop-flip", "reflect-crop-flip"])
def test_augmented_images_are_windows_of_the_padded_ones(augment):
    data = images(n=40, channels=3)
    made = loader(data, augment)
    plain, windows = loader(data), {False: 0, True: 0}
    pairs = zip(made.train_batches(0, 40), plain.train_batches(0, 40), strict=True)
    ((found, labels), (original, expected)) = next(iter(pairs))
    assert labels.tolist() == expected.tolist()
    shape = (40, 3, 8 + 2 * PADDING, 8 + 2 * PADDING)
    fill = (torch.tensor(data.mean) * 255).round() / 255
    border = ((fill - torch.tensor(data.mean)) / torch.tensor(data.std)).view(1, 3, 1, 1)
    padded = border.expand(shape).clone()
    padded[:, :, PADDING:-PADDING, PADDING:-PADDING] = original
    if augment == "reflect-crop-flip":
        padded = torch.nn.functional.pad(original, [PADDING] * 4, mode="reflect")
    places = set()
    for i in range(40):
        hits = [
            (top, left, flip)
            for top in range(2 * PADDING + 1)
            for left in range(2 * PADDING + 1)
            for flip in (False, True)
            if torch.allclose(_window(padded[i], top, left, flip), found[i], atol=1e-4)
        ]
        assert hits
        places.add(hits[0][:2])
        windows[hits[0][2]] += 1
    assert len(places) > 15
    assert (windows[True] > 5) == augment.endswith("crop-flip")


def _window(image, top, left, flip):
    window = image[:, top : top + 8, left : left + 8]
    return window.flip(2) if flip else window


def test_an_epoch_goes_on_from_any_batch():
    made = loader(images(), "random-crop-flip")
    whole = list(made.train_batches(3, 8))
    rest = list(loader(images(), "random-crop-flip").train_batches(3, 8, first=4))
    assert len(rest) == len(whole) - 4
    for (x, y), (again, labels) in zip(whole[4:], rest, strict=True):
        assert torch.equal(x, again)
        assert torch.equal(y, labels)
    other = next(loader(images(), "random-crop-flip", seed=1).train_batches(3, 8))
    assert not torch.equal(other[0], whole[0][0])


def test_test_images_come_once_in_order():
    data = images(tests=21)
    xs, ys = zip(*loader(data, "random-crop-flip").test_batches(8), strict=True)
    assert np.array_equal(torch.cat(ys).numpy(), data.test_y)
    assert len(torch.cat(xs)) == 21


@pytest.mark.parametrize("channels", [1, 3])
def test_the_first_test_image_has_its_pixels_again(channels):
    data = images(n=5, channels=channels)
    pixels = loader(data).first_test_image()
    assert torch.equal(pixels, torch.as_tensor(data.test.x[0]).permute(2, 0, 1))


def test_processes_share_every_batch():
    """The parts of two processes together are the batch of one, augmented alike."""
    alone = loader(images(n=53), "random-crop-flip")
    parts = [
        InMemoryLoader(images(n=53), CPU, 0, "random-crop-flip", World(rank, 2)) for rank in (0, 1)
    ]
    assert [part.batch_sizes(8) for part in parts] == [[8] * 6 + [5]] * 2
    shared = zip(*(part.train_batches(2, 8) for part in parts), strict=True)
    for (x, y), ((a, labels), (b, others)) in zip(alone.train_batches(2, 8), shared, strict=True):
        assert torch.equal(torch.cat([a, b]), x)
        assert torch.equal(torch.cat([labels, others]), y)
    tested = [torch.cat([y for _, y in part.test_batches(8)]) for part in parts]
    assert torch.equal(torch.cat(tested), alone.test.y)
    assert parts[0].batch_sizes(25) == [25, 28]  # three images would leave one of them a single one


def drawn_labels(made, epoch, size=10, first=0):
    return torch.cat([y for _, y in made.train_batches(epoch, size, first)])


def test_balanced_draws_have_every_class_alike_and_every_image_of_it():
    data = images(n=3000, classes=3)
    rows = np.concatenate(
        [np.flatnonzero(data.train_y == c)[:n] for c, n in enumerate((5, 95, 900))]
    )
    data = data.select(rows)
    made = loader(data)
    made.balance_classes(data.train_y)
    orders = [made._order(epoch) for epoch in range(20)]
    assert all(len(order) == len(data.train_y) for order in orders)
    whole = np.concatenate(orders)
    shares = np.bincount(data.train_y[whole]) / len(whole)
    assert np.abs(shares - 1 / 3).max() < 4 * np.sqrt(2 / 9 / len(whole))
    times = np.bincount(whole[data.train_y[whole] == 0], minlength=5)[:5]
    assert np.abs(times / times.sum() - 0.2).max() < 4 * np.sqrt(0.16 / times.sum())
    assert len(set(whole[data.train_y[whole] == 2])) > 800  # of 900, each drawn 7 times on average
    assert orders[0].tolist() != orders[1].tolist()
    again = loader(data)
    again.balance_classes(data.train_y)
    assert again._order(3).tolist() == orders[3].tolist()
    other = loader(data, seed=1)
    other.balance_classes(data.train_y)
    assert other._order(3).tolist() != orders[3].tolist()
    made.balance_classes(None)
    assert sorted(made._order(0)) == list(range(len(data.train_y)))


def test_a_class_without_images_is_never_drawn():
    data = images(n=60, classes=3)
    data = data.select(np.flatnonzero(data.train_y != 1))
    made = loader(data)
    made.balance_classes(data.train_y)
    assert set(drawn_labels(made, 0).tolist()) == {0, 2}


@pytest.mark.parametrize("augment", ["none", "random-crop"])
def test_balanced_batches_are_the_same_for_two_processes_and_from_any_place_on(augment):
    data = images(n=55)
    whole, *halves = (
        InMemoryLoader(data, CPU, 0, augment, world)
        for world in (World(), World(0, 2), World(1, 2))
    )
    for made in (whole, *halves):
        made.balance_classes(data.train_y)
    for (x, y), *parts in zip(
        *(made.train_batches(2, 10) for made in (whole, *halves)), strict=True
    ):
        assert torch.equal(x, torch.cat([part for part, _ in parts]))
        assert torch.equal(y, torch.cat([labels for _, labels in parts]))
    resumed = list(whole.train_batches(2, 10, 3))
    for (x, y), (again, labels) in zip(list(whole.train_batches(2, 10))[3:], resumed, strict=True):
        assert torch.equal(x, again)
        assert torch.equal(y, labels)
