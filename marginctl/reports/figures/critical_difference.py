"""The critical-difference diagram: average ranks, and which do not differ significantly."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from marginctl.errors import RequestError
from marginctl.reports.figures.style import save, styled
from marginctl.results.compare import Comparisons
from marginctl.results.statistics import critical_difference

RANK_HEIGHT = 0.32  # inches per method


def cliques(ranks: Mapping[str, float], difference: float) -> list[tuple[float, float]]:
    """Return (lowest, highest) of the largest groups of ranks that do not differ significantly.

    A group has two methods or more, with average ranks at most `difference` apart; it has the same
    rank twice for methods that share it and differ from all others.
    """
    values = sorted(ranks.values())
    spans: list[tuple[float, float]] = []
    for i, low in enumerate(values[:-1]):
        high = max(v for v in values[i:] if v - low <= difference)
        several = high > low or values[i + 1] == low
        if several and not any(a <= low and high <= b for a, b in spans):
            spans.append((low, high))
    return spans


@styled()
def draw_ranks(compared: Comparisons, path: Path) -> None:
    """Write the diagram of average ranks over the complete data sets, with Nemenyi's difference.

    Raises:
        RequestError: fewer than three methods or five data sets, or a file that cannot be written.
    """
    methods, datasets = len(compared.ranks), compared.datasets
    if methods < 3 or datasets < 5:
        raise RequestError(
            f"--figure: {methods} methods on {datasets} complete data sets: expected at least 3 on "
            "5"
        )
    difference = critical_difference(methods, datasets)
    ordered = sorted(compared.ranks.items(), key=lambda item: (item[1], item[0]))
    groups = cliques(compared.ranks, difference)
    bars = 0.25 * len(groups) + 0.3
    rows = (methods + 1) // 2
    figure = Figure(figsize=(8.5, 1.6 + bars + RANK_HEIGHT * rows), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(1, methods), ylim=(bars + RANK_HEIGHT * rows, -1.05))
    axes.axis("off")
    axes.hlines(0, 1, methods, color="black", linewidth=1)
    for tick in range(1, methods + 1):
        axes.vlines(tick, -0.06, 0, color="black", linewidth=1)
        axes.text(tick, -0.1, str(tick), ha="center", va="bottom", fontsize=9)
    axes.text(methods, -0.42, "average rank (1 = best)", ha="right", va="bottom", fontsize=9)
    axes.hlines(-0.78, 1, 1 + difference, color="black", linewidth=2)
    text = f"critical difference {difference:.2f} (Nemenyi, p = 0.05, {datasets} data sets)"
    axes.text(1, -0.85, text, ha="left", va="bottom", fontsize=9)
    for i, (low, high) in enumerate(groups):
        axes.hlines(0.2 + 0.25 * i, low - 0.03, high + 0.03, color="black", linewidth=3)
    for i, (name, rank) in enumerate(ordered):
        left = i < rows
        height = bars + RANK_HEIGHT * (i if left else methods - 1 - i) + 0.1
        edge = 1 if left else methods
        axes.plot([rank, rank, edge], [0, height, height], color="0.45", linewidth=0.8)
        text = f"{name}  {rank:.2f}" if left else f"{rank:.2f}  {name}"
        x, side = (edge - 0.05, "right") if left else (edge + 0.05, "left")
        axes.text(x, height, text, ha=side, va="center", fontsize=9)
    save(figure, path)
