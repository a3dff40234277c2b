"""The schema of the records of `transfer`, and how reports read them."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field

from marginctl.experiments import training_record as training
from marginctl.runs.validation import READ, Objective, Percent, misfit

SOFT = "soft:bias=true"  # what published weights were trained with, and what a probe is


class _Start(BaseModel):
    model_config = READ
    weights_sha256: str
    row: str
    objective: Objective
    seed: int | None


class _Probe(BaseModel):
    model_config = READ
    interval: Annotated[list[Percent], Field(min_length=2, max_length=2)]
    l2_penalty: float
    notes: list[str]


class _Result(BaseModel):
    model_config = READ
    method: str
    start: _Start
    probe: _Probe | None


def why_no_result(record: Any) -> str | None:
    """What a record lacks that a result of `transfer` must have; else None."""
    return training.why_no_result(record) or misfit(_Result, record)


def is_result(record: Any) -> bool:
    """Whether a record has all that a result must have."""
    return why_no_result(record) is None


def as_trained(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as the tables of training read them: by what the network was trained with.

    The objective and the seed are those of the start, so that networks of one seed are compared
    with each other; published weights have no seed, and keep that of the transfer. Named in the row
    are the objective of the new classifier where it is not softmax, and the transfer's own seed
    where it is not 0, beside one of a start.

    Args:
        record: of a result.
    """
    start = record["start"]
    classifier, row = record["objective"], record["row"]
    row += "" if classifier == SOFT else f", {classifier}"
    if start["seed"] is None:
        seed = record["seed"]
    else:
        seed = start["seed"]
        row += f", seed={record['seed']}" if record["seed"] else ""
    return {
        **record,
        "row": row,
        "objective": start["objective"],
        "seed": seed,
        "classifier": classifier,
    }
