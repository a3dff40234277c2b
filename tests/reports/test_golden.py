"""A report in every text format, to the letter: of runs whose numbers this file sets.

`python -m tests.reports.test_golden` writes the files anew; read the difference before it is
committed.
"""

import contextlib
import io
import tempfile
from pathlib import Path

import pytest

from marginctl.cli import run as run_command
from marginctl.experiments.tasks import load_any_recipe
from marginctl.recipe.load import find_recipe
from tests.reports.stores import another, change_result, change_run, make, trial

GOLDEN = Path(__file__).with_name("golden")
FORMATS = {"table": "txt", "markdown": "md", "latex": "tex", "csv": "csv", "json": "json"}
CALIBRATION = {"ece": 0.0123, "mce": 0.31}


def store_in(folder: Path) -> Path:
    """Two data sets of cross-validation, two objectives on digits, and a published cell's runs."""
    with contextlib.redirect_stdout(io.StringIO()):
        store = make(folder / "store")
    soft = trial(store, "digits-mlp-soft")
    folds = [[90.0, 92.0, 94.0], [91.0, 95.0, 96.0]]
    change_result(
        trial(store, "iris-soft"), accuracies=folds, collapsed=[0], timing={"seconds": 1.5}
    )
    better = [[accuracy + 2 for accuracy in repeat] for repeat in folds]
    change_result(
        trial(store, "iris-arcgrad"), accuracies=better, collapsed=[], timing={"seconds": 2.5}
    )
    for start, top1 in (("digits-mlp-soft", 90.0), ("digits-mlp-cosine", 92.5)):
        own = trial(store, start)
        for seed, add in ((0, 0.0), (1, 1.25)):
            made = own if seed == 0 else another(own, own.parent / f"{own.name[:-4]}0001", seed=1)
            train_result(made, top1 + add)
    of_paper = another(soft, store / "paper" / "t2-0")
    recipe = load_any_recipe(find_recipe("large-margin/table2")).model_dump(exclude={"about"})
    for seed, top1 in ((0, 71.5), (1, 71.25)):
        made = of_paper if seed == 0 else another(of_paper, of_paper.with_name("t2-1"), seed=1)
        same = {"objective": "soft:bias=true"}
        change_run(made, recipe={"name": "large-margin/table2", **recipe}, **same)
        change_result(made, row="cifar-100, layer13", data="cifar-100", **same)
        train_result(made, top1)
    return store


def train_result(folder: Path, top1: float) -> None:
    epoch = {"epoch": 1, "top1": top1, "nll": 0.25, "n": 360, "collapsed": False}
    change_result(
        folder,
        last=epoch,
        best=epoch,
        collapsed=False,
        evaluation={"brier": 0.125, "calibration": CALIBRATION, "angles": None, "reasons": {}},
        timing={"seconds": 3.0, "epoch_seconds": 0.5},
    )


def printed(store: Path, name: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    # the document lists every missing cell: of one paper it can still be read
    only = ["--paper", "large-margin"] if name == "json" else []
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert run_command(["report", str(store), "--format", name, *only]) == 0
    assert err.getvalue() == ""
    return out.getvalue()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return store_in(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("name", FORMATS)
def test_it_is_what_it_was(store, name):
    assert printed(store, name) == (GOLDEN / f"report.{FORMATS[name]}").read_text("utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made = store_in(Path(folder))
        for name, ending in FORMATS.items():
            (GOLDEN / f"report.{ending}").write_text(printed(made, name), "utf-8")
