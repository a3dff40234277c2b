"""What `train --dry-run` prints."""

from typing import Any

from marginctl.metrics.long_tail import DESCRIPTIONS
from marginctl.utils.text import count_noun

SHORT = 20  # classes whose counts are all said


def lines_of(plan: dict[str, Any]) -> list[str]:
    """The trials that are to be trained, a line each, and their sum.

    Args:
        plan: from `training.cost.plan`.
    """
    device = plan["device"]
    lines = list(dict.fromkeys(map(_tail, plan.get("tails", ()))))  # a grid may repeat one
    for row in plan["rows"]:
        if "features_kept" in row:
            takes = f"about {duration(row['seconds'])} on {device}"
            said = f"features of {count_noun(row['images'], 'image')}: "
            lines.append(f"{row['trial']}: {said}{'kept' if row['features_kept'] else takes}")
            continue
        said = f"not timed ({row['reason']})"
        if row["seconds"] is not None:
            steps, images = row["timed_steps"], row["timed_images"]
            said = (
                f"about {duration(row['seconds'])} on {device} "
                f"(from {count_noun(steps, 'timed step')} of {count_noun(images, 'image')})"
            )
        epochs, steps = count_noun(row["epochs"], "epoch"), count_noun(row["steps"], "step")
        lines.append(f"{row['trial']}: {epochs}, {steps}, {said}")
    done = f"{plan['done']} done, " * (plan["done"] > 0)
    takes = ""
    if plan["not_timed"] < plan["to_do"]:
        takes = f": about {duration(plan['seconds'])}"
    if plan["not_timed"]:
        takes += f"{', and' if takes else ':'} {plan['not_timed']} not timed"
    lines.append(
        f"{count_noun(plan['trials'], 'trial')}, {done}{plan['to_do']} to do on {device}{takes}; "
        f"runs in {plan['folder']}"
    )
    if plan["not_counted"] and plan["to_do"]:
        lines.append(f"Not counted: {', '.join(plan['not_counted'])}.")
    return lines


def _tail(of: dict[str, Any]) -> str:
    """The training images of a long tail, class by class where these are few."""
    counts, groups = of["counts"], of["groups"]
    shown = " ".join(map(str, counts))
    shown = shown if len(counts) <= SHORT else f"from {max(counts)} down to {min(counts)}"
    shots = ", ".join(f"{groups[name]} with {said}" for name, said in DESCRIPTIONS.items())
    return (
        f"{of['data']}: {count_noun(of['images'], 'training image')} of {len(counts)} classes: "
        f"{shown} ({shots})"
    )


def duration(seconds: float) -> str:
    """Two digits or so of a time: `4 s`, `12 min`, `3 h 12 min`, `5 d 7 h`."""
    if seconds < 59.5:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} d {hours} h"
