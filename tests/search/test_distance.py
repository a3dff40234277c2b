"""The distance between two tables."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from marginctl.papers import PublishedMean, published_means
from marginctl.search.distance import distance, row_medians

TABLE = published_means("arcgrad", "I")
# AdaCos with two classes: untrained networks, in which nothing of the methods shows.
UNTRAINED = {
    (d, "adacos")
    for d in (
        *("pima-indians-diabetes", "breast-cancer-wisconsin-prognostic", "wholesale-customers"),
        *("banknote-authentication", "congressional-voting-records", "haberman"),
    )
}


def test_the_distance_of_a_table_to_itself_is_zero():
    found = distance(TABLE, TABLE)
    assert found.cells == 105
    assert found.mean_absolute == found.rms == found.mean_absolute_z == 0
    assert found.effects_mean_absolute == found.std_mean_absolute == 0
    assert found.rank_correlation == pytest.approx(1)
    assert found.best_agree == 15
    assert found.noise == pytest.approx(0.967, abs=1e-3)


def test_row_medians_have_no_effects():
    """1.86 points without the six untrained cells: that of all methods equal, too."""
    trained = {place: cell for place, cell in TABLE.items() if place not in UNTRAINED}
    found = distance(row_medians(trained), trained)
    assert found.cells == 99
    assert found.mean_absolute == pytest.approx(1.862, abs=1e-3)
    assert found.effects_mean_absolute == pytest.approx(found.mean_absolute)
    assert found.rank_correlation is None  # no method is before another


def test_every_number_by_hand():
    published = {
        ("a", "x"): PublishedMean(80.0, 10.0, 100),
        ("a", "y"): PublishedMean(84.0, 10.0, 100),
        ("a", "z"): PublishedMean(90.0, 5.0, 100),
        ("b", "x"): PublishedMean(50.0, 0.0, 100),
    }
    ours = {
        ("a", "x"): PublishedMean(82.0, 10.0, 25),
        ("a", "y"): PublishedMean(81.0, 8.0, 25),
        ("a", "z"): PublishedMean(90.0, 5.0, 25),
        ("b", "x"): PublishedMean(53.0, 0.0, 25),
        ("c", "x"): PublishedMean(1.0, 1.0, 25),  # not in the paper
    }
    found = distance(ours, published)
    assert found.cells == 4
    assert found.mean_absolute == pytest.approx((2 + 3 + 0 + 3) / 4)
    assert found.rms == pytest.approx(math.sqrt((4 + 9 + 0 + 9) / 4))
    z = [2 / math.sqrt(4 + 1), 3 / math.sqrt(64 / 25 + 1), 0]
    assert found.mean_absolute_z == pytest.approx(sum(z) / 3)
    # medians 84 and 82: effects -4, 0, 6 and 0, -1, 8
    assert found.effects_mean_absolute == pytest.approx((4 + 1 + 2 + 0) / 4)
    assert found.std_mean_absolute == pytest.approx(2 / 4)
    want = spearmanr([82, 81, 90], [80, 84, 90]).statistic
    assert found.rank_correlation == pytest.approx(want)
    assert found.best_agree == 2
    only = distance(ours, published, ["b"])
    assert only.mean_absolute == 3
    with pytest.raises(ValueError, match="no cell"):
        distance(ours, published, ["c"])


def test_noise_is_the_difference_of_two_runs():
    """Against a simulation."""
    rng = np.random.default_rng(0)
    a, b = (80 + 8 / math.sqrt(100) * rng.standard_normal(200_000) for _ in range(2))
    cell = {("a", "x"): PublishedMean(80.0, 8.0, 100)}
    assert distance(cell, cell).noise == pytest.approx(np.abs(a - b).mean(), rel=0.01)
