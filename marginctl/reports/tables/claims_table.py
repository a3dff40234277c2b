"""The claims of papers with verdict and evidence: `report --claims`, the pages, the HTML report."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from marginctl.papers import NEVER_RUN, Claim, Paper
from marginctl.reports.tables.table import Report, Table, flat_record, format_p, table_of_texts
from marginctl.utils.text import count_noun

COLUMNS = ("claim", "statement", "place", "tested by", "verdict", "evidence")


def claims_report(papers: Sequence[Paper]) -> Report:
    """Return what `report --claims` prints: a table of the claims of each paper."""
    documents = [
        {
            "paper": paper.name,
            "title": paper.title,
            "summary": "; ".join(claims_summary(paper.claims)),
            "claims": [_document(claim) for claim in paper.claims],
        }
        for paper in papers
    ]
    records = [
        flat_record({"paper": paper.name, **_document(claim)})
        for paper in papers
        for claim in paper.claims
    ]
    keys = dict.fromkeys(key for record in records for key in record)
    return Report(
        [claims_table(paper) for paper in papers],
        [{key: record.get(key) for key in keys} for record in records],
        {"schema": 1, "command": "report", "papers": documents},
        title="Claims",
    )


def claims_table(paper: Paper) -> Table:
    return table_of_texts(
        "",
        COLUMNS,
        [
            [claim.id, claim.statement, claim.place, _tested_by(claim), claim.verdict, _why(claim)]
            for claim in paper.claims
        ],
        key=f"{paper.name}-claims",
        title=f"{paper.name}: claims",
        notes=claims_summary(paper.claims),
        text_columns=len(COLUMNS) - 1,
        sentences=True,
    )


def claims_summary(claims: Sequence[Claim]) -> list[str]:
    """Return how many claims have a verdict from runs, from a test alone, or none; and every n."""
    runs = Counter(count_noun(c.evidence.n, c.evidence.of) for c in claims if c.evidence)
    never = sum(claim.verdict == NEVER_RUN for claim in claims)
    by_test = len(claims) - runs.total() - never
    lines = [
        f"{count_noun(len(claims), 'claim')}: {runs.total()} judged by runs, {by_test} by a test, "
        f"{never} {NEVER_RUN}"
    ]
    sizes = ", ".join(f"{count} at n = {n}" for n, count in runs.items())
    return lines + ([f"runs: {sizes}"] if sizes else [])


def _document(claim: Claim) -> dict[str, Any]:
    """Return a claim as JSON; a verdict without runs has no evidence."""
    return {"claim": claim.id} | claim.model_dump(exclude={"id"})


def _tested_by(claim: Claim) -> str:
    tests = [*claim.recipes, *filter(None, (claim.command, claim.test))]
    reduced = [f"reduced: {claim.reduced}"] if claim.reduced else []
    return "; ".join([*tests, *reduced]) or "nothing yet"


def _why(claim: Claim) -> str:
    """Return the evidence in one text, or why there is none."""
    if claim.never_run is not None:
        return f"{claim.never_run.reason}; time: {claim.never_run.time}"
    if claim.evidence is None:
        return "the test"
    one = claim.evidence
    interval = ""
    if one.interval is not None:
        low, high = one.interval
        interval = f", 95 % interval {low:+g} to {high:+g}"
    p = "" if one.p is None else f", Holm-adjusted p = {format_p(one.p)}"
    commit = f" at {one.commit}" if one.commit else ""
    return f"{one.result} (n = {count_noun(one.n, one.of)}{interval}{p}; {one.file}{commit})"
