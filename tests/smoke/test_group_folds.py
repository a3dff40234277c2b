"""`uci-cv --groups`: a feature that identifies the person helps only without it."""

import numpy as np
import pytest

pytestmark = pytest.mark.smoke


@pytest.fixture
def patients(tmp_path):
    """12 patients of 30 rows; each has a class, and a feature that is its own."""
    stream = np.random.default_rng(0)
    lines = ["patient,mark,noise,outcome"]
    for patient, mark in enumerate(stream.permutation(12)):
        outcome = ["ill", "well"][mark % 2]
        lines += [f"p{patient},{mark},{stream.normal():.4f},{outcome}" for _ in range(30)]
    path = tmp_path / "patients.csv"
    path.write_text("\n".join(lines))
    return path


def test_groups_end_a_leak(marginctl, patients, tmp_path):
    arguments = [
        *("uci-cv", "--csv", patients, "--target", "outcome", "--objective", "soft"),
        *("--set", "baselines=[gradient-boosting]", "--repeats", "1", "--no-tune"),
        *("--set", "protocol.epochs=2", "--workers", "1", "--out", tmp_path / "runs", "--json"),
    ]
    apart = marginctl(*arguments)
    assert "--groups patient keeps their rows in one fold" in apart.err
    together = marginctl(*arguments, "--groups", "patient")
    assert "12 groups of rows by column 'patient'" in together.err
    (leaking,), (honest,) = apart.json["baselines"], together.json["baselines"]
    assert leaking["mean"] > 95
    assert honest["mean"] < 75


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--groups", "patien"], "no column 'patien' for --groups"),
        (["--groups", "outcome"], "--groups outcome: is the target"),
        (["--groups", "patient", "--folds", "11"], "12 groups, expected at least 14"),
    ],
)
def test_wrong_groups_are_one_line(marginctl, patients, tmp_path, options, words):
    ran = marginctl(
        *("uci-cv", "--csv", patients, "--target", "outcome", "--out", tmp_path, *options)
    )
    assert ran.status == 2
    assert words in ran.err.splitlines()[-1]


def test_groups_without_a_table(marginctl, tmp_path):
    ran = marginctl("uci-cv", "--dataset", "iris", "--groups", "id", "--out", tmp_path)
    assert (ran.status, "is a column of --csv" in ran.err) == (2, True)
