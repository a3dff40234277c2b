"""Predictions of a saved model for new data: what `marginctl predict` computes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginctl.crossval.tabular_model import TabularModel
from marginctl.data.images.content import skipped_files
from marginctl.data.images.folders import FolderScan
from marginctl.data.tabular.new_rows import read_new_rows
from marginctl.errors import RequestError
from marginctl.runs.atomic_io import csv_text
from marginctl.runs.model_file import ModelFile, load_model_file
from marginctl.utils.text import count_noun


@dataclass(frozen=True)
class NewPredictions:
    """The predictions of a model for rows or images."""

    key: str  # `row` or `file`
    names: list[Any]  # (n,) the number of each row from 1, or the path of each image
    classes: list[str]  # the C class names
    probabilities: NDArray[np.float64]  # (n, C)
    remarks: list[str]  # what was guessed, ignored or read as missing, a sentence each

    @property
    def predicted(self) -> list[str]:
        """The most probable class of each row, the first of a tie."""
        return [self.classes[i] for i in self.probabilities.argmax(1)]

    def csv(self) -> str:
        """Return a CSV row for each row or image, with a probability column for each class."""
        heading = (self.key, "prediction", *(f"p_{name}" for name in self.classes))
        columns = zip(self.names, self.predicted, self.probabilities, strict=True)
        rows = ((name, label, *(f"{p:.8g}" for p in row)) for name, label, row in columns)
        return csv_text([heading, *rows])

    def document(self) -> dict[str, Any]:
        columns = zip(self.names, self.predicted, self.probabilities.tolist(), strict=True)
        return {
            "schema": 1,
            "command": "predict",
            "classes": self.classes,
            "predictions": [
                {self.key: name, "prediction": label, "probabilities": row}
                for name, label, row in columns
            ],
            "remarks": self.remarks,
        }


def predict_file(path: Path, new: Path, *, header: bool = True) -> NewPredictions:
    """Return the predictions of a saved model.

    Args:
        path: the file of the model.
        new: a table, or a folder of images.
        header: of a table, whether its first line names the columns.

    Raises:
        RequestError: the model or the new data cannot be used.
    """
    file = load_model_file(path)
    if file.kind == "images":
        return _predict_images(file, new)
    model = TabularModel.from_file(file)
    if new.is_dir():
        raise RequestError(f"{new}: is a folder: expected a table, for which {path} was trained")
    record = model.record
    rows = read_new_rows(new, model.columns, record.target, record.decimal_mark, header=header)
    numbers = list(range(1, len(rows.x) + 1))
    probabilities = model.predict_proba(rows.x)
    predictions = NewPredictions("row", numbers, record.classes, probabilities, rows.remarks)
    if rows.labels is not None:
        predictions.remarks.append(_accuracy_remark(record.target, rows.labels, predictions))
    return predictions


def _predict_images(file: ModelFile, folder: Path) -> NewPredictions:
    """Return the predictions of all images below a folder, at any depth."""
    from marginctl.training.image_model import ImageModel  # a table does without torchvision

    model = ImageModel.from_file(file)
    if not folder.is_dir():
        raise RequestError(f"{folder}: expected a folder of images, for which {file.path} is")
    scan = FolderScan(folder)
    files = scan.images_at_any_depth()
    remarks = [
        f"{count_noun(skipped.count, 'file')} not read: {skipped.reason}: {skipped.listed}"
        for skipped in skipped_files(scan.skipped)
    ]
    if not files:
        raise RequestError(f"{folder}: no images: expected some at any depth", *remarks)
    probabilities = model.predict_proba(folder, files)
    return NewPredictions("file", files, model.record.classes, probabilities, remarks)


def _accuracy_remark(target: str, labels: list[str], predictions: NewPredictions) -> str:
    """Return the accuracy on the rows whose label is a class of the model."""
    pairs = zip(labels, predictions.predicted, strict=True)
    right = [label == predicted for label, predicted in pairs if label in predictions.classes]
    if not right:
        return f"column '{target}' has no class of the model, and was not used"
    rows = count_noun(len(right), "labelled row")
    return f"accuracy {100 * np.mean(right):.2f} % by column '{target}' ({rows})"
