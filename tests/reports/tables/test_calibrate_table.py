"""The tables of `calibrate`, of numbers that are set here."""

import csv
import io

import pytest

from marginctl.calibration.scores import METRICS
from marginctl.reports.formats.registry import FORMATS
from marginctl.reports.tables.calibrate_table import calibrate_report


def numbers(value, std=0.01, **others):
    values = dict.fromkeys(METRICS, value) | others
    absent = {k: "no reason" for k, v in values.items() if v is None}
    return values | {
        "std": {k: None if v is None or std is None else std for k, v in values.items()},
        "first": values,
        "interval": {k: [v - 0.1, v + 0.1] for k, v in values.items() if v is not None},
        "reasons": absent,
        "changed": 0.0,
    }


def document(**others):
    def entry(name, after, **more):
        return {
            "method": name,
            "converged": True,
            "note": None,
            "fits": [{"converged": True}, {"converged": True}],
            "before": numbers(0.3),
            "after": after,
        } | more

    heat = [{"temperature": 2.0, "converged": True}, {"temperature": 1.5, "converged": False}]
    return {
        "input": "a.npz",
        "n": 40,
        "classes": 3,
        "values": "logits",
        "bins": 15,
        "convention": "(lo, hi]",
        "split": {"repeats": 2, "calibration": None, "fitted_on": 20, "measured_on": 20},
        "bootstrap": {"n_bootstrap": 100},
        "methods": [
            entry("temperature", numbers(0.2), fits=heat, converged=False, note="at bound: why"),
            entry("isotonic", numbers(0.25, nll=None, brier=None)),
        ],
        "skipped": [{"method": "matrix", "reason": "too many"}],
        "notes": ["a note"],
    } | others


def test_a_row_before_and_one_a_method_with_the_best_marked():
    (table,) = calibrate_report(document()).tables
    assert [row.label for row in table.rows] == ["none", "temperature", "isotonic"]
    accuracy, ece, *_, nll, brier = zip(*(row.cells for row in table.rows), strict=True)
    assert [e.text for e in accuracy] == ["30.00 ± 1.00", "20.00 ± 1.00", "25.00 ± 1.00"]
    assert [e.best for e in accuracy] == [True, False, False]
    assert [e.best for e in ece] == [False, True, False]
    assert [e.text for e in nll] == ["0.3000 ± 0.0100", "0.2000 ± 0.0100", "-"]
    assert [e.best for e in brier] == [False, True, False]
    assert table.notes == (
        "temperature: T = 2.0000, 1.5000 to 2.0000 over the splits",
        "temperature: not converged in 1 of 2 splits: at bound: why",
        "isotonic: no NLL, Brier: no reason",
        "matrix: skipped: too many",
        "a note",
    )
    (intervals,) = table.details
    assert intervals.caption.startswith(
        "95 % bootstrap intervals of the first split, 100 bootstrap samples; "
    )
    assert intervals.rows[0].label == "none"
    assert intervals.rows[0].cells[0].text == "20.00 to 40.00"
    assert [cell.text for cell in intervals.rows[2].cells[-2:]] == ["-", "-"]


def test_one_split_and_no_draws():
    one = {"repeats": 1, "calibration": "b.npz", "fitted_on": 9, "measured_on": 40}
    (table,) = calibrate_report(document(split=one, bootstrap={"n_bootstrap": 0})).tables
    assert table.title.endswith("fitted on 9 of b.npz, measured on 40")
    assert table.details == ()
    assert table.caption.endswith("Measured on all samples of INPUT.")
    one["calibration"] = None
    (table,) = calibrate_report(document(split=one)).tables
    assert table.caption.endswith("One random stratified split.")


def test_csv_has_every_number():
    text = FORMATS["csv"].load()(calibrate_report(document()), None)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 2 * 2 * len(METRICS)
    found = {(r["method"], r["part"], r["metric"]): r for r in rows}
    assert float(found["temperature", "after", "ece"]["mean"]) == 0.2
    assert float(found["temperature", "before", "ece"]["low"]) == pytest.approx(0.2)
    absent = found["isotonic", "after", "nll"]
    assert (absent["mean"], absent["low"], absent["reason"]) == ("", "", "no reason")


@pytest.mark.parametrize("report_format", ["table", "markdown"])
def test_printed(report_format):
    out = FORMATS[report_format].load()(calibrate_report(document()), None)
    assert "a.npz: 40 samples of 3 classes, logits; fitted on 20, measured on 20" in out
    assert "adaptive ECE %" in out
    assert out.count("isotonic") == 3
