"""`report --list`: the published tables, and what runs fill of them."""

import csv
import io

import pytest

pytestmark = pytest.mark.smoke


def test_it_lists_every_table_without_a_store(marginctl):
    ran = marginctl("report", "--list")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    (own,) = [line for line in lines if line.startswith("temperature ") and " 10 " in line[:20]]
    assert own.split()[-5:-2] == ["none", "22", "8"]
    assert own.rstrip().endswith("temperature/table10, temperature/table2-imagenet")
    assert any(
        "12a" in line and "all: the text available to us has a plot" in line for line in lines
    )
    assert "filled" not in ran.out


def test_every_format_has_the_same(marginctl):
    document = marginctl("report", "--list", "--format", "json").json
    assert document["problems"] == []
    found = {p["paper"]: p for p in document["papers"]}
    assert list(found) == ["arcgrad", "gradient-decay", "large-margin", "temperature"]
    (one,) = [t for t in found["arcgrad"]["tables"] if t["table"] == "I"]
    assert one["recipes"] == ["arcgrad/table1"]
    assert (one["unit"], one["n"], one["available"], one["delta"]) == ("percent", 100, 105, 1.0)
    text = marginctl("report", "--list", "--format", "csv").out
    rows = list(csv.DictReader(io.StringIO(text)))
    tables = [t for p in document["papers"] for t in p["tables"]]
    assert [r["table"] for r in rows] == [t["table"] for t in tables]
    markdown = marginctl("report", "--list", "--format", "markdown").out
    assert len(markdown.splitlines()) == len(rows) + 2  # with the head


def test_one_paper_and_one_table(marginctl):
    one = marginctl("report", "--list", "--paper", "large-margin", "--format", "json").json
    assert [p["paper"] for p in one["papers"]] == ["large-margin"]
    arguments = ("--paper", "large-margin", "--table", "port-2")
    rows = marginctl("report", "--list", *arguments, "--format", "csv").out.splitlines()
    assert len(rows) == 2
    assert rows[1].startswith("large-margin,port-2,\"The author's PyTorch port: ")


def test_the_runs_of_a_store_are_counted(marginctl, tmp_path, quick):
    arguments = ("uci-cv", "--dataset", "iris", "--workers", "1", "--quiet", "--out", tmp_path)
    assert marginctl(*arguments, "--objective", "soft").status == 0
    # another protocol is not comparable
    assert marginctl(*arguments, "--objective", "center", *quick).status == 0
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "run.json").write_text("[]")
    ran = marginctl("report", "--list", tmp_path, "--format", "json", "--paper", "arcgrad")
    counts = {t["table"]: t["filled"] for t in ran.json["papers"][0]["tables"]}
    assert counts == {**dict.fromkeys(("II", "III", "IV", "V", "VI", "VII"), 0), "I": 1}
    assert len(ran.json["problems"]) == 1
    assert "run.json is corrupt (a list" in ran.err
    assert "filled" in marginctl("report", "--list", tmp_path).out.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "RUNS is missing, and there is no folder runs: expected runs folders"),
        (("--list", "--figure", "a.png"), "--figure: cannot be combined with --list"),
        (("--list", "--kind", "curves"), "--kind: cannot be combined with --list"),
        (("--list", "--paper", "arcgrat"), "Did you mean 'arcgrad'?"),
        (("--list", "--paper", "arcgrad", "--table", "VIX"), "unknown table 'VIX' of arcgrad"),
        (("--list", "--table", "99"), "unknown table '99': expected one of I, II, "),
        (("--list", "nowhere"), "nowhere: no such runs folder"),
    ],
)
def test_mistakes(marginctl, arguments, message):
    ran = marginctl("report", *arguments)
    assert ran.status == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["latex", "html"])
def test_the_list_in_other_formats(marginctl, name, tmp_path):
    file = tmp_path / "list"
    ran = marginctl("report", "--list", "--format", name, "--output", file)
    assert (ran.status, ran.err) == (0, f"wrote {file}\n")
    assert "CIFAR-100, 13-layer network" in file.read_text()


def test_claims_in_every_format(marginctl, tmp_path):
    document = marginctl("report", "--claims", "--format", "json").json
    found = {p["paper"]: p["claims"] for p in document["papers"]}
    assert list(found) == ["arcgrad", "gradient-decay", "large-margin", "temperature"]
    assert all(claim["place"] and claim["verdict"] for claims in found.values() for claim in claims)
    one = ("report", "--claims", "--paper", "large-margin", "--format")
    rows = list(csv.DictReader(io.StringIO(marginctl(*one, "csv").out)))
    assert [row["claim"] for row in rows] == [claim["claim"] for claim in found["large-margin"]]
    measured = rows[0]
    assert (measured["verdict"], measured["evidence_n"]) == ("no significant difference", "5")
    for name in ("table", "markdown", "latex", "html"):
        file = tmp_path / name
        assert marginctl(*one, name, "--output", file).status == 0
        text = file.read_text()
        assert "sparse-losses-train-nothing" in text.replace("<wbr>", "").replace("\\-", "-")
        assert "never run" in text


def test_claims_are_of_the_papers_alone(marginctl, tmp_path):
    for more, name in (
        ((tmp_path,), "RUNS"),
        (("--list",), "--list"),
        (("--table", "1"), "--table"),
    ):
        ran = marginctl("report", "--claims", *more)
        assert (ran.status, ran.err.splitlines()) == (
            2,
            [f"error: {name}: cannot be combined with --claims: remove one of them"],
        )
