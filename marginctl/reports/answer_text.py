"""The answers of comparisons as sentences."""

from collections.abc import Iterable

from marginctl.reports.tables.table import format_p, number_range
from marginctl.results.answers import Answer
from marginctl.results.compare import Comparison
from marginctl.utils.text import count_noun


def answer_lines(answers: Iterable[Answer], baseline: str) -> tuple[str, ...]:
    """Return a sentence for each answer, with a line before it where the baseline is unreliable."""
    lines = []
    for answer in answers:
        if answer.unreliable:
            lines.append(
                f"{answer.row}: {baseline}, which the others are compared with, "
                f"{answer.unreliable}: differences from it say little."
            )
        lines.append(answer_text(answer))
    return tuple(lines)


def answer_text(answer: Answer) -> str:
    interval = ""
    if answer.interval is not None:
        ends = answer.interval
        if answer.metric.unit == "%":  # of two seeds it may be wider than what is possible
            ends = max(0.0, ends[0]), min(100.0, ends[1])
        low, high = (_number(answer, end) for end in ends)
        interval = f" ({low} to {high})"
    by = "" if answer.metric.name in ("accuracy", "top1") else f" by {answer.metric.label}"
    text = f"{answer.best} {_value(answer, answer.mean)}{interval}"
    n = f"n = {count_noun(answer.n, answer.counted)}"
    if answer.other is None or answer.other_mean is None:
        label = f"{answer.metric.label} of " if by else ""
        text = f"On {answer.row}: {label}{text}, {n}"
    else:
        text = f"Best on {answer.row}{by}: {text}"
        other = _value(answer, answer.other_mean)
        if not answer.comparable:
            text += f"; {answer.other} has {other} ({n}), tuned with another budget: not compared"
        elif answer.p is None:
            reason = f": {answer.reason}" if answer.reason else ""
            text += f"; {answer.other} has {other} ({n}): no test{reason}"
        else:
            better = "significantly better" if answer.significant else "not significantly better"
            text += f", {better} than {answer.other} ({other}, p = {format_p(answer.p)}, {n})"
    others = [f"{name} has {_value(answer, mean)}" for name, mean in answer.references.items()]
    return "; ".join([text, *others]) + "."


def budget_notes(budgets: Iterable[int], chosen_on: str) -> list[str]:
    """Return how the objectives of an own comparison were tuned, a line each.

    Args:
        budgets: how many candidates each objective chose from; 0 without tuning.
        chosen_on: the part of the training data that chooses.
    """
    counts = sorted(set(budgets))
    if counts == [0]:
        return [
            "one fixed protocol for all objectives: this ranks settings as much as losses (--tune "
            "gives each objective the same number of candidates)"
        ]
    if len(counts) > 1:
        return [
            f"the objectives chose from different numbers of candidates ({number_range(counts)}): "
            "no significance is marked between them"
        ]
    return [f"each network chose from {counts[0]} candidates by {chosen_on} of its training data"]


def unpaired_notes(comparisons: Iterable[Comparison], baseline: str) -> list[str]:
    """Return the seeds that are not compared, a line for each objective that has some."""
    notes = []
    for comparison in comparisons:
        if comparison.unpaired_seeds:
            seeds = ", ".join(map(str, comparison.unpaired_seeds))
            word = "seed" if len(comparison.unpaired_seeds) == 1 else "seeds"
            notes.append(
                f"{comparison.objective} on {comparison.row}: {word} {seeds} without a run of "
                f"{baseline}: not compared"
            )
    return notes


def _value(answer: Answer, value: float) -> str:
    return f"{_number(answer, value)} {answer.metric.unit}".rstrip()


def _number(answer: Answer, value: float) -> str:
    metric = answer.metric
    return f"{value:.1f}" if metric.unit == "%" else f"{value:.{metric.decimals}f}"
