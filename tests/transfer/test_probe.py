"""How the penalty of a probe is chosen, and what its record says."""

import numpy as np
import pytest

from marginctl.recipe.transfer import Probe
from marginctl.transfer.cached_features import SplitFeatures
from marginctl.transfer.probe import FeatureScaling, fit_probe, validation_split


def made(rows, seed=0, classes=3, length=6):
    """Features around the mean of their class."""
    stream = np.random.default_rng(seed)
    means = np.random.default_rng(100).standard_normal((classes, length))
    y = np.arange(rows) % classes
    return (means[y] + stream.standard_normal((rows, length))).astype(np.float32), y


@pytest.mark.parametrize("share", [0.01, 0.2, 0.99])
def test_each_class_is_in_both_parts(share):
    y = np.repeat(np.arange(3), [2, 10, 50])
    fitted, held, notes = validation_split(y, 3, share, 0)
    assert sorted([*fitted, *held]) == list(range(62))
    assert set(y[fitted]) == set(y[held]) == {0, 1, 2}
    assert notes == []
    if share == 0.2:
        assert np.bincount(y[held]).tolist() == [1, 2, 10]
    again, other = (validation_split(y, 3, share, seed)[1] for seed in (0, 1))
    assert again.tolist() == held.tolist()
    assert other.tolist() != held.tolist()


def test_a_class_with_one_image_is_not_validated():
    y = np.array([0, 1, 1, 1, 2, 2])
    fitted, held, (note,) = validation_split(y, 3, 0.3, 0)
    assert 0 in fitted
    assert set(y[held]) == {1, 2}
    assert "1 of 3 classes have fewer than 2 training images" in note


def test_without_validation_images_the_middle_penalty_is_used():
    x, y = made(3)
    both = SplitFeatures(x, made(30, 1)[0])
    found = fit_probe(both, y, made(30)[1], 3, Probe(), 0)
    assert found.record["validation"] == {"n_fit": 3, "n": 0, "l2_penalties": []}
    assert found.record["l2_penalty"] == 1e-3
    assert "l2_penalty 0.001 is the middle one, not chosen" in found.record["notes"][0]


def test_the_record_has_each_penalty_and_a_note_at_the_edge():
    (x, y), (other, test_y) = made(60), made(300, 1)
    probe = Probe(l2_penalties=[1e-1, 10.0, 1.0])
    assert probe.l2_penalties == [10.0, 1.0, 1e-1]
    record = fit_probe(SplitFeatures(x, other), y, test_y, 3, probe, 0).record
    candidates = record["validation"]["l2_penalties"]
    assert [v["l2_penalty"] for v in candidates] == probe.l2_penalties
    assert all(v["converged"] and v["gradient"] <= 1e-6 for v in candidates)
    best = max(candidates, key=lambda v: (v["top1"], -v["nll"]))
    assert record["l2_penalty"] == best["l2_penalty"]
    at_edge = record["l2_penalty"] in (10.0, 1e-1)
    assert any("try values beyond it" in note for note in record["notes"]) == at_edge
    low, high = record["interval"]
    assert low < 100 * record["correct"] / 300 < high


def test_the_test_part_changes_neither_the_choice_nor_the_fit():
    (x, y), (other, test_y) = made(60), made(30, 1)
    one = fit_probe(SplitFeatures(x, other), y, test_y, 3, Probe(), 0)
    two = fit_probe(SplitFeatures(x, 5 * other + 1), y, test_y[::-1].copy(), 3, Probe(), 0)
    assert one.fitted.weight.tolist() == two.fitted.weight.tolist()
    for key in ("l2_penalty", "validation", "fit"):
        assert one.record[key] == two.record[key]


def test_a_validation_part_chooses_and_all_training_images_are_fitted():
    (x, y), (other, test_y), (held_out, val_y) = made(60), made(300, 1), made(90, 2)
    with_part = fit_probe(SplitFeatures(x, other, held_out), y, test_y, 3, Probe(), 0, val_y=val_y)
    validation = with_part.record["validation"]
    assert (validation["n_fit"], validation["n"]) == (60, 90)
    candidates = validation["l2_penalties"]
    best = max(candidates, key=lambda v: (v["top1"], -v["nll"]))
    alone = Probe(l2_penalties=[best["l2_penalty"]])
    one = fit_probe(SplitFeatures(x, other), y, test_y, 3, alone, 0)
    logits = [found.logits - found.logits.mean(1, keepdims=True) for found in (one, with_part)]
    assert logits[0] == pytest.approx(logits[1], abs=1e-3)  # the tolerance of the fit
    validated = fit_probe(SplitFeatures(x, held_out), y, val_y, 3, alone, 0)
    assert best["top1"] == pytest.approx(100 * (validated.logits.argmax(1) == val_y).mean())


def test_features_are_scaled_by_the_training_part_alone():
    a = np.array([[0.0, 5.0, 0.0], [2.0, 5.0, 0.0]])
    b = np.array([[4.0, 6.0, 3.0]])
    scaling = FeatureScaling.fit("standardised", a)
    first, second = scaling(a), scaling(b)
    assert first.tolist() == [[-1, 0, 0], [1, 0, 0]]
    assert second.tolist() == [[3, 1, 3]]  # a constant feature is only shifted
    unit = FeatureScaling.fit("unit", a)
    for row in (unit(a), unit(np.zeros((1, 3)))):
        assert np.linalg.norm(row, axis=1) == pytest.approx([1] * len(row) if row.any() else [0])
    assert FeatureScaling.fit("raw", a)(b).tolist() == b.tolist()


@pytest.mark.parametrize("kind", ["standardised", "raw"])
def test_unscaled_weights_give_the_same_logits(kind):
    (x, y), (other, test_y) = made(60), made(30, 1)
    probe = fit_probe(SplitFeatures(3 * x + 1, other), y, test_y, 3, Probe(features=kind), 0)
    weight, bias = probe.unscaled
    assert other @ weight.T + bias == pytest.approx(probe.logits, abs=1e-9)
