"""The claims: their table, and the pages that show it.

Rewrite the pages from the data: python -m tests.reports.tables.test_claims_table
"""

import itertools
import re
import shlex
from pathlib import Path

import pytest

from marginctl.objectives.parsing import parse
from marginctl.papers import NEVER_RUN, papers
from marginctl.recipe.load import shipped_recipes
from marginctl.reports.formats import terminal
from marginctl.reports.formats.markdown import markdown
from marginctl.reports.tables.claims_table import claims_report, claims_summary, claims_table

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"(<!-- claims -->\n).*?(<!-- end of claims -->\n)", re.DOTALL)
CLAIMS = [(paper, claim) for paper in papers() for claim in paper.claims]
IDS = [f"{paper.name}/{claim.id}" for paper, claim in CLAIMS]
# Texts that we have, with their sections, equations, figures and tables; other sources are named.
PLACES = {
    "arcgrad": r"(Sec\.|Tables?|Fig\.|eq\.) ",
    "large-margin": r"(Sec\.|Tables?|Fig\.|eqs?\.) ",
    "temperature": r"supplement, (Sec\.|Tables?|Fig\.|eqs?\.) |abstract \(ICCV 2025",
    "gradient-decay": r"abstract$|reviews$|later abstract",
}


def page(paper):
    path = ROOT / "recipes" / paper.name / "README.md"
    text = path.read_text("utf-8")
    shown = BLOCK.sub(lambda m: m[1] + markdown(claims_table(paper)) + "\n" + m[2], text)
    return path, text, shown


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.name)
def test_the_page_shows_the_data(paper):
    _, text, shown = page(paper)
    assert len(BLOCK.findall(text)) == 1
    assert text == shown


@pytest.mark.parametrize(("paper", "claim"), CLAIMS, ids=IDS)
def test_every_claim_has_a_place_and_what_tests_it(paper, claim):
    assert re.match(PLACES[paper.name], claim.place)
    assert claim.recipes or claim.command or claim.test or claim.verdict == NEVER_RUN
    assert set(claim.recipes) <= set(shipped_recipes())
    words = shlex.split(claim.command or "")
    for option, value in itertools.pairwise(words):
        if option == "--objective":
            assert str(parse(value))
    if claim.evidence is not None:
        assert (ROOT / "recipes" / paper.name / claim.evidence.file).is_file()
        assert claim.evidence.commit or not claim.evidence.file.endswith(".json")


def test_the_last_lines_count_verdicts():
    by_name = {paper.name: claims_summary(paper.claims) for paper in papers()}
    assert by_name["gradient-decay"] == [
        "10 claims: 9 judged by runs, 1 by a test, 0 never run",
        "runs: 7 at n = 5 seeds, 2 at n = 3 seeds",
    ]


def test_the_text_of_evidence():
    (row,) = [
        row
        for row in claims_table(next(p for p in papers() if p.name == "large-margin")).rows
        if row.label == "super-symmetry-does-not-help"
    ]
    assert row.cells[-2].text == "no significant difference"
    assert row.cells[-1].text == (
        "accuracy +0.33 points (97.50 against 97.17 %) (n = 5 seeds, 95 % interval -0.12 to +0.78, "
        "Holm-adjusted p = 0.110; results/regularizers-smoke.json at 01482a6)"
    )


def test_records_have_every_key():
    report = claims_report(papers())
    assert len({tuple(record) for record in report.records}) == 1
    assert len(report.records) == len(CLAIMS)
    assert {"evidence_n", "evidence_p", "never_run_time", "place"} <= set(report.records[0])


if __name__ == "__main__":
    for paper in papers():
        path, _, shown = page(paper)
        path.write_text(shown, "utf-8")


@pytest.mark.parametrize("width", [60, 100, None])
def test_a_terminal_has_a_paragraph_for_each_claim(width):
    report = claims_report([p for p in papers() if p.name == "large-margin"])
    lines = terminal.render(report, width).splitlines()
    assert "super-symmetry-does-not-help" in [re.sub(r"\x1b\[[\d;]*m", "", s) for s in lines]
    assert all(s == s.rstrip() for s in lines) or width is not None
