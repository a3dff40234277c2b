"""What uci-cv promises to take, against what it took."""

import pytest

# Seconds of CPU of whole commands on 2 shared cores, one worker, the mean of two: `arcgrad/table1`
# with soft, arcface and arcgrad:scale=5, 100 networks each.
MEASURED = {
    ("iris", "[10,10,10]", None): 5.2,
    ("iris", "[64,64]", None): 5.2,
    ("haberman,banknote-authentication", "[10,10,10]", None): 8.7,
    ("wholesale-customers,website-phishing", "[30,30,30]", None): 10.1,
    ("iris,breast-tissue", "[100,100]", 50): 19.9,
    ("forest-type-mapping", "[100,100]", 2): 5.9,
    ("banknote-authentication", "[64,64]", 10): 11.3,
}


@pytest.mark.needs_data
@pytest.mark.parametrize(("what", "seconds"), MEASURED.items())
def test_the_estimate_lies_within_a_factor_of_two(what, seconds, marginctl, data_dir, tmp_path):
    datasets, hidden, epochs = what
    arguments = [word for name in datasets.split(",") for word in ("--dataset", name)]
    for objective in ("soft", "arcface", "arcgrad:scale=5"):
        arguments += ["--objective", objective]
    arguments += ["--set", f"protocol.hidden={hidden}", "--workers", "1", "--out", tmp_path]
    if epochs:
        arguments += ["--set", f"protocol.epochs={epochs}"]
    planned = marginctl("uci-cv", "arcgrad/table1", *arguments, "--dry-run", "--json").json
    assert seconds / 2 < planned["dry_run"]["seconds"] < seconds * 2
