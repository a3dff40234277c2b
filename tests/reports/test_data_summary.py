"""Lines about what was read."""

import numpy as np

from marginctl.calibration.outputs import Outputs
from marginctl.data.images.content import DEEP, SkippedFiles
from marginctl.data.images.summary import DuplicateCounts, ImageSummary, PartSummary
from marginctl.reports.data_summary import image_lines, outputs_lines


def test_outputs():
    remarks = ("1 of 3 classes have no sample: 2",)
    values = np.zeros((12, 3))
    outputs = Outputs("o.csv", "logits", values, values.argmax(1), remarks=remarks)
    assert list(outputs_lines(outputs)) == [
        "o.csv: 12 rows of logits, 3 classes",
        "o.csv: 1 of 3 classes have no sample: 2",
    ]


def test_images():
    summary = ImageSummary(
        "images",
        {"train": PartSummary(7, {"cat": 4, "dog": 3}), "test": PartSummary(1, {})},
        [SkippedFiles("text", 2, ["a.txt"]), SkippedFiles(DEEP, 1, [".b"])],
        {"min": [3, 4], "median": [5, 6], "max": [7, 8]},
        {"RGB": 7, "L": 1},
        DuplicateCounts(),
        ["1 image with transparency: composited on a white ground"],
    )
    lines = [
        "train: 7 images in 2 classes: cat (4), dog (3)",
        "test: 1 image",
        "sizes: 3 x 4 to 7 x 8 (median 5 x 6)",
        "modes: RGB (7), L (1)",
        "not read: 2 (text): a.txt and 1 more",
        "refused: 1 (more than 8 bits a channel: convert it): .b",
        "1 image with transparency: composited on a white ground",
    ]
    assert list(image_lines(summary)) == lines
    assert list(image_lines(summary, 64))[2] == f"{lines[2]}, used at 64 x 64"
