"""Tables of `eval`: the metrics of one network on a test set, and on pairs of images."""

from collections.abc import Iterator, Mapping
from typing import Any

from marginctl.metrics.long_tail import DESCRIPTIONS
from marginctl.metrics.registry import DETECTION_METRICS, metrics_in
from marginctl.reports.tables.table import (
    Report,
    Table,
    flat_record,
    format_mean_std,
    group_by_text,
    table_of_texts,
)
from marginctl.reports.tables.training_table import LONG_TAIL_MEANS
from marginctl.utils.text import count_noun

Document = Mapping[str, Any]

SUMMARY_GROUPS = ("accuracy", "long-tail", "calibration", "metrics")
ANGLES = {
    "w_inter": "W-Inter",
    "c_inter_centers": "C-Inter (centers)",
    "c_inter_weights": "C-Inter (centers and weights)",
    "c_inter_unit_weights": "C-Inter (centers of unit features and weights)",
    "wc_intra": "WC-Intra",
    "intra_weight": "to the weight of the class",
    "intra_center": "to the center of the class",
}
WORST = 5  # classes that are listed
DETECTION_CAPTION = (
    "-In, -Out: in or out is the positive class. AUPR: average precision, the area under the "
    "precision-recall curve; FPR95: false-positive rate at 95 % true-positive rate"
)
FOLDS = {"file": "given by the file", "order": "contiguous parts of each kind"}


def evaluation_report(title: str, document: Document) -> Report:
    """Return what `eval` prints of the document of `eval --json`."""
    numbers = _numbers(document)
    if document["top5"] is not None:
        numbers = {"top-1 %": numbers["top-1 %"], "top-5 %": f"{document['top5']:.2f}"} | numbers
    if document["rho"] is not None:
        numbers["mean bias rho"] = f"{document['rho']:.4f}"
    headings, calibrated = ["metric", "value"], {}
    if "calibrated" in document:
        headings.append("calibrated")
        calibrated = _numbers(document["calibrated"])
    rows = [
        [name, text, *([calibrated.get(name, "-")] if calibrated else [])]
        for name, text in numbers.items()
    ]
    table = table_of_texts("", headings, rows, title=title, notes=list(_notes(document)))
    details = [_detection(document["detection"])]
    if document["angles"] is not None:
        angles = {label: document["angles"][key] for key, label in ANGLES.items()}
        rows = [[label, f"{angle:.2f}"] for label, angle in angles.items() if angle is not None]
        details.insert(0, table_of_texts("Angles in degrees", ["angle", "mean"], rows))
    tables = [table, *(detail for detail in details if detail.rows or detail.notes)]
    return Report(tables, [_record(document)], document, title)


def _numbers(document: Document) -> dict[str, str]:
    """Return the summary's metrics that a document has, by heading."""
    record = {"last": document, "evaluation": document}
    metrics = [m for m in metrics_in([record]).values() if m.group in SUMMARY_GROUPS]
    return {m.heading: f"{m.value(record):.{m.decimals}f}" for m in metrics}


def _notes(document: Document) -> Iterator[str]:
    low, high = document["top1_interval"]
    yield f"top-1: 95 % Wilson interval {low:.2f} to {high:.2f} %, n = {document['n']}"
    groups = document.get("long_tail", {})
    total = sum(groups[name]["classes"] for name in DESCRIPTIONS) if groups else 0
    for name, words in DESCRIPTIONS.items() if groups else ():
        group, reason = groups[name], groups["reasons"].get(name)
        classes = f"{group['classes']} of {total} classes have {words}; n = {group['images']}"
        yield f"{name}-shot: {reason or classes}"
    if groups:
        yield f"many-, medium- and few-shot accuracy: {LONG_TAIL_MEANS}"
    if document["calibration"] is not None:
        yield f"ECE, MCE: {document['calibration']['bins']} bins"
    per_class = [c for c in document["per_class"] if c["accuracy"] is not None]
    worst = sorted(per_class, key=lambda c: (c["accuracy"], c["class"]))[:WORST]
    shown = (f"{c['name']} {100 * c['accuracy']:.1f} % of {c['n']}" for c in worst)
    yield f"lowest class accuracies: {', '.join(shown)}"
    for key, reason in document["reasons"].items():
        yield f"{key} omitted ({reason})"
    calibrated = document.get("calibrated")
    if calibrated:
        temperature = calibrated["temperature"]
        fitted = calibrated["fitted_on"]
        yield (
            f"calibrated: {calibrated['method']}"
            + ("" if temperature is None else f" (T = {temperature:.4f})")
            + f" of {calibrated['file']}, fitted on {fitted['n']} samples of {fitted['name']}"
        )
        for key, reason in calibrated["reasons"].items():
            yield f"calibrated {key} omitted ({reason})"
        for key in ("note", "warning"):
            if calibrated[key]:
                yield f"calibrated: {calibrated[key]}"


