"""What a trained network is measured by, at its last epoch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measure:
    """A number of a result.

    Attributes:
        label: for a reader, with the unit.
        path: the keys in a result record, one in another; of a list, the `name` of an entry.
        factor: from the record's number to the shown one.
        places: decimal places that are shown.
        higher: whether more is better.
    """

    label: str
    path: tuple[str, ...]
    factor: float = 1.0
    places: int = 2
    higher: bool = False

    def of(self, record: Mapping[str, Any]) -> float | None:
        """The number, None where the record has none: of another version, or not finite."""
        value: Any = record
        for key in self.path:
            if isinstance(value, list):
                value = next((one for one in value if _name_of(one) == key), None)
            else:
                value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return self.factor * value


MEASURES: Mapping[str, Measure] = {
    "top1": Measure("top-1 %", ("last", "top1"), higher=True),
    "ece": Measure("ECE %", ("evaluation", "calibration", "ece"), 100.0),
    "mce": Measure("MCE %", ("evaluation", "calibration", "mce"), 100.0),
    "nll": Measure("NLL", ("last", "nll"), places=4),
    "brier": Measure("Brier", ("evaluation", "brier"), places=4),
    "many": Measure(
        "many-shot %", ("evaluation", "long_tail", "many", "accuracy"), 100.0, higher=True
    ),
    "medium": Measure(
        "medium-shot %", ("evaluation", "long_tail", "medium", "accuracy"), 100.0, higher=True
    ),
    "few": Measure(
        "few-shot %", ("evaluation", "long_tail", "few", "accuracy"), 100.0, higher=True
    ),
}
SHOTS = ("many", "medium", "few")  # of classes, by their training images
CALIBRATION = ("ece", "mce", "nll", "brier")
KAPPA = Measure("kappa*", ("state", "optimal_scale", "mean"))

# Of detection, those of the temperature paper's Table 10, and the AUROC beside them.
MISS = "misclassification"
PAIRS = "pairs "  # before the name of a list, in that of its measures
METRICS = {"aupr_in": "AP-in", "auroc": "AUROC"}
SCORES = {"max_similarity": "max similarity", "feature_norm": "norm"}


def sides_of(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the networks of these results tell apart: `miss`, and the names of foreign sets."""
    found: dict[str, None] = {}
    for record in records:
        evaluation = record.get("evaluation")
        detection = evaluation.get("detection") if isinstance(evaluation, Mapping) else None
        if isinstance(detection, Mapping):
            others = detection.get("ood")
            names = map(_name_of, others) if isinstance(others, list) else ()
            found |= dict.fromkeys([MISS, *(name for name in names if name is not None)])
    return list(found)


def _name_of(one: Any) -> str | None:
    """The name of an entry of a list; None where a file says something else."""
    name = one.get("name") if isinstance(one, Mapping) else None
    return name if isinstance(name, str) else None


def detection_of(side: str) -> dict[str, Measure]:
    """The measures of one side by their names, such as `miss aupr_in max_similarity`: shares."""
    place = (MISS,) if side == MISS else ("ood", side)
    said = "MISS" if side == MISS else f"OOD {side}"
    return {
        f"{side} {metric} {score}": Measure(
            f"{said} {METRICS[metric]} {SCORES[score]}",
            ("evaluation", "detection", *place, "scores", score, metric),
            places=4,
            higher=True,
        )
        for metric in METRICS
        for score in SCORES
    }


def lists_of(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """The lists of pairs that the networks of these results verified."""
    found: dict[str, None] = {}
    for record in records:
        evaluation = record.get("evaluation")
        lists = evaluation.get("verification") if isinstance(evaluation, Mapping) else None
        names = map(_name_of, lists) if isinstance(lists, list) else ()
        found |= dict.fromkeys(name for name in names if name is not None)
    return list(found)


def verification_of(pairs: str) -> dict[str, Measure]:
    """The measures of one list of pairs by their names, such as `pairs lfw/pairs.txt eer`."""
    place = ("evaluation", "verification", pairs)
    of = f"{PAIRS}{pairs}"
    return {
        f"{of} accuracy": Measure("accuracy %", (*place, "accuracy"), higher=True),
        f"{of} auroc": Measure("AUROC", (*place, "auroc"), places=4, higher=True),
        f"{of} eer": Measure("EER %", (*place, "eer"), 100.0),
    }


def measure_named(name: str) -> Measure:
    """A measure of `MEASURES`, of verification by its list, or of detection by its side."""
    if name in MEASURES:
        return MEASURES[name]
    if name.startswith(PAIRS):
        return verification_of(name.removeprefix(PAIRS).rpartition(" ")[0])[name]
    return detection_of(name.rsplit(" ", 2)[0])[name]
