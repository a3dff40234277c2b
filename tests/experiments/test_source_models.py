"""Which networks a list of starts names."""

import pytest

from marginctl.errors import RequestError
from marginctl.experiments.source_models import origins
from tests.results.factories import transfer_result

RECORD = {"row": "digits, probe of x", "objective": "soft:bias=true", "seed": 0}


def test_an_empty_folder_holds_no_start(tmp_path):
    with pytest.raises(RequestError, match="no finished trial is there"):
        origins([str(tmp_path)])


@pytest.mark.parametrize("damage", ["", "{", '{"schema": 1, "task": "uci-cv"}'])
def test_what_is_no_run_of_training_is_no_start(tmp_path, damage):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "run.json").write_text(damage)
    with pytest.raises(RequestError, match="no finished trial is there"):
        origins([str(tmp_path)])


@pytest.mark.parametrize(
    ("start_seed", "more", "row", "seed"),
    [
        (3, {}, "digits, probe of x", 3),
        (3, {"seed": 2}, "digits, probe of x, seed=2", 3),
        (None, {"seed": 2}, "digits, probe of x", 2),
        (3, {"objective": "cosine"}, "digits, probe of x, cosine", 3),
    ],
)
def test_a_report_reads_a_record_by_what_its_network_was_trained_with(start_seed, more, row, seed):
    start = {"objective": "cosine:scale=10", "seed": start_seed}
    found = transfer_result(**{**RECORD, **more, "source_model": start}).by_source_model()
    assert (found.row, found.objective, found.seed) == (row, "cosine:scale=10", seed)
    assert found.classifier == more.get("objective", "soft:bias=true")
