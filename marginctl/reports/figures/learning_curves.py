"""Curves by epoch: loss and accuracy, mean bias, sample difficulty, input-gradient norm."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from marginctl.metrics.registry import lookup
from marginctl.reports.figures.layout import compose, group_blocks, objective_indices, row_block
from marginctl.reports.figures.seed_groups import (
    Omissions,
    SeedGroup,
    SeedTable,
    Series,
    available,
    by_row,
    spread,
    spread_text,
)
from marginctl.reports.figures.style import legend_text, line_style

PANEL = (4.6, 2.7)  # inches
DIFFICULTY_PANEL = (3.0, 2.3)  # inches
DIFFICULTY_COLUMNS = 4
DIFFICULTY_LABELS = {"confidence": "mean confidence", "gradient_share": "fraction of the gradient"}

_DIFFICULTY = ("sample_difficulty", "groups")


def learning_curves(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Draw training loss and top-1 by epoch, with the error on the right-hand axis.

    The accuracy is that of the test images; with a validation part, which alone is evaluated in
    every epoch, that of the validation images.
    """
    runs = [run for group in table.groups for run in group.runs]
    validated = bool(runs) and all(run.training_result.validation is not None for run in runs)
    part, images = ("val", "validation") if validated else ("test", "test")
    caption = (
        "Losses with different margins, scales or regularizers are not comparable; the accuracy is "
        f"that of the {images} images."
    )
    quantities = {"training loss (nats)": ("train", "loss"), f"{images} top-1 (%)": (part, "top1")}
    figure = _by_epoch(table, omissions, quantities, caption)

    def complement(percent: Any) -> Any:
        return 100 - percent

    for panel in figure.axes if figure else ():
        if "top-1" in panel.get_ylabel():
            right = panel.secondary_yaxis("right", functions=(complement, complement))
            right.set_ylabel(f"{images} error (%)")
    return figure


def mean_bias(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Draw the mean bias rho of the test images by epoch (Large Margin, eq. 7 and Fig. 3)."""
    caption = (
        "rho: the mean over the test images of ln sum exp(f_c - max f_c) over the non-target "
        "classes: from 0 to ln(C - 1), where these logits are equal (Large Margin in Softmax, "
        "eq. 7)."
    )
    quantities = {"mean bias rho (nats)": ("objective", "rho")}
    return _by_epoch(table, omissions, quantities, caption)


def input_gradient_norm(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Draw the mean input-gradient norm of the loss by epoch: a local Lipschitz estimate."""
    caption = (
        "The Euclidean norm of the gradient of an image's loss, with the margin, with respect to "
        "the normalised image, in evaluation mode: the mean over the same training images."
    )
    quantities = {"mean |dJ(x)/dx| (nats)": ("input_gradient_norm", "mean")}
    return _by_epoch(table, omissions, quantities, caption)


def sample_difficulty(table: SeedTable, omissions: Omissions) -> Figure | None:
    """Draw confidence and gradient fraction of training images by epoch and difficulty group."""
    reason = "no sample difficulty by epoch: train.reference_run records it"
    by_group = available(table.groups, _difficulty_series, omissions, reason)
    counts = [len(one.values) for by_number in by_group.values() for one in by_number.values()]
    caption = (
        f"Mean over the seeds; {spread_text('band', counts)}. Training images in groups of equal "
        "size by their loss under a trained reference network. Confidence: the probability of the "
        "true class, without margin. Fraction of the gradient: the sum over the group's images of "
        "|dJ/dx| with respect to the feature x, with the margin, divided by the sum over all."
    )
    heights = (DIFFICULTY_PANEL[1],) * 2
    blocks = group_blocks(by_group, _draw_difficulty, heights, DIFFICULTY_COLUMNS, sharey="row")
    return compose(table.title, caption, blocks, DIFFICULTY_PANEL[0], omissions)


def _by_epoch(
    table: SeedTable, omissions: Omissions, quantities: Mapping[str, tuple[str, ...]], caption: str
) -> Figure | None:
    """Return a block per row, with a panel per quantity and a line per objective.

    Quantities have an axis label and a path in a record of metrics.jsonl.
    """
    all_series: dict[tuple[SeedGroup, str], Series] = {}
    for group in table.groups:
        for label, path in quantities.items():
            series = group.series(*path)
            if series is None:
                omissions.add(f"no {'.'.join(path)} by epoch", group)
            else:
                all_series[group, label] = series
    for label in quantities:
        lengths = [len(series.epochs) for (_, name), series in all_series.items() if name == label]
        if lengths and max(lengths) < 2:
            omissions.add(f"{label}: one epoch: no curve")
            all_series = {key: series for key, series in all_series.items() if key[1] != label}
    shown = [label for label in quantities if any(name == label for _, name in all_series)]
    rows = {group.row for group, _ in all_series}
    indices = objective_indices(table.groups)

    def draw(groups: Sequence[SeedGroup], panels: Any) -> None:
        for panel, label in zip(panels[0], shown, strict=True):
            for group in groups:
                if (group, label) in all_series:
                    name = legend_text(group.objective)
                    draw_series(panel, all_series[group, label], name, indices[group.objective])
            set_epoch_axis(panel)
            panel.set_ylabel(label)

    shape = (1, len(shown))
    drawn = by_row(group for group in table.groups if group.row in rows)
    blocks = [row_block(row, groups, shape, draw, PANEL[1]) for row, groups in drawn.items()]
    band = spread_text("band", (len(series.values) for series in all_series.values()))
    caption = f"Mean over the seeds; {band}. {caption}"
    return compose(table.title, caption, blocks, PANEL[0], omissions)


def draw_series(panel: Any, series: Series, label: str, index: int) -> None:
    """Draw a line of the mean over the seeds, and a band around it where there are several."""
    drawn = spread(series.values)
    style = line_style(index, len(series.epochs))
    panel.plot(series.epochs, drawn.mean, label=label, **style)
    if len(series.values) > 1:
        panel.fill_between(
            series.epochs, drawn.low, drawn.high, color=style["color"], alpha=0.15, linewidth=0
        )


def set_epoch_axis(panel: Any) -> None:
    """Label the horizontal axis as epochs, with integer ticks."""
    panel.set_xlabel("epoch")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _difficulty_series(group: SeedGroup) -> dict[tuple[str, str], Series]:
    """Return the series of each quantity and difficulty group."""
    records = (record for by_seed in group.epochs for record in by_seed)
    numbers = next((n for r in records if isinstance(n := lookup(r, *_DIFFICULTY), dict)), {})
    return {
        (quantity, number): series
        for quantity in DIFFICULTY_LABELS
        for number in numbers
        if (series := group.series(*_DIFFICULTY, number, quantity)) is not None
    }


def _draw_difficulty(
    panels: Sequence[Any], _: SeedGroup, all_series: Mapping[tuple[str, str], Series], first: bool
) -> None:
    for panel, (quantity, label) in zip(panels, DIFFICULTY_LABELS.items(), strict=True):
        set_epoch_axis(panel)
        panel.set_ylim(0, 1)
        panel.set_ylabel(label if first else "")
        numbers = [number for recorded, number in all_series if recorded == quantity]
        for i, number in enumerate(numbers):
            ends = {numbers[0]: " (easiest)", numbers[-1]: " (hardest)"}
            name = f"group {number}{ends.get(number, '')}"
            draw_series(panel, all_series[quantity, number], name, i)
