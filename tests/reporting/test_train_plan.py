"""Times in words."""

import pytest

from marginctl.reporting.train_plan import duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *((0.04, "0.0 s"), (4.25, "4.2 s"), (9.6, "10 s"), (59.4, "59 s"), (59.6, "1 min")),
        *(
            (3569, "59 min"),
            (3571, "1 h 0 min"),
            (11520, "3 h 12 min"),
            (47.9 * 3600, "47 h 54 min"),
        ),
        *((48 * 3600, "2 d 0 h"), (127 * 3600, "5 d 7 h")),
    ],
)
def test_durations(seconds, said):
    assert duration(seconds) == said
