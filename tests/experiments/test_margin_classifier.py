"""MarginClassifier: scikit-learn's estimator checks, data frames, and files."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from marginctl import MarginClassifier
from marginctl.errors import RequestError


@parametrize_with_checks([MarginClassifier(tune=False, epochs=20)])
def test_estimator_checks_of_scikit_learn(estimator, check):
    check(estimator)


def frame(n=120, seed=0):
    stream = np.random.default_rng(seed)
    x = pd.DataFrame(
        {
            "size": stream.normal(size=n),
            "kind": pd.Categorical(stream.choice(["a", "b", "c"], n)),
            "flag": stream.random(n) < 0.5,
        }
    )
    y = np.where((x["kind"] == "a") ^ (x["size"] > 0.5), "yes", "no")
    x.loc[::10, "size"] = np.nan
    x.loc[1::15, "kind"] = None
    return x, y


@pytest.fixture(scope="module")
def fitted():
    return MarginClassifier("arcgrad", epochs=30, hidden=(8,)).fit(*frame())


def test_a_tuned_classifier_learns_categories(fitted):
    x, y = frame(60, 1)
    assert fitted.score(x, y) > 0.8
    assert fitted.model_.record.inner_accuracy > 70
    assert fitted.model_.record.columns[1].categories == ["a", "b", "c"]
    assert fitted.classes_.tolist() == ["no", "yes"]


def test_unknown_categories_are_those_that_are_missing(fitted):
    x, _ = frame(9, 2)
    unknown, missing = x.astype({"kind": object}), x.astype({"kind": object})
    unknown.loc[2, "kind"], missing.loc[2, "kind"] = "d", None
    np.testing.assert_array_equal(fitted.predict_proba(unknown), fitted.predict_proba(missing))
    with pytest.raises(ValueError, match="expected a DataFrame"):
        fitted.predict(np.zeros((2, 3)))


@pytest.mark.parametrize("labels", [[0, 3], [False, True], ["a", "b"], [0.0, 2.0]])
def test_a_saved_classifier_is_loaded_as_it_was(tmp_path, labels):
    stream = np.random.default_rng(0)
    x = stream.normal(size=(40, 3))
    y = np.array(labels)[(x[:, 0] > 0).astype(int)]
    first = MarginClassifier(tune=False, epochs=20).fit(x, y)
    first.save(tmp_path / "m")
    second = MarginClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(second.predict_proba(x), first.predict_proba(x))
    np.testing.assert_array_equal(second.predict(x), first.predict(x))
    assert second.classes_.dtype.kind == first.classes_.dtype.kind


def test_a_saved_data_frame_model_predicts_a_file(fitted, tmp_path, marginctl):
    fitted.save(tmp_path / "m")
    x, _ = frame(8, 4)
    x.to_csv(tmp_path / "n.csv", index=False)
    document = marginctl("predict", tmp_path / "m", tmp_path / "n.csv", "--json").json
    expected = MarginClassifier.load(tmp_path / "m").predict_proba(x)
    predicted = [one["probabilities"] for one in document["predictions"]]
    np.testing.assert_allclose(predicted, expected, atol=1e-12)


def test_it_works_in_cross_val_score():
    x, y = frame()
    scores = cross_val_score(MarginClassifier(tune=False, epochs=40), x, y, cv=3)
    assert scores.mean() > 0.75


def test_a_wrong_objective_is_named():
    with pytest.raises(RequestError, match="nothing"):
        MarginClassifier("nothing").fit(*frame())


def test_import_marginctl_stays_cheap():
    code = "import sys, marginctl; print({'torch', 'sklearn', 'pandas'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_inner_folds_keep_the_rows_of_a_group_together():
    stream = np.random.default_rng(0)
    groups = np.repeat([f"person {i}" for i in range(30)], 5)
    x = np.repeat(stream.normal(size=(30, 4)), 5, axis=0)
    y = np.repeat(stream.integers(0, 2, 30), 5)  # known by the copies of a row alone
    classifier = MarginClassifier(epochs=40, hidden=(32,))
    alone = classifier.fit(x, y).model_.record.inner_accuracy
    together = classifier.fit(x, y, groups=groups).model_.record.inner_accuracy
    assert alone > 90
    assert together < 80
    with pytest.raises(ValueError, match="groups has 3 entries"):
        classifier.fit(x, y, groups=groups[:3])
    with pytest.raises(ValueError, match="groups has one group"):
        classifier.fit(x, y, groups=np.zeros(len(y)))
