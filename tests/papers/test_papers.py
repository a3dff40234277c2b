"""Published values."""

import statistics

from marginctl.papers import table
from marginctl.recipe import find, load


def test_table_1_of_arcgrad_adds_up_to_its_printed_averages_and_covers_the_recipe():
    cells = table("arcgrad", "I")
    recipe = load(find("arcgrad/table1"))
    assert set(cells) == {(d, o) for d in recipe.dataset_names for o in recipe.objectives}
    printed = [79.56, 79.34, 80.31, 78.61, 67.89, 82.44, 82.50]
    for objective, average in zip(recipe.objectives, printed, strict=True):
        means = [cells[d, objective].mean for d in recipe.dataset_names]
        assert abs(statistics.fmean(means) - average) < 0.011


def test_what_we_do_not_hold_is_empty():
    assert table(None, None) == {}
    assert table("arcgrad", "XX") == {}
    assert table("nobody", "I") == {}
