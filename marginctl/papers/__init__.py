"""Published values as data: one YAML file a paper."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marginctl import typed_yaml
from marginctl.objectives.presets import parse


@dataclass(frozen=True)
class Published:
    """One published cell: mean and standard deviation in percent, over n fold accuracies."""

    mean: float
    std: float
    n: int


def table(paper: str | None, name: str | None) -> dict[tuple[str, str], Published]:
    """The cells of a published table by (data set, objective); empty where we hold none.

    Args:
        paper: a file of this folder, such as `arcgrad`.
        name: the table's number as printed, such as `I`.
    """
    path = Path(__file__).with_name(f"{paper}.yaml")
    if paper is None or not path.is_file():
        return {}
    document: dict[str, Any] = typed_yaml.read(path)[0]
    published = document["tables"].get(name)
    if published is None:
        return {}
    objectives = [str(parse(written)) for written in published["columns"]]
    cells = {}
    for dataset, row in published["rows"].items():
        for objective, cell in zip(objectives, row, strict=True):
            mean, std = cell.split("±")
            cells[dataset, objective] = Published(float(mean), float(std), published["n"])
    return cells
