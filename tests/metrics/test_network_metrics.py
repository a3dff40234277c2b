"""Balanced accuracy, macro-F1, AUROC and the metrics of a fold, against scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics as reference

from marginctl.metrics.accuracy import auroc
from marginctl.metrics.detection import Outputs
from marginctl.metrics.network_metrics import classification_metrics, fold_metrics
from marginctl.metrics.scoring_rules import softmax


def made(num_classes, seed=0, n=80):
    stream = np.random.default_rng(seed)
    y = stream.integers(num_classes, size=n)
    y[:num_classes] = range(num_classes)
    logits = stream.normal(size=(n, num_classes)) + 2 * np.eye(num_classes)[y]
    return np.round(logits, 1), y


@pytest.mark.parametrize("num_classes", [2, 3, 7])
@pytest.mark.parametrize("seed", range(3))
def test_a_fold_against_scikit_learn(num_classes, seed):
    logits, y = made(num_classes, seed)
    values, p, predicted = fold_metrics(logits, y), softmax(logits), logits.argmax(1)
    area = (
        reference.roc_auc_score(y, p[:, 1])
        if num_classes == 2
        else reference.roc_auc_score(y, p, multi_class="ovr")
    )
    assert values["auroc"] == pytest.approx(area, abs=1e-12)
    assert values["balanced_accuracy"] == pytest.approx(
        100 * reference.balanced_accuracy_score(y, predicted), abs=1e-10
    )
    assert values["macro_f1"] == pytest.approx(
        reference.f1_score(y, predicted, average="macro"), abs=1e-12
    )
    assert values["log_loss"] == pytest.approx(reference.log_loss(y, p), abs=1e-12)


def test_a_class_without_test_rows():
    logits, y = made(4)
    kept = y != 2
    values, predicted = fold_metrics(logits[kept], y[kept]), logits[kept].argmax(1)
    assert values["auroc"] is None
    with pytest.warns(UserWarning, match="not in y_true"):
        expected = reference.balanced_accuracy_score(y[kept], predicted)
    assert values["balanced_accuracy"] == pytest.approx(100 * expected)
    with pytest.raises(ValueError, match="class 2 has no test sample"):
        auroc(features=logits, logits=logits[kept], similarities=logits[kept], labels=y[kept])


def test_the_class_without_test_images_is_named():
    logits, y = made(4)
    kept = y != 2
    outputs = Outputs(logits[kept], logits[kept], logits[kept])
    names = ["ants", "bees", "wasps", "flies"]
    document = classification_metrics(outputs, y[kept], names, 15, "no weights")
    assert document["reasons"]["auroc"] == "no test sample of class wasps"


def test_logits_that_are_not_finite_have_no_probabilities():
    logits, y = made(3)
    logits[0, 0] = np.inf
    values = fold_metrics(logits, y)
    assert [k for k, v in values.items() if v is None] == ["auroc", "log_loss", "ece"]
