"""The page: whole, safe, the same, legible."""

import base64
import hashlib
import io
import itertools
import random
import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from marginctl.papers import Claim
from marginctl.reports.formats.html import page as module
from marginctl.reports.formats.html.page import PaperSection, Picture, Report, page
from marginctl.reports.tables.published_table import SYMBOLS
from marginctl.reports.tables.table import Cell, Row, Table, table_of_texts
from marginctl.results.verdict import Verdict
from tests.reports.formats.html.made import comparison, judged, report, run, sheet

HOSTILE = (
    """"><script>alert('1')</script></style></title></td>{{ 7*7 }}&amp;<img src=x onerror=a>"""
)
VOID = {"meta", "link", "img", "wbr", "br", "hr", "input"}
CSS = (Path(module.__file__).parent / "page.css").read_text()


class Read(HTMLParser):
    """A page as its elements; a tag that is not closed where it should be is an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.text = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs), tag
        self.elements.append((tag, dict(attrs), tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes, _ in self.elements if name == tag]

    @property
    def said(self):
        return " ".join("".join(self.text).split())


def test_every_tag_is_closed_every_id_is_there_once_and_every_link_leads_somewhere():
    read = Read(page(report()))
    ids = [a["id"] for _, a, _ in read.elements if "id" in a]
    assert len(set(ids)) == len(ids)
    links = [a["href"] for a in read.all("a")]
    assert all(link.startswith("#") for link in links)
    assert {link[1:] for link in links} <= set(ids)
    named = [n for _, a, _ in read.elements for n in a.get("aria-labelledby", "").split()]
    assert named
    assert set(named) <= set(ids)
    assert {f"#c{n}" for n in (1, 2, 3, 4, 5)} <= set(links)


def test_headings_go_down_one_level_at_a_time():
    read = Read(page(report()))
    levels = [int(tag[1]) for tag, _, _ in read.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))


def test_it_can_be_read_without_a_mouse_and_without_eyes():
    read = Read(page(report(figures={"own": (Picture("Ranks", "<svg/>"),)})))
    assert read.all("html") == [{"lang": "en"}]
    first = next(a for tag, a, _ in read.elements if tag == "a")
    assert (first["class"], first["href"]) == ("skip", "#main")
    outside = [a for tag, a, above in read.elements if tag == "table" and "div" not in above]
    assert outside == []  # each table in a region that scrolls, by keys too
    regions = [a for a in read.all("div") if a.get("class") == "scroll"]
    assert len(regions) == len(read.all("table"))
    assert all(a["tabindex"] == "0" for a in regions)
    assert all("aria-labelledby" in a or "aria-label" in a for a in regions)
    assert all(a.get("scope") in ("col", "row") for a in read.all("th"))
    assert [a["alt"] for a in read.all("img")] == ["Ranks"]
    bars = [a for a in read.all("svg") if a.get("role") == "img"]
    assert len(bars) == 2
    assert all("reproduced" in a["aria-label"] for a in bars)


def test_nothing_is_asked_of_any_network_and_nothing_foreign_runs():
    text = page(report(figures={"own": (Picture("Ranks", "<svg/>"),)}))
    read = Read(text)
    for tag, attributes, _ in read.elements:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            address = attributes.get(name, "#")
            assert address.startswith(("#", "data:")), (tag, address)
        assert not any(name.startswith("on") or name == "style" for name in attributes)
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text
    (policy,) = [a["content"] for a in read.all("meta") if a.get("http-equiv")]
    assert policy.startswith("default-src 'none'; img-src data:;")
    for tag in ("style", "script"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def hostile_report():
    """The hostile text in every place that a recipe, a file or a run can fill."""
    h = HOSTILE
    found = run(h, h, store=h, **{h: h, "note": {h: [h, h]}})
    found.about["recipe"][h] = {h: h}
    found.about[h] = found.about["git_commit"] = h
    found.about["versions"] = {h: h}
    made = comparison(judged(runs=(found,), reason=h))
    entry = Cell(h, True, h, h, h, h, h, (found,))
    details = (table_of_texts(h, [h, h], [[h, h]]),)
    rows = (Row(h, (entry,)), Row(h, (entry,)), Row(h, (entry,), foot=True))
    own = Table(h, h, h, h, (h,), rows, (h,), True, details)
    section = PaperSection(
        h,
        h,
        (replace(made, sheet=replace(made.sheet, title=h, caption=h, notes=(h,))),),
        (own,),
        (Claim(h, h, (h,), None), Claim("b", h, (), h)),
    )
    figures = {h: (Picture(h, h),), "x": (Picture(h, h),)}
    return Report(h, h, (h,), (h,), (section,), (own,), figures, {h: h})


def test_text_of_recipes_files_and_runs_stays_text():
    read = Read(page(hostile_report()))
    plain = Read(page(report()))
    assert len(read.all("script")) == len(read.all("style")) == len(read.all("title")) == 1
    assert {tag for tag, _, _ in read.elements} <= {t for t, _, _ in plain.elements} | {
        *("img", "figure", "figcaption", "strong", "sup", "tfoot", "code")
    }
    assert all(a["src"].startswith("data:image/svg+xml;base64,") for a in read.all("img"))
    assert read.said.count(HOSTILE) > 40
    assert "49" not in read.said.replace(HOSTILE, "")


def test_a_figure_is_an_image_in_which_nothing_runs():
    figure = Figure()
    figure.subplots().set_title(HOSTILE)
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Title": HOSTILE, "Date": None})
    drawn = written.getvalue()
    assert "alert" in drawn
    read = Read(page(report(figures={"own": (Picture("Drawn", drawn),)})))
    (image,) = read.all("img")
    assert base64.b64decode(image["src"].partition(",")[2]).decode() == drawn
    assert len(read.all("script")) == 1


def test_what_no_text_can_hold_is_replaced():
    text = page(report(problems=("runs/\udcff\x00\x1b[31m: damaged",)))
    text.encode()
    assert "runs/\ufffd\ufffd\ufffd[31m: damaged" in Read(text).said


def test_stores_in_any_order_give_the_same_page():
    stores, problems = [f"runs-{i}" for i in range(9)], [f"x{i}" for i in range(9)]
    runs = [run("digits", seed=s) for s in range(9)]
    pages = set()
    for seed in range(5):
        for some in (stores, problems, runs):
            random.Random(seed).shuffle(some)
        made = sheet({("digits", "soft"): runs})
        pages.add(page(report(stores=tuple(stores), problems=tuple(problems), sheets=(made,))))
    assert len(pages) == 1


@pytest.mark.parametrize("verdict", Verdict)
def test_each_verdict_stands_in_its_cell_and_in_the_counts(verdict):
    read = Read(page(report()))
    said = f"{SYMBOLS[verdict]} {verdict}"
    assert read.said.count(f"1 {said}") == 3  # of all tables, of its table, below its table
    assert read.said.count(said) == 3 + 2  # in its cell, and what it means
    assert f"--{verdict.name}:" in CSS
    assert f".verdict.{verdict.name} " in CSS


def test_a_cell_has_ours_the_papers_the_difference_and_leads_to_its_runs():
    text = page(report())
    cell = re.search(r'<td id="t1-0-2">(.*?)</td>', text, re.DOTALL).group(1)
    assert Read(cell).said == (
        "93.00 ± 0.50 (100) paper 90.00 ± 1.00 +3.00 [+2.25, +3.75] ≠ differs"
    )
    target = re.search(r'href="#(c\d+)"', cell).group(1)
    block = re.search(rf'<section class="run" id="{target}">(.*?)</section>', text, re.DOTALL)
    said = Read(block.group(1)).said
    assert "iris · soft" in said
    assert "iris-soft-0" in said
    assert "digest of iris" in said


def test_the_largest_differences_are_named_first_and_link_to_their_cells():
    made = comparison(judged([Verdict.differs] * 5, (run(),)))
    read = Read(page(report(papers=(PaperSection("P", "", (made,)),))))
    links = [a["href"] for a in read.all("a") if a["href"].startswith("#t1-")][:3]
    assert links == ["#t1-0-4", "#t1-0-3", "#t1-0-2"]
    assert "AdaCos: +5.00 [+4.25, +5.75]: ours 95.00 ± 0.50, published 90.00 ± 1.00" in read.said


def test_a_published_table_without_runs_is_named_and_not_shown():
    nothing = comparison(judged([Verdict.missing] * 3))
    read = Read(page(report(papers=(PaperSection("P", "", (nothing,)),), sheets=())))
    assert "1 table without runs" in read.said
    assert "No run was made for a published table." in read.said
    assert read.all("table") == []


def test_a_title_that_lists_a_protocol_is_a_short_heading_with_the_rest_below_it():
    made = sheet({("iris", "soft"): [run()]}, title="arcgrad/table1: lr=0.003, epochs=10")
    text = page(report(papers=(), sheets=(made,)))
    assert '<h3 id="t1">arcgrad/<wbr>table1</h3>' in text
    assert '<p class="source">lr=0.003, epochs=10</p>' in text


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a, b):
    """WCAG 2.2's ratio, 1 to 21."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # the known near miss


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible(scheme):
    light, dark = re.findall(r":root \{(.*?--.*?)\}", CSS, re.DOTALL)
    colors = dict(re.findall(r"--(\w+): (#\w{6});", light if scheme == "light" else dark))
    assert len(colors) == 13
    texts = ["text", "muted", "link", *(v.name for v in Verdict)]
    for text in texts:
        for ground in ("page", "panel", "target"):
            assert contrast(colors[text], colors[ground]) >= 4.5, (scheme, text, ground)
    assert re.findall(r"(?<!-)color: (?!var|inherit|light)[^;]*", CSS) == []


def test_ten_thousand_runs_make_a_page_that_can_be_sent():
    stream = random.Random(0)
    cells = {
        (f"data-set-{i}", f"arcgrad:scale={j}"): [
            run(
                f"data-set-{i}",
                f"arcgrad:scale={j}",
                store="/home/somebody/runs/arcgrad/table1",
                accuracies=[[stream.uniform(0, 100) for _ in range(10)] for _ in range(10)],
                data="0" * 64,
                timing={"seconds": stream.random()},
            )
        ]
        for i in range(2000)
        for j in range(5)
    }
    made = report(sheets=(sheet(cells),))
    started = time.process_time()
    text = page(made)
    assert time.process_time() - started < 5
    assert len(text.encode()) < 10_000_000
    assert text.count("data-set-1999-arcgrad:scale=4-0<") == 1
