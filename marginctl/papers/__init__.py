"""Published values as data: one YAML file a paper."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marginctl import typed_yaml
from marginctl.errors import RequestError
from marginctl.objectives.names import parse
from marginctl.text import did_you_mean


@dataclass(frozen=True)
class Published:
    """One published cell: mean and standard deviation in percent, over n fold accuracies."""

    mean: float
    std: float
    n: int


def check_paper(name: str) -> None:
    """Refuses a paper that we hold nothing of.

    Raises:
        RequestError: no such paper.
    """
    known = sorted(path.stem for path in Path(__file__).parent.glob("*.yaml"))
    if name not in known:
        raise RequestError(
            f"unknown paper '{name}': expected one of {', '.join(known)}."
            + did_you_mean(name, known)
        )


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
