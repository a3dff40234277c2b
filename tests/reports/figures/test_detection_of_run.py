"""Histograms and ROC curves of one network."""

import numpy as np
import pytest

from marginctl.errors import StorageError
from marginctl.metrics.detection import OODOutputs, Outputs, detection_metrics
from marginctl.reports.figures import detection_of_run


def outputs(n, seed):
    stream = np.random.default_rng(seed)
    logits = stream.normal(0, 1, (n, 3))
    return Outputs(stream.normal(0, 1, (n, 2)), logits, logits)


@pytest.fixture
def saved(monkeypatch):
    """The figures, in place of the files."""
    figures = []
    monkeypatch.setattr(detection_of_run, "save", lambda figure, path: figures.append(figure))
    return figures


def test_a_row_for_misclassification_and_for_each_ood_set(saved, tmp_path):
    foreign = [OODOutputs("mnist", "near", "d", outputs(30, 1))]
    found = detection_metrics(outputs(50, 0), np.zeros(50, np.int64), foreign, 5, curves=True)
    assert detection_of_run.draw("made", found, tmp_path / "a.png") is None
    miss, ood = saved[0].subfigs
    assert ood.get_suptitle() == "OOD mnist (near): 50 in, 30 out"
    z, _, roc = ood.axes
    inside = found["ood"][0]["scores"]["max_similarity"]["histogram"]["inside"]
    bars = z.patches[1]  # the outline over the filled one
    assert bars.get_data().values.tolist() == pytest.approx([2 * n for n in inside])
    assert [line.get_label() for line in roc.lines][::5] == ["max similarity", "chance"]
    assert roc.lines[0].get_ydata()[-1] == 100
    assert miss.axes[1].get_xlabel() == "feature norm ||x||"


def test_a_task_with_one_class_returns_the_reason(saved, tmp_path):
    own = outputs(20, 0)
    found = detection_metrics(own, own.similarities.argmax(1), [], 5, curves=True)
    reason = detection_of_run.draw("made", found, tmp_path / "a.png")
    assert (reason, saved) == (f"misclassification: {found['reasons']['misclassification']}", [])


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    found = detection_metrics(outputs(20, 0), np.zeros(20, np.int64), [], 5, curves=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/a\.png: cannot be written"):
        detection_of_run.draw("made", found, tmp_path / "file" / "a.png")
