"""Evaluation of published weights by their name: what `marginctl eval WEIGHTS` computes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from marginctl.calibration.calibrator import Calibrator, evaluate_calibrator
from marginctl.data.images.image_sets import load_image_set, load_ood_datasets
from marginctl.data.images.listing import imagenet_wnids
from marginctl.data.images.summary import inspect_image_set
from marginctl.errors import RequestError
from marginctl.experiments.evaluate import OnSummary
from marginctl.metrics.detection import OODOutputs, Outputs, detection_metrics
from marginctl.metrics.network_metrics import classification_metrics
from marginctl.models.backbone import last_linear
from marginctl.models.pretrained import pretrained_classifier
from marginctl.training.ood_evaluation import AdaptedLoader, InputFormat
from marginctl.utils.precision import device_config_for

BATCH = 32


def evaluate_weights(
    name: str,
    data: str | None,
    data_dir: Path,
    device: str,
    bins: int,
    calibration: Path | None = None,
    ood: Sequence[str] = (),
    on_summary: OnSummary | None = None,
) -> dict[str, Any]:
    """Evaluate published weights on streamed images; return the document of `eval --json`.

    Images in files are prepared by the weights' own evaluation transform; OOD images in memory are
    resized bilinearly. Predictions are among all classes of the weights, also if the images have
    fewer.

    Args:
        data: `imagenet`, `places-365`, `folder:PATH` or `list:PATH`; only its test part is used.
        on_summary: as in `predict_run`.
    """
    calibrator = None if calibration is None else Calibrator.load(calibration)
    weights = pretrained_classifier(name)
    categories = weights.categories
    if not categories:
        raise RequestError(f"{name}: has no classifier: use its features by transfer --from {name}")
    if data is None:
        raise RequestError(f"{name}: published weights: name images with --data")
    summary = inspect_image_set(data, data_dir, test_only=True)
    if summary is not None and on_summary is not None:
        on_summary(data, summary)
    files = load_image_set(data, data_dir, weights.image_size, stream=True, test_only=True)
    numbers, matched = match_classes(files.classes, categories, weights.name)
    ood_sets = load_ood_datasets(ood, files, data_dir, stream=True)
    network = weights.network().eval().to(device)
    classifier = last_linear(network)
    linear = [classifier[1]] if classifier else []
    size, resizing = weights.image_size, weights.resizing
    input_format = InputFormat(3, size, weights.mean, weights.std, resizing)
    config = device_config_for(device, "fp32")
    outputs, *ood_outputs = (
        _outputs(network, linear, AdaptedLoader(images, input_format, config, None))
        for images in (files, *(ood_set.images for ood_set in ood_sets))
    )
    logits, labels = outputs.logits, numbers[files.test_y]
    if not (np.isfinite(outputs.features).all() and np.isfinite(logits).all()):
        raise RequestError(f"{weights.name}: an output is not finite: there is nothing to evaluate")
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
        "image_size": size,
        "resizing": resizing.model_dump(),
        "classes_matched_by": matched,
        **classification_metrics(
            outputs,
            labels,
            categories,
            bins,
            linear[0].weight.detach().cpu().double().numpy()
            if linear
            else "the network ends in no linear layer",
        ),
        "detection": detection_metrics(
            outputs,
            labels,
            [
                OODOutputs(one.images.name, one.group, one.digest, values)
                for one, values in zip(ood_sets, ood_outputs, strict=True)
            ],
            curves=True,
        ),
    }
    if calibration is not None and calibrator is not None:
        digest = files.split_digests["test"]
        document["calibrated"] = evaluate_calibrator(
            calibration, calibrator, logits, labels, bins, digest
        )
    return document


def title(document: dict[str, Any]) -> str:
    """Return one line: the weights, the data and how their classes were matched."""
    order = ", in the order of the published weights" if "=" in document["weights"] else ""
    return (
        f"{document['weights']} on {document['data']} (classes matched by "
        f"{document['classes_matched_by']}{order})"
    )


def match_classes(
    names: Sequence[str], categories: Sequence[str], weights: str
) -> tuple[NDArray[np.int64], str]:
    """Return the class number of the weights for each class of the images, and how they match.

    The first rule that applies: all names are wnids of ImageNet; all are categories of the weights
    (`_` may stand for a blank); all are numbers of classes of the weights.
    """
    wnids = imagenet_wnids() if len(categories) == len(imagenet_wnids()) else ()
    for known, matched in ((wnids, "wnid"), (tuple(map(_spaced, categories)), "category")):
        number = {name: i for i, name in enumerate(known)}
        numbers = [number.get(n if matched == "wnid" else _spaced(n)) for n in names]
        known_numbers = [i for i in numbers if i is not None]
        if len(known_numbers) == len(set(known_numbers)) == len(names):
            return np.array(known_numbers, np.int64), matched
    if all(name.isdecimal() and int(name) < len(categories) for name in names):
        return np.array([int(name) for name in names], np.int64), "number"
    seen = dict[str, str]()
    for name in names:
        if _spaced(name) in seen:
            raise RequestError(
                f"{weights}: classes '{seen[_spaced(name)]}' and '{name}' of the images have one "
                "name: make them one class"
            )
        seen[_spaced(name)] = name
    unknown = next(n for n in names if _spaced(n) not in set(map(_spaced, categories)))
    raise RequestError(
        f"{weights}: class '{unknown}' of the images is none of its {len(categories)} classes: "
        "expected names of its categories, wnids, or numbers from 0"
    )


def _spaced(name: str) -> str:
    return name.replace("_", " ")


@torch.no_grad()
def _outputs(network: nn.Module, linear: list[nn.Linear], batches: AdaptedLoader) -> Outputs:
    """Return the outputs of a network; features are the inputs of its last linear layer."""
    inputs: list[Tensor] = []
    hooks = [m.register_forward_pre_hook(lambda _, given: inputs.append(given[0])) for m in linear]
    parts = []
    try:
        for x, _ in batches.test_batches(BATCH):
            logits = network(x)
            features = inputs.pop() if linear else logits[:, :0]
            parts.append((features.float().cpu(), logits.float().cpu()))
    finally:
        for hook in hooks:
            hook.remove()
    features, logits = (torch.cat(part).double().numpy() for part in zip(*parts, strict=True))
    return Outputs(features, logits, logits)
