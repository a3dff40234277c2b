"""What a transferred network says of each test image, as a CSV file has it."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from marginctl.data.images import folders
from marginctl.data.images.base import ImageDataset
from marginctl.data.images.on_disk import OnDiskImages
from marginctl.data.images.registry import FOLDER_PREFIX
from marginctl.data.paths import resolve_path
from marginctl.metrics.arrays import FloatArray
from marginctl.metrics.scoring_rules import softmax
from marginctl.recipe.image_data import ImageData
from marginctl.runs.atomic_io import csv_text, write_output

HEADING = ("image", "label", "predicted", "probability")


def prediction_rows(
    data: ImageData, images: ImageDataset, data_dir: Path, logits: FloatArray
) -> Iterator[tuple[Any, ...]]:
    """A heading, and a row for each test image: its file or number, classes, and the largest share.

    Args:
        data: which images they are, for the names of the files of a folder.
        images: them.
        data_dir: where a relative folder is looked for.
        logits: (n, C) of the test part.
    """
    yield HEADING
    names, classes = test_image_names(data, images, data_dir), images.classes
    shares = softmax(logits)
    predicted = shares.argmax(1)
    for i, (name, own, other) in enumerate(zip(names, images.test_y, predicted, strict=True)):
        yield name, classes[own], classes[other], f"{shares[i, other]:.6f}"


def test_image_names(data: ImageData, images: ImageDataset, data_dir: Path) -> list[str]:
    """The file of each test image, relative to its set where it lies in it; else its number."""
    if isinstance(images, OnDiskImages):
        return [images.test.path(row) for row in range(len(images.test))]
    if data.name.startswith(FOLDER_PREFIX):
        root = resolve_path(data.name.removeprefix(FOLDER_PREFIX), data_dir)
        _, test = folders.list_image_folder(data.name, root, test_fraction=data.test_fraction)
        return [os.path.relpath(path, root) for files in test.values() for path in files]
    return [str(i) for i in range(len(images.test_y))]


def write(path: Path, session: Any) -> None:
    """Writes the predictions of all finished trials of a session into one CSV file.

    Columns before those of `rows_of` say which trial it is: data, method, whose network, what this
    was trained with and its seed, and the seed of the transfer.

    Raises:
        StorageError: it cannot be written.
    """
    rows: list[Sequence[Any]] = [("data", "method", "start", "objective", "start_seed", "seed")]
    rows[0] = (*rows[0], *HEADING)
    for trial in session.trials:
        origin = trial.origin
        own: tuple[Any, ...] = (trial.recipe.data.name, trial.recipe.method, origin.row)
        own += (origin.trained_with, "" if origin.seed is None else origin.seed, trial.seed)
        rows += [(*own, *row) for row in session.predictions(trial)]
    write_output(path, csv_text(rows))
