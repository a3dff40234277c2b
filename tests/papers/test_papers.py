"""Papers and tables by their names."""

import statistics

import pytest

from marginctl.errors import RequestError
from marginctl.papers import papers, published_means, published_table
from marginctl.recipe.load import find_recipe, load_recipe
from marginctl.recipe.uci_cv import UciCvRecipe


def test_table_1_of_arcgrad_adds_up_to_its_printed_averages_and_covers_the_recipe():
    cells = published_means("arcgrad", "I")
    recipe = load_recipe(find_recipe("arcgrad/table1"), UciCvRecipe)
    objectives = [str(objective) for objective in recipe.objectives]
    assert set(cells) == {(d, o) for d in recipe.dataset_names for o in objectives}
    printed = [79.56, 79.34, 80.31, 78.61, 67.89, 82.44, 82.50]
    for objective, average in zip(objectives, printed, strict=True):
        means = [cells[d, objective].mean for d in recipe.dataset_names]
        assert abs(statistics.fmean(means) - average) < 0.011


def test_table_1_of_arcgrad_has_its_printed_wins():
    """Iris is a tie of M-Soft and ArcFace, which the paper gives to M-Soft alone."""
    found = published_table("arcgrad", "I")
    wins = dict.fromkeys(found.columns, 0)
    for row in found.rows:
        wins[max(found.columns, key=lambda c: found.cells[row, c].mean)] += 1
    assert list(wins.values()) == [1, 1, 2, 1, 2, 1, 7]


@pytest.mark.parametrize(
    ("paper", "number"),
    [
        *((None, None), ("arcgrad", "XX"), ("nobody", "I"), ("gradient-decay", "1")),
        # no cells of cross-validations
        *(("arcgrad", None), ("arcgrad", "II"), ("arcgrad", "IV"), ("large-margin", "2")),
    ],
)
def test_what_is_no_table_of_cross_validations_is_empty(paper, number):
    assert published_means(paper, number) == {}


def test_papers_come_by_their_names():
    assert [p.name for p in papers()] == [
        "arcgrad",
        "gradient-decay",
        "large-margin",
        "temperature",
    ]
    assert list(papers()[0].tables) == ["I", "II", "III", "IV", "V", "VI", "VII"]


@pytest.mark.parametrize(
    ("paper", "number", "message"),
    [
        ("arcgrd", "I", "unknown paper 'arcgrd': expected one of arcgrad, .* mean 'arcgrad'"),
        ("arcgrad", "VIII", "unknown table 'VIII' of arcgrad: expected one of I, II, .* 'VII'"),
        ("temperature", "12", r"unknown table '12' of temperature: .* Did you mean '12[abc]'\?"),
        ("gradient-decay", "1", r"expected one of none \(it has claims only\)"),
    ],
)
def test_an_unknown_paper_or_table(paper, number, message):
    with pytest.raises(RequestError, match=message) as error:
        published_table(paper, number)
    assert len(error.value.lines) == 1
