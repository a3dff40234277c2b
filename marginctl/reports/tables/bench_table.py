"""The ratios of benchmarks as tables."""

import math
import statistics
from typing import Any

from marginctl.reports.formats.text_table import print_rows, print_sentences
from marginctl.reports.tables.train_table import shown_mean
from marginctl.utils.text import count_noun


def print_together(document: dict[str, Any]) -> None:
    """Prints the ratios of all benchmarks as one table, and under it where they were measured."""
    kinds: dict[str, list[str]] = {}
    rows = []
    for row in document["rows"]:
        spread = row["ratio"]
        if spread and row["benchmark"] not in kinds.setdefault(row["range"], []):
            kinds[row["range"]].append(row["benchmark"])
        rows.append(
            {
                "benchmark": row["benchmark"],
                "what": row["what"] if spread else f"not run: {row['reason']}",
                "against": row["against"],
                "ratio": _ratio(spread["median"]) if spread else None,
                "range": f"{_ratio(spread['low'])} to {_ratio(spread['high'])}" if spread else None,
                "n": row["n"],
            }
        )
    print_rows(rows, ["benchmark", "what", "against", "ratio", "range", "n"])
    print()
    ranges = "; ".join(f"{kind} ({', '.join(names)})" for kind, names in kinds.items())
    lines = [
        "ratio: how many times as long `what` takes as `against`, the median of n; objectives and "
        "cross-entropy with their linear layer",
        f"range: {ranges}",
    ]
    about = document["environment"]
    load = about["load_before"]
    said = "not known here" if load is None else ", ".join(f"{mean:.1f}" for mean in load)
    lines.append(
        f"environment: {about['card']}; {count_noun(about['threads'], 'thread')} of torch "
        f"{about['versions']['torch']}, Python {about['versions']['python']}, {about['system']} "
        f"{about['architecture']}; load before (of 1, 5, 15 min): {said}"
    )
    if load is not None and load[0] > about["cores"] / 2:
        lines.append("note: other work ran beside it; on an idle machine the ratios may differ")
    small = "so little work says little of any ratio: " if document["quick"] else ""
    lines.append(f"sizes: smaller than each benchmark's own; {small}marginctl bench COMMAND")
    print_sentences(lines)


def _ratio(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


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


def print_costs(document: dict[str, Any]) -> None:
    """Prints ratios to cross-entropy: median of the pairs, and the range of the middle half."""

    def shown(spread: dict[str, float] | None) -> str:
        return (
            f"{spread['median']:.2f} ({spread['low']:.2f} to {spread['high']:.2f})"
            if spread
            else ""
        )

    other = "pytorch-metric-learning"
    print_rows(
        [
            {
                "N, C, d": ", ".join(map(str, row["size"])),
                "objective": row["objective"],
                "cross-entropy": f"{1000 * row['cross_entropy_seconds']:.2f} ms",
                "marginctl": shown(row["ratios"]["marginctl"]),
                other: shown(row["ratios"].get(other)),
            }
            for row in document["rows"]
        ],
        ["N, C, d", "objective", "cross-entropy", "marginctl", other],
    )
    for row in document["least_squares"]:
        low, high = 100 * row["share"]["low"], 100 * row["share"]["high"]
        print(
            f"{row['network']}, images {'x'.join(map(str, row['images']))}, {row['classes']} "
            f"classes: a step with cosine-ls takes {row['step_seconds']:.2f} s, the search for "
            f"kappa* is {100 * row['share']['median']:.3f} % ({low:.3f} to {high:.3f}) of it"
        )


def print_overhead(document: dict[str, Any]) -> None:
    """Prints what a training step costs beside the others: medians and 95 % intervals."""

    def shown(spread: dict[str, float], unit: str) -> str:
        return f"{spread['median']:.2f}{unit} ({spread['low']:.2f} to {spread['high']:.2f})"

    print(
        f"{document['model']}, batches of {document['batch']}, {document['precision']} on "
        f"{document['device']}, {document['pairs']} pairs of {document['steps']} steps: median and "
        "95 % interval"
    )
    own = statistics.median(document["seconds_a_step"]["marginctl"])
    print(f"a step takes {1000 * own:.1f} ms")
    print(
        f"more than a bare torch loop: {shown(document['overhead_ms'], ' ms')} a step, "
        f"{shown(document['overhead_percent'], ' %')}"
    )
    for side, spread in document["times_as_long"].items():
        print(f"{side} takes {shown(spread, 'x')} as long")


def print_kappa(document: dict[str, Any]) -> None:
    """Prints what the search for kappa* takes beside a step, ours over the published values."""

    def number(value: float) -> str:
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}"

    def shown(spread: dict[str, float]) -> str:
        return f"{number(spread['median'])} ({number(spread['low'])} to {number(spread['high'])})"

    about = document["paper"]
    print(
        f"{document['precision']} on {document['device']}, {document['rounds']} rounds: "
        "milliseconds, median and 95 % interval; search: the errors of all candidates and their "
        f"argmin, of a whole step; the paper's are those of its table {about['table']}, on another "
        "machine"
    )
    rows = []
    for row in document["rows"]:
        images = row["step_images"]
        few = "" if images == row["batch"] else f", step of {images}"
        paper = row["paper"] or {}
        rows.append(
            {
                "shapes": f"{row['name']}, {row['model']}, batch {row['batch']}{few}",
                "C, d": f"{row['classes']}, {row['length']}",
                "step": shown(row["step_ms"]),
                "an image": number(row["step_ms_an_image"]),
                "errors": shown(row["errors_ms"]),
                "argmin": shown(row["argmin_ms"]),
                "search, %": shown(row["search_percent"]),
                "paper: step / errors / argmin": " / ".join(f"{paper[kind]:g}" for kind in paper)
                or None,
            }
        )
    print_rows(rows, list(rows[0]))


