"""What a frozen backbone makes of images: computed once, and kept by content."""

import contextlib
import hashlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from marginctl import NUMERICS
from marginctl.data.images.base import ImageDataset
from marginctl.data.images.in_memory import InMemoryImages
from marginctl.data.images.on_disk import OnDiskImages
from marginctl.data.loading.on_disk_loader import make_loader
from marginctl.errors import RequestError
from marginctl.experiments.source_model import Start
from marginctl.models.factory import create_backbone
from marginctl.models.registry import ModelSpec
from marginctl.runs.atomic_io import write_bytes_atomically
from marginctl.runs.run_dir import digest, versions
from marginctl.utils.device import synchronize
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig

FOLDER = "features"  # in a run store
AT_ONCE = 100  # images
FEW, ENOUGH = 16, 1.0  # images at once and seconds, where they are timed

Features = NDArray[np.float32]


@dataclass(frozen=True)
class SplitFeatures:
    """Features (N, d) of the training and of the test part, in the order of the images."""

    train: Features
    test: Features


def extract_features(
    start: Start,
    images: ImageDataset,
    store: Path,
    device_config: DeviceConfig,
    say: Callable[[str], None],
    check: Callable[[], None],
) -> SplitFeatures:
    """The features of all images, from the store where it has them; else computed and put there.

    In evaluation mode and float32, with the normalisation of the network's own images. They are
    kept by what they depend on: weights, images of a part, how these are prepared, and torch.

    Args:
        start: the network; `start.check` has taken the images.
        images: to extract.
        store: where the folder of features is.
        device_config: the device.
        say: hears of damaged files.
        check: called after every batch; what it raises ends the work.

    Raises:
        RequestError: a feature is not finite.
        StorageError: the store cannot be written.
    """
    network: torch.nn.Module | None = None
    found = []
    for part in ("train", "test"):
        key = _key(start, images, part)
        kept = _kept(store / FOLDER, key, _rows(images, part), say)
        if kept is None:
            network = _network(start, images, device_config) if network is None else network
            kept = _computed(network, start, _as_test(images, part), device_config, check)
            if not np.isfinite(kept).all():
                raise RequestError(
                    f"starts = {start.written}: a feature of a {part} image of {images.name} is "
                    "not finite: there is nothing to probe"
                )
            _keep(store / FOLDER, key, kept)
        found.append(kept)
    return SplitFeatures(*found)


def are_cached(start: Start, images: ImageDataset, store: Path) -> bool:
    """Whether the store has files of both parts, whole or not."""
    keys = (_key(start, images, part) for part in ("train", "test"))
    return all(any((store / FOLDER).glob(f"{key}-*.npy")) for key in keys)


def _rows(images: ImageDataset, part: str) -> int:
    return len(images.train_y if part == "train" else images.test_y)


def _key(start: Start, images: ImageDataset, part: str) -> str:
    """Digests of the parts are of pixels, or of files, whose side and cut come beside."""
    prepared = [images.image_size, images.channels, isinstance(images, OnDiskImages)]
    content = {
        "weights": start.weights,
        "model": start.model,
        "moments": [list(m) for m in start.moments],
        "images": images.split_digests[part],
        "prepared": prepared,
        "numerics": [NUMERICS, versions()["torch"]],
    }
    return digest(content)[:32]


def _kept(folder: Path, key: str, rows: int, say: Callable[[str], None]) -> Features | None:
    """The features in a file whose name has their digest; damaged ones are said and removed."""
    for path in sorted(folder.glob(f"{key}-*.npy")):
        try:
            if not path.is_file():  # a pipe would be waited for without end
                raise ValueError
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest()[:16] != path.stem.rpartition("-")[2]:
                raise ValueError
            found: Any = np.load(io.BytesIO(data), allow_pickle=False)
            if found.ndim != 2 or len(found) != rows or found.dtype != np.float32:
                raise ValueError
        except Exception:  # numpy raises anything for a damaged file
            say(f"{path}: is damaged: computed anew")
            with contextlib.suppress(OSError):  # a folder
                path.unlink(missing_ok=True)
            continue
        features: Features = found
        return features
    return None


def _keep(folder: Path, key: str, features: Features) -> None:
    content = io.BytesIO()
    np.save(content, features, allow_pickle=False)
    data = content.getvalue()
    name = f"{key}-{hashlib.sha256(data).hexdigest()[:16]}.npy"
    write_bytes_atomically(folder / name, data)


def _as_test(images: ImageDataset, part: str) -> ImageDataset:
    """The images with one part as their test part, which is read in order and never augmented."""
    if part == "test":
        return images
    if isinstance(images, OnDiskImages):
        return replace(images, test=images.train)
    assert isinstance(images, InMemoryImages)
    return replace(images, test_x=images.train_x, test_y=images.train_y)


def _network(start: Start, images: ImageDataset, device_config: DeviceConfig) -> torch.nn.Module:
    network = create_backbone(ModelSpec.parse(start.model), images.channels, images.image_size)
    network.load_state_dict(start.backbone)
    memory = torch.channels_last if device_config.channels_last else torch.contiguous_format
    return network.eval().to(device_config.device).to(memory_format=memory)


@torch.no_grad()
def _computed(
    network: torch.nn.Module,
    start: Start,
    images: ImageDataset,
    device_config: DeviceConfig,
    check: Callable[[], None],
) -> Features:
    batches = make_loader(
        *(images, device_config.device, 0, "none"),
        channels_last=device_config.channels_last,
        world=World(),
    )
    batches.set_normalization(*start.moments)
    parts = []
    for x, _ in batches.test_batches(AT_ONCE):
        parts.append(network(x).float().cpu())
        check()
    found: Features = torch.cat(parts).numpy()
    return found


@torch.no_grad()
def seconds_per_image(start: Start, images: ImageDataset, device_config: DeviceConfig) -> float:
    """What the features of an image take, decoding included, from a few test images."""
    network = _network(start, images, device_config)
    batches = make_loader(
        *(images, device_config.device, 0, "none"),
        channels_last=device_config.channels_last,
        world=World(),
    )
    network(next(iter(batches.test_batches(FEW)))[0])  # the first is slower
    began, count = time.perf_counter(), 0
    for x, _ in batches.test_batches(FEW):
        network(x)
        count += len(x)
        synchronize(device_config.device.type)
        if time.perf_counter() - began > ENOUGH:
            break
    return (time.perf_counter() - began) / count
