"""Test accuracy and calibration along an option of an objective: beta, a scale, a strength."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from marginctl.objectives.options import written_options
from marginctl.objectives.parsing import PresetName, parse
from marginctl.objectives.schedules import Schedule
from marginctl.reports.figures.grid_sweep import Measure, draw_along, spaced, top1
from marginctl.reports.figures.learning_curves import (
    Group,
    Reasons,
    is_number,
    number,
    seeds_text,
    spread_text,
)
from marginctl.reports.figures.panels import add_head, sheet, title_of, too_many
from marginctl.reports.figures.style import legend_text
from marginctl.results.collect import Trained

PANEL = (3.9, 3.0)  # inches
NO_ECE = "no evaluation.calibration in result.json: its point is missing on the right"


@dataclass(frozen=True)
class Along:
    """One block: objectives that are alike but for one option, which is a number.

    Attributes:
        objective: what they have in common, such as `gradient-decay` or `arcface:margin=0.2`.
        option: what differs.
        rows: data, model and setting -> value of the option -> seeds.
    """

    objective: str
    option: str
    rows: Mapping[str, Mapping[float, Group]]


def options(table: Trained, groups: Sequence[Group], said: Reasons) -> Figure | None:
    """Test top-1 and ECE of the last epoch along each numeric option, a line a row of the table.

    This is what accuracy against the scale of a cosine softmax is read from, and calibration
    against the beta of gradient decay.

    Args:
        table: whose runs are drawn.
        groups: of them.
        said: gets a reason for what could not be drawn.

    Returns:
        None where nothing can be drawn.
    """
    blocks = along(groups, said)
    if not blocks:
        said.add("no two objectives differ in one option that is a number")
    if not blocks or too_many(2 * len(blocks), said):
        return None
    shown = {id(g): g for b in blocks for of in b.rows.values() for g in of.values()}
    bar = spread_text("error bar", (len(g.runs) for g in shown.values()))
    caption = (
        f"After the last epoch, mean over the seeds; {bar}. ECE: expected calibration error of "
        "the test images. Rows at one value stand side by side."
    )
    heights = {
        f"{block.objective} along {block.option}; "
        + seeds_text(g for of in block.rows.values() for g in of.values()): PANEL[1]
        for block in blocks
    }
    figure, made = sheet(caption, heights, 2 * PANEL[0])
    look = {row: i for i, row in enumerate(dict.fromkeys(g.row for g in groups))}
    for place, block in zip(made, blocks, strict=True):
        left, right = place.subplots(1, 2)
        _panel(left, block, top1, look)
        left.set_ylabel("test top-1 (%)")
        together = [g for of in block.rows.values() for g in of.values()]
        lacking = [g for g in together if not _has(g, ece)]
        for group in lacking:
            said.add(NO_ECE, group)
        right.set_visible(len(lacking) < len(together))
        _panel(right, block, ece, look)
        right.set_ylabel("ECE (%)")
    add_head(figure, title_of(table), (panel for block in made for panel in block.axes))
    return figure


def along(groups: Sequence[Group], said: Reasons) -> list[Along]:
    """The blocks: for each option that has two numbers in a row, one for each set of the others.

    An option that a name leaves out has its default. Schedules are no numbers: they are said where
    a block could have had them.
    """
    found: dict[tuple[str, str], dict[str, dict[float, Group]]] = {}
    scheduled: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        name = parse(group.objective)
        if not isinstance(name, PresetName) or not _has(group, top1):
            continue
        for option, value in name.options.items():
            place = (_without(name, option), option)
            if is_number(value):
                found.setdefault(place, {}).setdefault(group.row, {})[float(value)] = group
            elif isinstance(value, Schedule):
                scheduled.setdefault(place, []).append(group)
    blocks = []
    for place, rows in found.items():
        if all(len(by_value) < 2 for by_value in rows.values()):
            continue
        blocks.append(Along(*place, {row: dict(sorted(of.items())) for row, of in rows.items()}))
        for group in scheduled.get(place, []):
            said.add(f"{place[1]} is a schedule, no number: left out", group)
    return blocks


def ece(record: Mapping[str, Any]) -> float | None:
    """The expected calibration error of a result, in percent."""
    share = number(record, "evaluation", "calibration", "ece")
    return None if share is None else 100 * share


def _without(name: PresetName, option: str) -> str:
    """The name without the option, which is what all of its values have in common."""
    known = {key: one for key, one in name.preset.options.items() if key != option}
    written = written_options(known, {key: name.options[key] for key in known})
    return name.preset.name + (f":{written}" if written else "")


def _has(group: Group, measure: Measure) -> bool:
    return bool(group.runs) and all(measure(run.record) is not None for run in group.runs)


def _panel(panel: Any, block: Along, measure: Measure, look: Mapping[str, int]) -> None:
    drawn = {
        row: {value: group for value, group in of.items() if _has(group, measure)}
        for row, of in block.rows.items()
    }
    middle = (len(drawn) - 1) / 2
    for i, (row, of) in enumerate(drawn.items()):
        if of:
            draw_along(panel, of, measure, legend_text(row), look[row], i - middle)
    values = [value for of in block.rows.values() for value in of]
    spaced(panel, values)
    panel.set_xlabel(block.option)