def print_probe(document: dict[str, Any]) -> None:
    """Prints how long a probe takes beside scikit-learn's, and a sweep beside cold fits."""
    one, sweep, seconds = document["one"], document["sweep"], document["seconds"]
    print(
        f"{document['rows']} made features of length {document['length']}, {document['classes']} "
        f"classes, gradient to {document['tolerance']:g}, {document['rounds']} rounds: seconds, "
        "the median"
    )
    kinds = {
        "marginctl": f"strength {one['strength']:g}",
        "scikit-learn": f"strength {one['strength']:g}",
        "path": f"{len(sweep['strengths'])} strengths, each from the last one's optimum",
        "cold": f"{len(sweep['strengths'])} strengths, each anew",
    }
    print_rows(
        [
            {"side": side, "what": what, "seconds": f"{statistics.median(seconds[side]):.3g}"}
            for side, what in kinds.items()
        ],
        ["side", "what", "seconds"],
    )
    fast, share = one["times_as_fast"], sweep["share_of_cold"]
    apart = one["loss"] / one["loss_of_scikit_learn"] - 1
    print(
        f"scikit-learn takes {fast['median']:.2f} times as long ({fast['low']:.2f} to "
        f"{fast['high']:.2f}); loss {one['loss']:.9g}, {apart:+.1e} of scikit-learn's. The sweep "
        f"takes {share['median']:.2f} of the cold fits' time ({share['low']:.2f} to "
        f"{share['high']:.2f})"
    )


def print_networks(document: dict[str, Any]) -> None:
    """Prints how fast networks train, and the rows of a table that were trained."""
    print(
        f"{document['card']}, {document['precision']}, {document['images']} images an epoch, "
        f"{document['seconds'] / 60:.1f} min in all"
    )
    print_rows(
        [
            {
                "network": row["model"],
                "s/epoch": _seconds_an_epoch(row["seconds_an_epoch"]),
                "timed": count_noun(row["epochs"], "epoch")
                if row["epochs"]
                else f"{row['steps']} of {row['steps_an_epoch']} steps",
                "images/s": f"{row['images_a_second']:.0f}",
                "GFLOP an image": f"{row['operations_an_image'] / 1e9:.2f}",
                "of the peak": row["reason"]
                if row["share_of_peak"] is None
                else f"{100 * row['share_of_peak']:.1f} %",
            }
            for row in document["networks"]
        ],
        ["network", "s/epoch", "timed", "images/s", "GFLOP an image", "of the peak"],
    )
    table = document["table"]
    print(
        f"Table {table['table']} of {table['paper']}, {table['epochs']} epochs: "
        "test top-1 in percent"
    )
    print_rows(
        [
            {
                "row": cell["row"],
                "objective": cell["objective"],
                "n": cell["n"],
                "last epoch": shown_mean(cell["last"]["seeds"]),
                "best epoch": shown_mean(cell["best"]["seeds"]),
            }
            for cell in table["cells"]
        ],
        ["row", "objective", "n", "last epoch", "best epoch"],
    )
    if table["left_out"]:
        hint = "the same command again trains them"
        if table["minutes_needed"] is not None:
            hint = f"--minutes {math.ceil(table['minutes_needed'])} is enough for one"
        print(f"no time for {count_noun(table['left_out'], 'network')}: {hint}")


def _seconds_an_epoch(seconds: dict[str, float | None]) -> str:
    """The median of whole epochs, and their range; or what a part of an epoch promises."""
    if seconds["low"] is None:
        return f"about {seconds['median']:.3g}"
    return f"{seconds['median']:.3g} ({seconds['low']:.3g} to {seconds['high']:.3g})"
