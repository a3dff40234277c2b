"""Lines about what was read."""

from marginctl.calibration.read_outputs import OutputsSummary
from marginctl.reports.data_summary import outputs_lines


def test_outputs():
    summary = OutputsSummary(12, 3, "logits", ["1 of 3 classes have no sample: 2"])
    assert list(outputs_lines("o.csv", summary)) == [
        "o.csv: 12 rows of logits, 3 classes",
        "o.csv: 1 of 3 classes have no sample: 2",
    ]
