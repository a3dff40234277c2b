"""The result of `eval` as lines of text."""

from collections.abc import Mapping
from typing import Any

from marginctl.calibration import apply
from marginctl.metrics.long_tail import DESCRIPTIONS
from marginctl.reports.tables import detection_table
from marginctl.utils.text import count_noun

ANGLES = {
    "W-Inter": "w_inter",
    "C-Inter (centers)": "c_inter_centers",
    "C-Inter (centers and weights)": "c_inter_weights",
    "WC-Intra": "wc_intra",
    "feature to class weight": "intra_weight",
    "feature to class center": "intra_center",
}
FOLD_SOURCES = {"file": "folds of the file", "order": "contiguous folds of each kind of pair"}


def evaluation_lines(title: str, document: Mapping[str, Any]) -> list[str]:
    """Return the metrics of a network on test images, one line each, under a title.

    Args:
        title: the first line.
        document: from `metrics.network_metrics.classification_metrics`, with `detection`, and
            with `long_tail` and `calibrated` where they were computed.
    """
    low, high = document["top1_interval"]
    lines = [
        title,
        f"top-1     {document['top1']:.2f} %  (95 %: {low:.2f} to {high:.2f}, Wilson, "
        f"n = {document['n']})",
    ]
    if document["top5"] is not None:
        lines.append(f"top-5     {document['top5']:.2f} %")
    if "long_tail" in document:
        lines += long_tail_lines(document["long_tail"])
    if document["nll"] is not None:
        calibration = document["calibration"]
        lines += [
            f"NLL       {document['nll']:.4f}",
            f"Brier     {document['brier']:.4f}",
            f"ECE, MCE  {100 * calibration['ece']:.2f} %, {100 * calibration['mce']:.2f} %  "
            f"({calibration['bins']} bins)",
            f"mean bias rho  {document['rho']:.4f}",
        ]
    if document["angles"] is not None:
        angles = {label: document["angles"][key] for label, key in ANGLES.items()}
        shown = [f"{label} {value:.2f}" for label, value in angles.items() if value is not None]
        lines.append("angles in degrees: " + ", ".join(shown))
    classes = sorted(
        (c for c in document["per_class"] if c["accuracy"] is not None),
        key=lambda c: (c["accuracy"], c["class"]),
    )
    lowest = ", ".join(f"{c['name']} {100 * c['accuracy']:.1f} % of {c['n']}" for c in classes[:5])
    lines.append(f"lowest classes: {lowest}")
    lines += [f"{key}: {reason}" for key, reason in document["reasons"].items()]
    lines += detection_table.as_text(document["detection"])
    return lines + (apply.as_text(document["calibrated"]) if "calibrated" in document else [])


def long_tail_lines(record: Mapping[str, Any]) -> list[str]:
    """Return the accuracy of the many-, medium- and few-shot classes, one line each."""
    lines = []
    num_classes = sum(record[name]["classes"] for name in DESCRIPTIONS)
    for name, description in DESCRIPTIONS.items():
        group = record[name]
        text = record["reasons"].get(name)
        if text is None:
            classes = f"{group['classes']} of {num_classes} classes have {description}"
            text = f"{100 * group['accuracy']:.2f} %  ({classes}; n = {group['images']})"
        lines.append(f"{name + '-shot':<11} {text}")
    return lines


def verification_lines(record: Mapping[str, Any]) -> list[str]:
    """Return the verification metrics of one list of pairs, one line each."""
    pairs = (
        f"{count_noun(record['n_same'], 'pair')} of one identity, {record['n_different']} of two"
    )
    lines = [f"{record['name']}: {pairs}, {record['images']} images"]
    if record["accuracy"] is not None:
        lines.append(
            f"  accuracy  {record['accuracy']:.2f} % +- {record['std']:.2f}  "
            f"(n = {record['folds']} {FOLD_SOURCES[record['folds_from']]})"
        )
    if record["auroc"] is not None:
        low, high = record["auroc_interval"]
        lines.append(f"  AUROC     {record['auroc']:.4f}  (95 %: {low:.4f} to {high:.4f})")
        lines.append(f"  EER       {100 * record['eer']:.2f} %")
    rates = record["tar_at_far"]
    shown = [f"{rate} {100 * tar:.2f} %" for rate, tar in rates.items() if tar is not None]
    if shown:
        lines.append(f"  TAR at FAR  {', '.join(shown)}")
    missing: dict[str, list[str]] = {}  # several rates can share a reason
    for key, reason in record["reasons"].items():
        missing.setdefault(reason, []).append(key.removeprefix("tar_at_far "))
    for reason, keys in missing.items():
        prefix = "TAR at FAR " if keys[0] in rates else ""
        lines.append(f"  no {prefix}{', '.join(keys)}: {reason}")
    return lines
