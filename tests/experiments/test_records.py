"""Records of results: what tables of training read from a transfer."""

import pytest

from marginctl.experiments.records import TransferResult

RECORD = {
    "trial": "t",
    "task": "transfer",
    "row": "digits, probe of x",
    "setting": {},
    "objective": "soft:bias=true",
    "seed": 0,
    "epochs": 1,
    "last": {"epoch": 1, "top1": 50.0},
    "best": {"epoch": 1, "top1": 50.0},
    "diverged": None,
    "collapsed": False,
    "method": "probe",
    "probe": None,
    "versions": {},
    "timing": {"seconds": 1.0},
}


@pytest.mark.parametrize(
    ("source_seed", "more", "row", "seed"),
    [
        (3, {}, "digits, probe of x", 3),
        (3, {"seed": 2}, "digits, probe of x, seed=2", 3),
        (None, {"seed": 2}, "digits, probe of x", 2),
        (3, {"objective": "cosine"}, "digits, probe of x, cosine", 3),
    ],
)
def test_tables_read_a_transfer_by_its_source_model(source_seed, more, row, seed):
    source = {
        "path": "x",
        "weights_sha256": "0" * 64,
        "row": "x",
        "objective": "cosine:scale=10",
        "seed": source_seed,
    }
    result = TransferResult.model_validate({**RECORD, **more, "source_model": source})
    read = result.in_table(by_head=False)
    assert (read.row, read.objective, read.seed) == (row, "cosine:scale=10", seed)
    assert read.classifier == more.get("objective", "soft:bias=true")