def detection_parts(detection: Document) -> dict[str, Document]:
    """Return the pairs of in and out by a name with the numbers of images."""
    miss = detection["misclassification"]
    parts = {f"MISS: {miss['n_in']} correct (in), {miss['n_out']} misclassified (out)": miss}
    for one in detection["ood"]:
        group = "" if one["group"] is None else f" ({one['group']})"
        parts[f"OOD {one['name']}{group}: {one['n_in']} in, {one['n_out']} out"] = one
    return parts


def _detection(detection: Document) -> Table:
    """Return a line for each pair of in and out and each score, and means over groups of sets."""
    scores = {name: part["scores"] for name, part in detection_parts(detection).items()}
    for group, means in detection["groups"].items():
        count = sum(one["group"] == group for one in detection["ood"])
        if count > 1:
            scores[f"OOD {group}: mean of {count} sets"] = means
    rows = [
        [name, score, *(f"{numbers[metric]:.4f}" for metric in DETECTION_METRICS)]
        for name, by_score in scores.items()
        for score, numbers in by_score.items()
        if numbers is not None
    ]
    title = "Misclassification detection (MISS)" + (
        " and OOD detection" if detection["ood"] else ""
    )
    return table_of_texts(
        DETECTION_CAPTION + ("; OpenOOD's is FPR95-Out" if detection["ood"] else ""),
        ["images", "score", *DETECTION_METRICS.values()],
        rows,
        title=title if rows else "",
        notes=[f"{key} omitted ({reason})" for key, reason in detection["reasons"].items()],
        text_columns=1,
    )


def _record(document: Document) -> dict[str, Any]:
    """Return the numbers of the network as one line, without those of its classes and bins."""
    long = ("per_class", "confusion", "detection", "calibration", "angles", "reasons")
    record = {key: value for key, value in document.items() if key not in long}
    if document["calibration"] is not None:
        record |= {key: document["calibration"][key] for key in ("ece", "mce", "bins")}
    for part in (document["detection"]["misclassification"], *document["detection"]["ood"]):
        name = f"ood {part['name']}" if "name" in part else "miss"
        for score, numbers in part["scores"].items():
            for metric in DETECTION_METRICS if numbers is not None else ():
                record[f"{name} {metric} {score}"] = numbers[metric]
    return flat_record(record)


def verification_report(title: str, document: Document) -> Report:
    """Return what `eval --pairs` prints of the document of `eval --pairs --json`."""
    lists = document["verification"]
    rates = list(dict.fromkeys(rate for one in lists for rate in one["tar_at_far"]))
    rows = []
    for one in lists:
        accuracy = format_mean_std(one["accuracy"], one["std"])
        auroc = None if one["auroc"] is None else f"{one['auroc']:.4f}"
        fractions = [one["eer"], *(one["tar_at_far"].get(rate) for rate in rates)]
        percents = (None if number is None else f"{100 * number:.2f}" for number in fractions)
        rows.append([one["name"], *(text or "-" for text in (accuracy, auroc, *percents))])
    headings = ["pairs", "accuracy %", "AUROC", "EER %", *(f"TAR % at FAR {r}" for r in rates)]
    notes = [note for one in lists for note in _verification_notes(one)]
    table = table_of_texts("", headings, rows, title=title, notes=notes)
    return Report([table], [flat_record(one) for one in lists], document, title)


def _verification_notes(one: Document) -> Iterator[str]:
    name = one["name"]
    pairs = f"{count_noun(one['n_same'], 'pair')} of one identity, {one['n_different']} of two"
    yield f"{name}: {pairs}, {one['images']} images"
    if one["accuracy"] is not None:
        folds = FOLDS[one["folds_from"]]
        yield f"{name}: accuracy: mean ± std over n = {one['folds']} folds ({folds})"
    if one["auroc"] is not None:
        low, high = one["auroc_interval"]
        yield f"{name}: AUROC: 95 % interval {low:.4f} to {high:.4f}"
    for reason, keys in group_by_text(one["reasons"].items()).items():
        rates = [key.removeprefix("tar_at_far ") for key in keys]
        kind = "" if rates == keys else "TAR at FAR "
        yield f"{name}: no {kind}{', '.join(rates)}: {reason}"
