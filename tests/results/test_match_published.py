"""Which runs fill which cells of the published tables."""

import pytest

from marginctl.experiments.tasks import load_any_recipe
from marginctl.papers import papers, published_table
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.recipe.load import find_recipe
from marginctl.recipe.transfer import TransferRecipe
from marginctl.results.collect import Collected, CVRuns, TrainingRuns
from marginctl.results.match_published import (
    RESULT_FACTS,
    expand_grid,
    facts,
    filled_cells,
    is_selected,
    training_settings,
)
from tests.results.factories import (
    cv_result,
    cv_run,
    training_result,
    training_run,
    transfer_result,
)

TABLES = [t for paper in papers() for t in paper.tables.values() if t.recipes]


def trials(name):
    """The facts of every trial that a shipped recipe expands to, seeds aside."""
    return [
        facts(made) | dict(zip(RESULT_FACTS, (str(objective), dataset, source_row), strict=True))
        for made in expand_grid(load_any_recipe(find_recipe(name)))
        for dataset in ([None] if isinstance(made, ImageRecipe) else made.dataset_names)
        for objective, source_row in networks_of(made)
    ]


def networks_of(recipe):
    """The objectives, and of transfer the source rows, by which a report tells runs apart."""
    if not isinstance(recipe, TransferRecipe):
        return [(objective, None) for objective in recipe.objectives]
    of_starts = [
        load_any_recipe(find_recipe(start.removeprefix("runs/"))) for start in recipe.source_models
    ]
    return [
        (objective, made.row_name(changed))
        for start in of_starts
        for changed, made in start.settings()
        for objective in made.objectives
    ]


@pytest.mark.parametrize("table", TABLES, ids=lambda t: f"{t.paper} {t.number}")
def test_every_cell_that_a_recipe_fills_has_its_trial(table):
    """Else a name is wrong: of a data set, a model, an objective or a key."""
    known = [f for name in table.recipes for f in trials(name)]
    without = {
        place
        for place, cell in table.cells.items()
        if cell is not None
        and table.quantities[place].field
        and not any(is_selected(table.selections[place], f) for f in known)
    }
    assert without == set()
    for name in table.recipes:
        selected = [table.selections[p] for p in table.cells if table.quantities[p].field]
        assert any(is_selected(where, f) for where in selected for f in trials(name)), name


@pytest.mark.parametrize("table", TABLES, ids=lambda t: f"{t.paper} {t.number}")
def test_no_trial_fills_two_cells_with_one_number(table):
    """Else a `where` says too little."""
    for name in table.recipes:
        for known in trials(name):
            fields = [
                table.quantities[place].field
                for place in table.cells
                if table.quantities[place].field and is_selected(table.selections[place], known)
            ]
            assert len(set(fields)) == len(fields)


def test_a_recipe_of_a_table_says_so():
    for table in TABLES:
        for name in table.recipes:
            recipe = load_any_recipe(find_recipe(name))
            assert recipe.paper == table.paper
            other = {"port-2": "2", "10": "2"}.get(table.number)  # Table 10 has a row from scratch
            assert recipe.table in (table.number, other)


def test_a_transfer_fills_the_row_of_its_source_model():
    table = published_table("temperature", "15")
    recipe = expand_grid(load_any_recipe(find_recipe("temperature/table15")))[0]
    row = "imagenet, torchvision/resnet50"
    runs = [
        training_run(
            row,
            transfer_result(
                objective="cosine:scale=10",
                source_model={"objective": "cosine:scale=10", "row": row + blocks},
                row=row,
                last={"epoch": 1, "top1": top1, "top5": 99.0},
            ),
            recipe,
        )
        for blocks, top1 in (("", 47.0), (", blocks=3-4", 51.0))
    ]
    assert filled_cells(table, runs) == {
        ("linear probe, kappa = 10, from scratch", "CUB-200"): [47.0],
        ("linear probe, kappa = 10, blocks 3-4", "CUB-200"): [51.0],
    }


def trained(recipe, objective, top1, setting=0, seed=0, **changes):
    """Return a finished run of one setting of a shipped recipe, as `collect` returns it."""
    original = expand_grid(load_any_recipe(find_recipe(recipe)))[setting]
    document = original.model_dump(exclude={"about"})
    for key, value in changes.items():
        section, _, inner = key.partition("__")
        if inner:
            document[section][inner] = value
        else:
            document[section] = value
    epoch = top1 and {"epoch": 1, "top1": top1, "top5": min(100.0, top1 + 20)}
    best = epoch and {**epoch, "top1": min(100.0, top1 + 1)}
    result = training_result(objective=objective, seed=seed, row="", last=epoch, best=best)
    return training_run("run", result, type(original).model_validate(document))


