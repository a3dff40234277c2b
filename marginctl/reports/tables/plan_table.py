"""What `--dry-run` of the training commands prints."""

from typing import Any

from marginctl.metrics.long_tail import DESCRIPTIONS
from marginctl.utils.text import count_noun

# Our assumption: ResNet-50 at 224 pixels, forward and backward, about 2,000 images a second.
GPU_OPERATIONS_PER_SECOND = 50e12
MOST_COUNTS = 20  # classes whose numbers of images are all listed


def plan_lines(plan: dict[str, Any]) -> list[str]:
    """Return a line for each pending trial of the document of `--dry-run --json`, and their sum."""
    device = plan["device"]
    lines = list(dict.fromkeys(map(_long_tail, plan.get("tails", ()))))  # a grid may repeat one
    lines += [_trial(row, device) for row in plan["rows"]]
    done = f"{plan['done']} done, " if plan["done"] else ""
    estimate = []
    if plan["not_timed"] < plan["to_do"]:
        estimate.append(f"about {duration(plan['seconds'])}")
    if plan["not_timed"]:
        estimate.append(f"{plan['not_timed']} not timed")
    trials = f"{count_noun(plan['trials'], 'trial')}, {done}{plan['to_do']} pending on {device}"
    times = f": {', and '.join(estimate)}" if estimate else ""
    lines.append(f"{trials}{times}; runs in {plan['folder']}")
    if plan["operations"] > 1e15 and not device.startswith("cuda"):
        gpu = duration(plan["operations"] / GPU_OPERATIONS_PER_SECOND)
        rate = f"{GPU_OPERATIONS_PER_SECOND / 1e12:.0f} TFLOP/s"
        lines.append(f"On a GPU that sustains {rate}: about {gpu}.")
    if plan["not_counted"] and plan["to_do"]:
        lines.append(f"Estimate excludes {', '.join(plan['not_counted'])}.")
    return lines


def _trial(row: dict[str, Any], device: str) -> str:
    if "features_kept" in row:
        cached = "cached" if row["features_kept"] else None
        time = cached or f"about {duration(row['seconds'])} on {device}"
        return f"{row['trial']}: features of {count_noun(row['images'], 'image')}: {time}"
    time = f"not timed ({row['reason']})"
    if row["seconds"] is not None:
        timed = count_noun(row["timed_steps"], "timed step")
        images = count_noun(row["timed_images"], "image")
        time = f"about {duration(row['seconds'])} on {device} (from {timed} of {images})"
    epochs, steps = count_noun(row["epochs"], "epoch"), count_noun(row["steps"], "step")
    return f"{row['trial']}: {epochs}, {steps}, {time}"


def _long_tail(data: dict[str, Any]) -> str:
    """Return the training images of long-tailed data, for each class where there are few."""
    counts, groups = data["counts"], data["groups"]
    shown = f"from {max(counts)} down to {min(counts)}"
    if len(counts) <= MOST_COUNTS:
        shown = " ".join(map(str, counts))
    by_group = ", ".join(f"{groups[name]} with {words}" for name, words in DESCRIPTIONS.items())
    images = count_noun(data["images"], "training image")
    return f"{data['data']}: {images} of {len(counts)} classes: {shown} ({by_group})"


def duration(seconds: float) -> str:
    """Return a time to about two digits: `4 s`, `12 min`, `3 h 12 min`, `5 d 7 h`."""
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
