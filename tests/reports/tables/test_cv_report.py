"""Tables of an own comparison, by the metric that is asked for."""

from marginctl.reports.tables.cv_report import own_table
from marginctl.results.compare import compare_folds
from marginctl.results.cv_cells import Grid
from tests.results.factories import cv_result


def measured(dataset, objective, accuracy, log_loss, **fields):
    folds = [[accuracy - 1, accuracy + 1], [accuracy, accuracy]]
    metrics = {
        name: [[log_loss - 0.1, log_loss + 0.1], [log_loss, log_loss]]
        for name in ("balanced_accuracy", "macro_f1", "auroc", "log_loss", "ece")
    }
    return cv_result(
        dataset,
        objective,
        folds,
        metrics=metrics,
        confusion=[[7, 3], [2, 8]],
        class_names=["no", "yes"],
        **fields,
    )


def own(*results, metric):
    names = dict.fromkeys(r.dataset for r in results), dict.fromkeys(r.objective for r in results)
    collector = Grid(*map(list, names), seeds=1, published={}, metric=metric)
    collector.add_all(results)
    comparisons = compare_folds(collector, "soft")
    return own_table(collector, comparisons, [], by_class=True)


def test_several_data_sets_show_the_chosen_metric():
    results = [
        measured(d, o, accuracy, log_loss)
        for d in ("a", "b")
        for o, accuracy, log_loss in (("soft", 70.0, 0.5), ("arcface", 80.0, 0.9))
    ]
    table = own(*results, metric="log_loss")
    assert [cell.text for cell in table.rows[0].cells] == ["0.500 ± 0.082", "0.900 ± 0.082"]
    assert [cell.best for cell in table.rows[0].cells] == [True, False]
    assert table.caption.startswith("Log loss: mean")
    confusions = [t.caption for t in table.details if t.key.endswith("-confusion")]
    assert len(confusions) == 2
    assert all("of soft, test rows" in caption for caption in confusions)


def test_equal_and_different_budgets():
    fixed = own(measured("a", "soft", 70, 0.5), measured("a", "arcface", 71, 0.5), metric="auroc")
    assert fixed.notes[0].startswith("one fixed protocol for all objectives")
    tuned = [measured("a", "soft", 70, 0.5, candidates=11)]
    alike = own(*tuned, measured("a", "arcface", 71, 0.5, candidates=11), metric="auroc")
    assert alike.notes[0].startswith("each network chose from 11 candidates by inner folds")
    unlike = own(*tuned, measured("a", "arcface", 71, 0.5, candidates=3), metric="auroc")
    assert "different numbers of candidates (3 to 11): no significance" in unlike.notes[0]
