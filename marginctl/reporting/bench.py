"""The ratios of a benchmark as a table."""

import statistics
from typing import Any

from marginctl.reporting.listing import print_rows


def print_ratios(document: dict[str, Any]) -> None:
    """Prints how many times longer each other side takes: median of the rounds, and the range."""
    rows = []
    for row in document["datasets"]:
        for side, ratios in row["ratios"].items():
            rows.append(
                {
                    "data set": row["dataset"],
                    "against": side,
                    "ratio": f"{statistics.median(ratios):.1f}",
                    "range": f"{min(ratios):.1f} to {max(ratios):.1f}",
                    "rounds": len(ratios),
                }
            )
    for side, ratio in document["geometric_mean_ratio"].items():
        rows.append(
            {
                "data set": "geometric mean",
                "against": side,
                "ratio": f"{ratio:.1f}",
                "range": None,
                "rounds": None,
            }
        )
    print_rows(rows, ["data set", "against", "ratio", "range", "rounds"])
