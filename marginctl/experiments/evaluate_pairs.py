"""Verification of image pairs by a trained run: what `marginctl eval --pairs` computes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from marginctl.data.images.pairs import read_pairs
from marginctl.errors import RequestError
from marginctl.experiments.find_run import LoadedCheckpoint, load_checkpoint
from marginctl.models.backbone import Backbone
from marginctl.models.factory import create_backbone
from marginctl.models.state_dicts import check_shapes
from marginctl.runs.atomic_io import csv_text, write_output
from marginctl.training.ood_evaluation import InputFormat
from marginctl.training.pair_evaluation import PairSimilarities, pair_similarities
from marginctl.training.trainer import MISMATCH_ERRORS
from marginctl.utils.distributed import World
from marginctl.utils.precision import DeviceConfig, device_config_for

HEADING = ("pairs", "line", "first", "second", "same", "cosine", "fold")


@dataclass(frozen=True)
class PairVerification:
    """The verification of lists of pairs by a trained network."""

    document: dict[str, Any]
    lists: Sequence[PairSimilarities]

    def write(self, path: Path) -> None:
        """Write a CSV row for each pair, in the order of the files; folds count from 1."""
        rows: list[Sequence[Any]] = [HEADING]
        for one in self.lists:
            pairs = one.pairs
            columns = (pairs.lines, pairs.rows.tolist(), pairs.same, one.scores, pairs.folds)
            for line, both, same, score, fold in zip(*columns, strict=True):
                files = (pairs.files[row] for row in both)
                rows.append((pairs.file, line, *files, int(same), f"{score:.6f}", fold + 1))
        write_output(path, csv_text(rows))


def verify(
    path: Path, files: Sequence[Path], root: Path | None, kind: str, device: str, *, flip: bool
) -> PairVerification:
    """Verify lists of pairs; the training images of the network are not needed."""
    lists = [read_pairs(file, root) for file in files]
    loaded = load_checkpoint(path, kind)
    recipe, (mean, std) = loaded.recipe, loaded.state["normalization"]
    image_size, resizing = loaded.state["image_size"], recipe.data.test_resizing
    input_format = InputFormat(len(mean), image_size, mean, std, resizing)
    device_config = device_config_for(device, recipe.train.precision)
    backbone = _backbone(loaded, input_format, device_config)

    def extract(x: Tensor) -> Tensor:
        with device_config.autocast():
            features: Tensor = backbone(x)
        return features

    results = pair_similarities(extract, lists, input_format, device_config, World(), flip=flip)
    document = {
        "schema": 1,
        "command": "eval",
        **loaded.description,
        "score": "cosine of the embeddings" + (", each with its mirror image's" if flip else ""),
        "embedding": results[0].embedding_dim,
        "verification": [one.record() for one in results],
    }
    return PairVerification(document, results)


def title(document: dict[str, Any]) -> str:
    """Return one line: the network and the score of the verification."""
    return (
        f"{document['model']} with {document['objective']}: {document['score']}, "
        f"{document['embedding']} numbers ({document['checkpoint']}, step {document['step']})"
    )


def _backbone(
    loaded: LoadedCheckpoint, input_format: InputFormat, device_config: DeviceConfig
) -> Backbone:
    model, weights = loaded.recipe.model, loaded.state["model"]
    backbone = create_backbone(model, input_format.channels, input_format.image_size)
    try:
        check_shapes(backbone, weights)
        backbone.load_state_dict(weights)
    except MISMATCH_ERRORS as error:
        reason = str(error).splitlines()[0]
        raise RequestError(
            f"{loaded.file}: holds another network than {model} ({reason}): train it again"
        ) from None
    backbone = backbone.eval().to(device_config.device)
    return backbone.to(memory_format=device_config.memory_format)
