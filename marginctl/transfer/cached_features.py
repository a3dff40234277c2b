"""Features of images under a frozen backbone, computed once and cached by content."""

import contextlib
import hashlib
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from marginctl import NUMERICS
from marginctl.data.images.image_sets import ImageDataset
from marginctl.data.images.on_disk import OnDiskImages
from marginctl.data.loading.loader import BatchLoader
from marginctl.data.loading.on_disk_loader import make_loader
from marginctl.errors import RequestError
from marginctl.models.factory import create_backbone
from marginctl.runs.atomic_io import write_atomically
from marginctl.runs.run_dir import digest, versions
from marginctl.transfer.source import SourceModel
from marginctl.utils.device import synchronize
from marginctl.utils.precision import DeviceConfig

FOLDER = "features"  # in a runs folder
BATCH_SIZE = 100
TIMING_BATCH_SIZE, TIMING_SECONDS = 16, 1.0

FeatureArray = NDArray[np.float32]


@dataclass(frozen=True)
class SplitFeatures:
    """Features (N, d) of the parts of an image set, in the order of the images."""

    train: FeatureArray
    test: FeatureArray
    val: FeatureArray | None = None  # None if the set has no validation part


def extract_features(
    source: SourceModel,
    images: ImageDataset,
    runs_folder: Path,
    device_config: DeviceConfig,
    report: Callable[[str], None],
    on_batch: Callable[[], None],
) -> SplitFeatures:
    """Return the features of all images; cached ones are read, others computed and cached.

    The backbone computes in evaluation mode and float32, with the normalization of its own
    training images. The cache key covers weights, images, preprocessing, the kind of device, the
    precision and the torch version.
    """
    folder = runs_folder / FOLDER
    network: torch.nn.Module | None = None
    parts = []
    for part in _parts(images):
        key = _cache_key(source, images, part, device_config)
        features = _read(folder, key, report)
        if features is None:
            if network is None:
                network = _network(source, images, device_config)
            dataset = images.train_as_test() if part == "train" else images
            dataset = images.validation_as_test() if part == "val" else dataset
            features = _compute(network, _loader(source, dataset, device_config), on_batch)
            if not np.isfinite(features).all():
                raise RequestError(
                    f"source_models = {source.path}: a feature of a {part} image of "
                    f"{images.name} is not finite: name another source model"
                )
            _write(folder, key, features)
        parts.append(features)
    return SplitFeatures(*parts)


def _parts(images: ImageDataset) -> Sequence[str]:
    return ("train", "test", "val") if images.has_validation else ("train", "test")


def missing_batches(
    source: SourceModel, images: ImageDataset, runs_folder: Path, device_config: DeviceConfig
) -> int:
    """Return the number of batches of the parts that the cache lacks; its files may be corrupt."""
    sizes = {"train": len(images.train_y), "test": len(images.test_y)}
    if images.has_validation:
        sizes["val"] = len(images.validation_as_test().test_y)
    count = 0
    for part in _parts(images):
        key = _cache_key(source, images, part, device_config)
        if not any((runs_folder / FOLDER).glob(f"{key}-*.npy")):
            count += -(-sizes[part] // BATCH_SIZE)
    return count


def _cache_key(
    source: SourceModel, images: ImageDataset, part: str, device_config: DeviceConfig
) -> str:
    """Return the digest of all that features depend on.

    The digest of a part covers pixels, or files; size, channels and resizing are listed besides.
    """
    resizing = repr(images.resizing) if isinstance(images, OnDiskImages) else None
    content = {
        "weights": source.weights,
        "model": str(source.model),
        "moments": [list(m) for m in source.moments],
        "images": images.split_digests[part],
        "prepared": [images.image_size, images.channels, resizing],
        "computed": [device_config.device.type, device_config.precision],
        "numerics": [NUMERICS, versions()["torch"]],
    }
    return digest(content)[:32]


def _read(folder: Path, key: str, report: Callable[[str], None]) -> FeatureArray | None:
    """Return the features of a file whose digest matches its name; remove corrupt files."""
    for path in sorted(folder.glob(f"{key}-*.npy")):
        data = b""
        with contextlib.suppress(OSError):
            data = path.read_bytes() if path.is_file() else b""  # reading a pipe would block
        if hashlib.sha256(data).hexdigest()[:16] == path.stem.rpartition("-")[2]:
            with contextlib.suppress(ValueError, EOFError):  # not an array
                return np.asarray(np.load(io.BytesIO(data), allow_pickle=False))
        report(f"{path}: is corrupt: recomputing")
        with contextlib.suppress(OSError):  # a folder
            path.unlink(missing_ok=True)
    return None


def _write(folder: Path, key: str, features: FeatureArray) -> None:
    content = io.BytesIO()
    np.save(content, features, allow_pickle=False)
    data = content.getvalue()
    write_atomically(folder / f"{key}-{hashlib.sha256(data).hexdigest()[:16]}.npy", data)


def _network(
    source: SourceModel, images: ImageDataset, device_config: DeviceConfig
) -> torch.nn.Module:
    device_config.apply()
    network = create_backbone(source.model, images.channels, images.image_size)
    network.load_state_dict(source.backbone)
    return network.eval().to(device_config.device).to(memory_format=device_config.memory_format)


def _loader(source: SourceModel, images: ImageDataset, device_config: DeviceConfig) -> BatchLoader:
    loader = make_loader(images, device_config, 0, "none")
    loader.set_normalization(*source.moments)
    return loader


@torch.no_grad()
def _compute(
    network: torch.nn.Module, loader: BatchLoader, on_batch: Callable[[], None]
) -> FeatureArray:
    """Return the features of the loader's test part."""
    features = []
    for x, _ in loader.test_batches(BATCH_SIZE):
        features.append(network(x).float().cpu())
        on_batch()
    return np.asarray(torch.cat(features).numpy())


@torch.no_grad()
def seconds_per_image(
    source: SourceModel, images: ImageDataset, device_config: DeviceConfig
) -> float:
    """Return the seconds per image of decoding and feature extraction, from some test images."""
    network = _network(source, images, device_config)
    loader = _loader(source, images, device_config)
    network(next(iter(loader.test_batches(TIMING_BATCH_SIZE)))[0])  # the first call is slower
    began, count = time.perf_counter(), 0
    for x, _ in loader.test_batches(TIMING_BATCH_SIZE):
        network(x)
        count += len(x)
        synchronize(device_config.device)
        if time.perf_counter() - began > TIMING_SECONDS:
            break
    return (time.perf_counter() - began) / count
