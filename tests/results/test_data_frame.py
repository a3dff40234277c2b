"""Results as a data frame: one row for each metric of a network."""

import pytest

from marginctl import load_results
from marginctl.results import data_frame


def test_the_rows_of_a_cross_validation(marginctl, tmp_path):
    arguments = ["uci-cv", "own-data", "--dataset", "iris", "--objective", "soft", "--no-tune"]
    arguments += ["--folds", "3", "--repeats", "2", "--set", "protocol.epochs=2", "--out"]
    document = marginctl(*arguments, tmp_path / "runs", "--workers", "1", "--json").json
    frame = load_results(tmp_path / "runs")
    assert list(frame) == list(data_frame.COLUMNS)
    (cell,) = document["cells"]
    soft = frame[(frame["objective"] == "soft") & (frame["row"] == "iris")]
    for name, value in cell["metrics"].items():
        values = soft[soft["metric"] == name]["value"]
        assert len(values) == 6
        assert values.mean() == pytest.approx(value["mean"])
    assert set(map(tuple, soft[["repeat", "fold"]].to_numpy())) == {
        (repeat, fold) for repeat in range(2) for fold in range(3)
    }


def test_a_corrupt_run_is_a_warning(tmp_path):
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "run.json").write_text("{")
    with pytest.warns(UserWarning, match="run.json"):
        assert load_results(tmp_path).empty
