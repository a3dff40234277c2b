"""A metric and a format of one plug-in file, in every command and every format."""

import csv
import io

import pytest

PLUGIN = """
from marginctl.metrics.registry import Metric
from marginctl.reports.formats.registry import Format
from marginctl.utils.plugins import Plugin

def mean_max(*, features, logits, similarities, labels):
    return similarities.max(1).mean()

def headings(report, width):
    return "; ".join(" / ".join(table.columns) for table in report.tables)

PLUGIN = Plugin({
    "metric": {
        "mean-max": Metric("mean-max", "mean maximum", direction="higher", decimals=3,
                           function="own_plugin:mean_max")
    },
    "format": {"headings": Format("headings", "own_plugin:headings")},
})
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    file = tmp_path / "own_plugin.py"
    file.write_text(PLUGIN)
    monkeypatch.setenv("MARGINCTL_PLUGINS", str(file))


@pytest.mark.smoke
def test_every_command_and_format_has_them(marginctl, tmp_path, plugin):
    line = ["train", "--data", "digits", "--model", "mlp", "--objective", "cosine", "--epochs", "1"]
    line += ["--out", tmp_path / "runs", "--quiet"]
    document = marginctl(*line, "--json").json
    number = document["cells"][0]["metrics"]["mean-max"]["mean"]
    assert 0 < number <= 1
    shown = f"{number:.3f}"
    lines = marginctl(*line).out.splitlines()
    first = next(i for i, text in enumerate(lines) if text.startswith("data, model"))
    heading, row = lines[first].split(), lines[first + 2].split()
    assert heading[-3:-1] == ["mean", "maximum"]
    assert shown in row
    (record,) = csv.DictReader(io.StringIO(marginctl(*line, "--format", "csv").out))
    assert float(record["metrics_mean-max_mean"]) == number
    assert "mean maximum" in marginctl(*line, "--format", "headings").out

    report = ["report", tmp_path / "runs", "--format"]
    assert marginctl(*report, "json").json["trained"][0]["cells"] == document["cells"]
    (record,) = csv.DictReader(io.StringIO(marginctl(*report, "csv").out))
    assert float(record["mean-max_mean"]) == number
    for name in ("table", "markdown", "latex"):
        out = marginctl(*report, name).out
        assert "mean maximum" in out, name
        assert shown in out, name
    assert marginctl(*report, "headings").out == "cosine\n"
    page = tmp_path / "report.html"
    marginctl(*report, "html", "--output", page)
    assert "mean maximum" in page.read_text()
    assert shown in page.read_text()

    (folder,) = (path.parent for path in tmp_path.rglob("result.json"))
    evaluated = marginctl("eval", folder, "--json").json
    assert evaluated["metrics"]["mean-max"] == number
    lines = [line.split() for line in marginctl("eval", folder).out.splitlines()]
    assert ["mean", "maximum", shown] in lines


def test_an_unknown_format_is_named(marginctl):
    ran = marginctl("report", "--list", "--format", "markdwn")
    assert (ran.status, ran.out) == (2, "")
    assert "unknown format 'markdwn': expected one of table, markdown" in ran.err
    assert "Did you mean 'markdown'?" in ran.err
