"""Evaluates a classifier that torchvision publishes, by the name of its weights."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from marginctl.data.streamed import ImageFiles
from marginctl.data.streamed_sets import imagenet_wnids, load_files
from marginctl.errors import RequestError
from marginctl.evaluation.document import measured
from marginctl.evaluation.posthoc import map_file
from marginctl.evaluation.posthoc.applied import applied
from marginctl.text import did_you_mean
from marginctl.training.decoding import Decoded, decoded

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 32
FORCE_WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch's own switch

Values = tuple[Tensor, Tensor]  # features (N, d) and logits (N, C), of all images


def is_name(text: str) -> bool:
    """Whether this can be a name of weights, and is nothing that lies in a folder."""
    return re.fullmatch(r"[A-Za-z]\w*(\.\w+)?", text) is not None and not os.path.lexists(text)


def evaluate_weights(
    name: str,
    data: str | None,
    data_dir: Path,
    device: str,
    bins: int,
    calibration: Path | None = None,
) -> dict[str, Any]:
    """Evaluates torchvision's weights on streamed images: the document of `eval --json`.

    The images are prepared by the weights' own preset. All classes of the weights stand to choice,
    also where the images have fewer.

    Args:
        name: of weights, as ResNet50_Weights.IMAGENET1K_V2, or of a model, for its best ones.
        data: `imagenet`, `places-365`, `folder:PATH` or `list:PATH`; of it the test part alone.
        data_dir: where the images are.
        device: a torch device.
        bins: of the calibration.
        calibration: a map of `calibrate --save`, for calibrated numbers beside the others.

    Raises:
        RequestError: no such weights, weights that are not there and cannot be fetched, or images
            whose classes are not those of the weights.
    """
    fitted = None if calibration is None else map_file.read(calibration)
    model, weights = _named(name)
    if data is None:
        raise RequestError(f"{name}: weights of torchvision: name images with --data")
    preset = weights.transforms()
    files = load_files(data, data_dir, preset.crop_size[0], test_only=True)
    categories = tuple(weights.meta["categories"])
    numbers, matched = classes_of(files.classes, categories, str(weights))
    network = _loaded(model, weights).eval().to(device)
    last = [m for m in network.modules() if isinstance(m, nn.Linear)][-1:]
    features, logits = _computed(network, last, files, preset, torch.device(device))
    if not bool(features.isfinite().all() and logits.isfinite().all()):
        raise RequestError(f"{weights}: an output is not finite: there is nothing to evaluate")
    scores, labels = logits.double().numpy(), numbers[files.test_y]
    document = {
        "schema": 1,
        "command": "eval",
        "run": None,
        "weights": str(weights),
        "weights_url": weights.url,
        "data": data,
        "data_identity": files.identity,
        "test_digest": files.part_digests["test"],
        "model": f"torchvision/{model}",
        "preset": " ".join(str(preset).split()),
        "classes_matched_by": matched,
        **measured(
            features.double().numpy(),
            scores,
            scores,
            labels,
            categories,
            bins,
            last[0].weight.detach().cpu().double().numpy()
            if last
            else "the network ends in no linear layer",
        ),
    }
    if calibration is not None and fitted is not None:
        digest = files.part_digests["test"]
        document["calibrated"] = applied(calibration, fitted, scores, labels, bins, digest)
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


def _named(name: str) -> tuple[str, Any]:
    """The model's name and the weights.

    Raises:
        RequestError: torchvision has no such classifier, or no weights of it.
    """
    from torchvision import models

    known = models.list_models(module=models)
    kinds = {models.get_model_weights(model).__name__: model for model in known}
    kind, _, version = name.partition(".")
    model = name if name in known else kinds.get(kind)
    if model is None:
        raise RequestError(
            f"{name}: is neither there as a run's folder nor a classifier of torchvision: expected "
            "a path, a model such as resnet50, or weights such as ResNet50_Weights.IMAGENET1K_V2."
            + did_you_mean(name, [*known, *kinds])
        )
    of_model = models.get_model_weights(model)
    versions = list(of_model.__members__)
    wanted = version or "DEFAULT"
    if wanted not in versions:
        raise RequestError(
            f"{name}: expected one of {', '.join(f'{of_model.__name__}.{v}' for v in versions)}"
        )
    return model, of_model[wanted]


def _loaded(model: str, weights: Any) -> nn.Module:
    """The network with its weights: from torch.hub's cache, else fetched; nothing in them is run.

    Raises:
        RequestError: they are not there and cannot be fetched, or the file holds something else.
    """
    from torchvision import models

    cached = Path(torch.hub.get_dir()) / "checkpoints" / weights.url.rpartition("/")[2]
    there = cached.is_file()
    try:
        # what torch.hub says of a download is no part of the result
        with _weights_only(), contextlib.redirect_stdout(sys.stderr):
            network: nn.Module = models.get_model(model, weights=weights)
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", None) or error.strerror or error
        raise RequestError(
            f"{weights}: {cached} is not there, and {weights.url} cannot be fetched ({reason}): "
            "put that file there"
        ) from None
    except Exception as error:  # a damaged file makes the parser raise anything
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        what = "holds something else" if there else "was fetched, and holds something else"
        raise RequestError(
            f"{cached}: {what} than {weights} ({said[:100]}): remove it, to fetch it again"
        ) from None
    return network


@contextlib.contextmanager
def _weights_only() -> Iterator[None]:
    """torch unpickles tensors alone, whatever torchvision asks of it."""
    before = os.environ.get(FORCE_WEIGHTS_ONLY)
    os.environ[FORCE_WEIGHTS_ONLY] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[FORCE_WEIGHTS_ONLY]
        else:
            os.environ[FORCE_WEIGHTS_ONLY] = before


class _Preset:
    """A preset of torchvision, as `Decoded` calls it."""

    def __init__(self, preset: Any) -> None:
        self._preset = preset

    def __call__(self, image: "Image", row: int) -> tuple[Tensor, Tensor]:
        return self._preset(image), torch.zeros(3)


@torch.no_grad()
def _computed(
    network: nn.Module, last: list[nn.Linear], files: ImageFiles, preset: Any, device: torch.device
) -> Values:
    """The features, which are the input of the last linear layer, and the logits, on the CPU."""
    inputs: list[Tensor] = []
    hooks = [m.register_forward_pre_hook(lambda _, given: inputs.append(given[0])) for m in last]
    parts = []
    rows = np.split(np.arange(len(files.test)), range(BATCH, len(files.test), BATCH))
    try:
        for x, _, _ in decoded(Decoded(files.test, files.root, _Preset(preset)), rows, device):
            logits = network(x.to(device))
            features = inputs.pop() if last else logits[:, :0]
            parts.append((features.float().cpu(), logits.float().cpu()))
    finally:
        for hook in hooks:
            hook.remove()
    features, logits = (torch.cat(part) for part in zip(*parts, strict=True))
    return features, logits
