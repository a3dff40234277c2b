"""Evaluates a classifier that is published with weights, by their name."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from marginctl.calibration.calibrator import Calibrator, evaluate_calibrator
from marginctl.data.images.base import ImageDataset
from marginctl.data.images.image_sets import load_ood_datasets
from marginctl.data.images.in_memory import InMemoryImages
from marginctl.data.images.listing import imagenet_wnids
from marginctl.data.images.on_disk import OnDiskImages, load_on_disk
from marginctl.data.loading.workers import DecodedImages, decode_batches
from marginctl.errors import RequestError
from marginctl.metrics.detection import OODOutputs, Outputs, detection_metrics
from marginctl.metrics.network_metrics import classification_metrics
from marginctl.models.pretrained import pretrained_classifier

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 32

Values = tuple[Tensor, Tensor]  # features (N, d) and logits (N, C), of all images


def evaluate_weights(
    name: str,
    data: str | None,
    data_dir: Path,
    device: str,
    bins: int,
    calibration: Path | None = None,
    ood: Sequence[str] = (),
) -> dict[str, Any]:
    """Evaluates published weights on streamed images: the document of `eval --json`.

    The images are prepared by the weights' own preset. All classes of the weights stand to choice,
    also where the images have fewer.

    Args:
        name: as `pretrained_classifier` takes it.
        data: `imagenet`, `places-365`, `folder:PATH` or `list:PATH`; of it the test part alone.
        data_dir: where the images are.
        device: a torch device.
        bins: of the calibration.
        calibration: a calibrator of `calibrate --save`, whose scores are added.
        ood: foreign images, as `load_ood_datasets` takes them, prepared by the weights' own preset.

    Raises:
        RequestError: no such weights, weights that are not there and cannot be fetched, or images
            whose classes are not those of the weights.
    """
    calibrator = None if calibration is None else Calibrator.load(calibration)
    weights = pretrained_classifier(name)
    if data is None:
        raise RequestError(f"{name}: published weights: name images with --data")
    preset, categories = weights.transform, weights.categories
    files = load_on_disk(data, data_dir, weights.image_size, test_only=True)
    numbers, matched = classes_of(files.classes, categories, weights.name)
    foreign = load_ood_datasets(ood, files, data_dir, stream=True)
    network = weights.network().eval().to(device)
    last = [m for m in network.modules() if isinstance(m, nn.Linear)][-1:]
    own, *others = (
        _computed(network, last, images, preset, torch.device(device))
        for images in (files, *(one.images for one in foreign))
    )
    if not all(bool(part.isfinite().all()) for part in own):
        raise RequestError(f"{weights.name}: an output is not finite: there is nothing to evaluate")
    features, scores = (part.double().numpy() for part in own)
    labels = numbers[files.test_y]
    document = {
        "schema": 1,
        "command": "eval",
        "run": None,
        "weights": weights.name,
        "weights_url": weights.url,
        "data": data,
        "data_identity": files.digest_description,
        "test_digest": files.split_digests["test"],
        "model": weights.model,
        "preset": " ".join(str(preset).split()),
        "classes_matched_by": matched,
        **classification_metrics(
            features,
            scores,
            scores,
            labels,
            categories,
            bins,
            last[0].weight.detach().cpu().double().numpy()
            if last
            else "the network ends in no linear layer",
        ),
        "detection": detection_metrics(
            Outputs(features, scores, scores),
            labels,
            [
                OODOutputs(one.images.name, one.group, one.digest, Outputs(x, z, z))
                for one, values in zip(foreign, others, strict=True)
                for x, z in [[part.double().numpy() for part in values]]
            ],
            curves=True,
        ),
    }
    if calibration is not None and calibrator is not None:
        digest = files.split_digests["test"]
        document["calibrated"] = evaluate_calibrator(
            calibration, calibrator, scores, labels, bins, digest
        )
    return document


def title(document: dict[str, Any]) -> str:
    """What was evaluated on what, in a line."""
    return (
        f"{document['weights']} on {document['data']} (classes matched by "
        f"{document['classes_matched_by']})"
    )


def classes_of(
    names: Sequence[str], categories: Sequence[str], weights: str
) -> tuple[NDArray[np.int64], str]:
    """Which class of the weights each class of the images is.

    The first that holds: all names are wnids of ImageNet; all are categories of the weights (`_`
    may stand for a blank); there are as many classes, in the same order.

    Returns:
        (K,) numbers from 0 to C - 1, and what they were matched by.

    Raises:
        RequestError: nothing holds.
    """
    wnids = imagenet_wnids() if len(categories) == len(imagenet_wnids()) else ()
    for known, matched in ((wnids, "wnid"), (tuple(map(_plain, categories)), "category")):
        number = {name: i for i, name in enumerate(known)}
        found = [number.get(n if matched == "wnid" else _plain(n)) for n in names]
        whole = [i for i in found if i is not None]
        if len(whole) == len(set(whole)) == len(names):
            return np.array(whole, np.int64), matched
    if len(names) == len(categories):
        return np.arange(len(names)), "count"
    seen = dict[str, str]()
    for name in names:
        if _plain(name) in seen:
            raise RequestError(
                f"{weights}: classes '{seen[_plain(name)]}' and '{name}' of the images have one "
                "name: make them one class"
            )
        seen[_plain(name)] = name
    strange = next(n for n in names if _plain(n) not in set(map(_plain, categories)))
    raise RequestError(
        f"{weights}: has {len(categories)} classes, the images have {len(names)}: expected as "
        f"many, or classes that are called as its categories or by their wnids: '{strange}' is none"
    )


def _plain(name: str) -> str:
    return name.replace("_", " ")


class _Preset:
    """A preset of torchvision, as `DecodedImages` calls it."""

    def __init__(self, preset: Any) -> None:
        self._preset = preset

    def __call__(self, image: "Image", draw: int) -> tuple[Tensor, Tensor]:
        return self._preset(image), torch.zeros(3)


def _prepared(images: ImageDataset, preset: Any, device: torch.device) -> Iterator[Tensor]:
    """The test images as the preset makes them, batch by batch, on the CPU."""
    count = len(images.test_y)
    rows = np.split(np.arange(count), range(BATCH, count, BATCH))
    if isinstance(images, OnDiskImages):
        of_files = DecodedImages(images.test, images.root, _Preset(preset))
        yield from (x for x, _, _ in decode_batches(of_files, rows, device))
    elif isinstance(images, InMemoryImages):
        from PIL import Image

        for some in rows:
            squares = (x.squeeze(2) if x.shape[2] == 1 else x for x in images.test_x[some])
            yield torch.stack([preset(Image.fromarray(x).convert("RGB")) for x in squares])


@torch.no_grad()
def _computed(
    network: nn.Module,
    last: list[nn.Linear],
    images: ImageDataset,
    preset: Any,
    device: torch.device,
) -> Values:
    """The features, which are the input of the last linear layer, and the logits, on the CPU."""
    inputs: list[Tensor] = []
    hooks = [m.register_forward_pre_hook(lambda _, given: inputs.append(given[0])) for m in last]
    parts = []
    try:
        for x in _prepared(images, preset, device):
            logits = network(x.to(device))
            features = inputs.pop() if last else logits[:, :0]
            parts.append((features.float().cpu(), logits.float().cpu()))
    finally:
        for hook in hooks:
            hook.remove()
    features, logits = (torch.cat(part) for part in zip(*parts, strict=True))
    return features, logits