def test_errors_are_100_less_the_accuracy_and_the_port_has_the_best_epoch():
    runs = [
        *(
            trained("large-margin/table2", "soft:bias=true", t, seed=s)
            for s, t in enumerate((71, 72))
        ),
        trained("large-margin/table2", "lm-softmax:bias=true", 73.5),
        trained("large-margin/table2", "super-symmetry:bias=true", None),  # diverged
    ]
    assert filled_cells(published_table("large-margin", "2"), runs) == {
        ("Softmax loss", "Error rate"): [29, 28],
        ("Ours", "Error rate"): [26.5],
    }
    assert filled_cells(published_table("large-margin", "port-2"), runs) == {
        ("Softmax loss", "Error rate"): [28, 27],
        ("Ours", "Error rate"): [25.5],
    }
    assert filled_cells(published_table("large-margin", "1"), runs) == {("D(q)", "0.3"): [26.5]}
    assert filled_cells(published_table("arcgrad", "V"), runs) == {}


def test_columns_may_be_of_other_fields():
    run = trained("arcgrad/table5", "arcgrad", 75.0)
    assert filled_cells(published_table("arcgrad", "V"), [run]) == {
        ("ArcGrad", "Top-1"): [75.0],
        ("ArcGrad", "Top-5"): [95.0],
    }


def test_a_setting_of_a_grid_fills_its_cell():
    runs = [trained("arcgrad/table7", "soft", 70.0 + i, setting=i) for i in range(4)]
    cells = filled_cells(published_table("arcgrad", "VII"), runs)
    assert cells == {(e, "Soft"): [70.0 + i] for i, e in enumerate(("10", "20", "40", "90"))}


def test_angles_become_radians():
    run = trained("arcgrad/table6", "center", 70.0)
    run.result.evaluation = {"angles": {"w_inter": 90.0, "wc_intra": 18.0}}
    cells = filled_cells(published_table("arcgrad", "VI"), [run])
    assert cells == {
        ("W-Inter", "Center"): [pytest.approx(1.5708, abs=1e-4)],
        ("Intra", "Center"): [pytest.approx(0.3142, abs=1e-4)],
    }


@pytest.mark.parametrize(
    ("changes", "comparable"),
    [
        ({}, True),
        ({"train__compile": True}, True),
        ({"train__epochs": 49}, False),
        ({"data__subset_fraction": 0.5}, False),
        ({"optim__weight_decay": 5e-4}, False),
    ],
)
def test_only_a_run_of_the_same_training_is_comparable(changes, comparable):
    run = trained("large-margin/table2", "soft:bias=true", 71.0, **changes)
    assert bool(filled_cells(published_table("large-margin", "2"), [run])) is comparable


def crossvalidated(recipe, dataset, objective, accuracies, **protocol):
    original = load_any_recipe(find_recipe(recipe))
    document = original.model_dump(exclude={"about"})
    document["protocol"] |= protocol
    result = cv_result(dataset, objective, accuracies)
    return cv_run("run", result, type(original).model_validate(document), recipe)


def test_fold_accuracies_fill_a_cell_and_tuned_ones_do_not():
    table = published_table("arcgrad", "I")
    fair = crossvalidated("arcgrad/table1-fair", "iris", "soft", [[90.0, 91.0]])
    near = crossvalidated("arcgrad/table1", "iris", "soft", [[80.0, 81.0], [82.0, 83.0]])
    other = crossvalidated("arcgrad/table1", "iris", "adacos", [[70.0, 71.0]], epochs=11)
    assert filled_cells(table, [fair, other]) == {}
    assert filled_cells(table, [fair, near]) == {("Iris", "Soft"): [80.0, 81.0, 82.0, 83.0]}


def test_an_empty_where_selects_nothing():
    made = expand_grid(load_any_recipe(find_recipe("mnist")))[0]
    known = facts(made) | {"objective": "soft"}
    assert not is_selected({}, known)
    assert is_selected({"data.name": "mnist", "objective": "soft"}, known)
    assert not is_selected({"data.nme": "mnist"}, known)
    assert "compile" not in training_settings(made)["train"]


def test_all_runs_of_a_collection():
    a, b = trained("mnist", "soft", 99.0), trained("mnist", "arcgrad", 98.0)
    collected = Collected(
        [CVRuns("x", None, None, {}, runs={("d", "soft", 0): a})],
        [TrainingRuns("y", None, None, {}, runs={("r", "arcgrad", 0): b})],
    )
    assert collected.runs == [a, b]
