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

from marginctl.reports.formats.html import page as module
from marginctl.reports.formats.html.page import (
    Page,
    PageTable,
    Picture,
    Section,
    render,
    render_page,
)
from marginctl.reports.tables.published_table import SYMBOLS
from marginctl.reports.tables.table import Cell, Report, Row, Table
from marginctl.results.verdict import Verdict
from tests.reports.formats.html.factories import judged, page, published, run, table

HOSTILE = (
    """"><script>alert('1')</script></style></title></td>{{ 7*7 }}&amp;<img src=x onerror=a>"""
)
VOID = {"meta", "link", "img", "wbr", "br", "hr", "input"}
CSS = (Path(module.__file__).parent / "page.css").read_text()


class ParsedPage(HTMLParser):
    """The elements of a page; a tag that is not closed in order is an error."""

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
    def visible(self):
        return " ".join("".join(self.text).split())


PICTURE = Picture("Ranks", "<svg/>")


def with_figure(picture=PICTURE):
    """Return a page with a figure below its second table."""
    plain = page()
    first, *others = plain.sections
    tables = (first.tables[0], replace(first.tables[1], figures=(picture,)))
    return replace(plain, sections=(replace(first, tables=tables), *others))


def test_tags_are_closed_ids_are_unique_and_links_lead_somewhere():
    parsed = ParsedPage(render_page(page()))
    ids = [a["id"] for _, a, _ in parsed.elements if "id" in a]
    assert len(set(ids)) == len(ids)
    links = [a["href"] for a in parsed.all("a")]
    assert all(link.startswith("#") for link in links)
    assert {link[1:] for link in links} <= set(ids)
    labels = [n for _, a, _ in parsed.elements for n in a.get("aria-labelledby", "").split()]
    assert labels
    assert set(labels) <= set(ids)
    assert {f"#c{n}" for n in (1, 2, 3, 4, 5)} <= set(links)


def test_headings_go_down_one_level_at_a_time():
    parsed = ParsedPage(render_page(page()))
    levels = [int(tag[1]) for tag, _, _ in parsed.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))


def test_keyboards_and_screen_readers_can_use_it():
    parsed = ParsedPage(render_page(with_figure()))
    assert parsed.all("html") == [{"lang": "en"}]
    first = next(a for tag, a, _ in parsed.elements if tag == "a")
    assert (first["class"], first["href"]) == ("skip", "#main")
    outside = [a for tag, a, above in parsed.elements if tag == "table" and "div" not in above]
    assert outside == []  # each table is in a region that scrolls, by keys too
    regions = [a for a in parsed.all("div") if a.get("class") == "scroll"]
    assert len(regions) == len(parsed.all("table"))
    assert all(a["tabindex"] == "0" for a in regions)
    assert all("aria-labelledby" in a or "aria-label" in a for a in regions)
    assert all(a.get("scope") in ("col", "row") for a in parsed.all("th"))
    assert [a["alt"] for a in parsed.all("img")] == ["Ranks"]
    bars = [a for a in parsed.all("svg") if a.get("role") == "img"]
    assert len(bars) == 1
    assert all("reproduced" in a["aria-label"] for a in bars)


def test_several_published_tables_have_a_bar_in_all():
    one = Section("Papers", (published(), published()))
    parsed = ParsedPage(render_page(page(sections=(one,))))
    bars = [a["aria-label"] for a in parsed.all("svg") if a.get("role") == "img"]
    assert [label.split(":")[0] for label in bars] == ["12 cells", "6 cells", "6 cells"]


def test_answers_come_first_and_link_to_their_tables():
    answered = replace(table({("iris", "soft"): [run()]}), answers=("Best on iris: soft.",))
    sections = (*page().sections, Section("Your experiments", (PageTable(answered),)))
    text = render_page(page(sections=sections))
    anchor = re.search(r'<li><a href="#(t\d+)">Best on iris: soft.</a>', text).group(1)
    assert text.index('id="answers"') < text.index('id="summary"')
    assert re.search(rf'<h3 id="{anchor}">.*?<p class="answer">Best on iris', text, re.DOTALL)


def test_runs_of_a_published_table_are_folded_below_it():
    own = PageTable(table({("iris", "soft"): [run()]}), folded=True)
    text = render_page(page(sections=(Section("ArcGrad", (published(), own)),)))
    assert '<details><summary><h3 id="t2">Ours</h3>' in text
    ParsedPage(text)


def test_it_loads_nothing_and_runs_only_its_own_script():
    text = render_page(with_figure())
    parsed = ParsedPage(text)
    for tag, attributes, _ in parsed.elements:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            address = attributes.get(name, "#")
            assert address.startswith(("#", "data:")), (tag, address)
        assert not any(name.startswith("on") or name == "style" for name in attributes)
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text
    (policy,) = [a["content"] for a in parsed.all("meta") if a.get("http-equiv")]
    assert policy.startswith("default-src 'none'; img-src data:;")
    for tag in ("style", "script"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def hostile_page():
    """Return a page with the hostile text wherever a recipe, a file or a run can put text."""
    h = HOSTILE
    one_run = run(h, "soft", store=h, **{h: h, "note": {h: [h, h]}})
    one_run.info.recipe[h] = {h: h}
    one_run.info.git_commit = one_run.result.objective = h
    one_run.info.model_extra.update({h: h, "versions": {h: h}})
    compared = published(judged(runs=(one_run,), reason=h))
    cell = Cell(h, True, h, h, h, h, h, (one_run,))
    rows = (Row(h, (cell,)), Row(h, (cell,)), Row(h, (cell,), foot=True))
    detail = Table(h, h, h, h, (h,), (Row(h, (Cell(h),)),))
    ours = Table(h, h, h, h, (h,), rows, (h,), True, (detail,))
    changed = replace(compared.table, title=h, caption=h, notes=(h,))
    tables = (replace(compared, table=changed), PageTable(ours, figures=(Picture(h, h),)))
    section = Section(h, tables, h)
    return Page(h, (section, section), h, (h,), (h,), {h: h})


def test_text_of_recipes_files_and_runs_stays_text():
    parsed = ParsedPage(render_page(hostile_page()))
    plain = ParsedPage(render_page(page()))
    for tag in ("script", "style", "title"):
        assert len(parsed.all(tag)) == 1
    assert {tag for tag, _, _ in parsed.elements} <= {t for t, _, _ in plain.elements} | {
        *("img", "figure", "figcaption", "strong", "sup", "tfoot", "code")
    }
    assert all(a["src"].startswith("data:image/svg+xml;base64,") for a in parsed.all("img"))
    assert parsed.visible.count(HOSTILE) > 40
    assert "49" not in parsed.visible.replace(HOSTILE, "")


def test_a_figure_is_an_image_in_which_nothing_runs():
    figure = Figure()
    figure.subplots().set_title(HOSTILE)
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Title": HOSTILE, "Date": None})
    svg = written.getvalue()
    assert "alert" in svg
    parsed = ParsedPage(render_page(with_figure(Picture("Drawn", svg))))
    (image,) = parsed.all("img")
    assert base64.b64decode(image["src"].partition(",")[2]).decode() == svg
    assert len(parsed.all("script")) == 1


def test_characters_that_utf8_cannot_encode_are_replaced():
    text = render_page(page(problems=("runs/\udcff\x00\x1b[31m: corrupt",)))
    text.encode()
    assert "runs/\ufffd\ufffd\ufffd[31m: corrupt" in ParsedPage(text).visible


def test_the_order_of_sources_and_runs_does_not_change_the_page():
    sources, problems = [f"runs-{i}" for i in range(9)], [f"x{i}" for i in range(9)]
    runs = [run("digits", seed=s) for s in range(9)]
    pages = set()
    for seed in range(5):
        for items in (sources, problems, runs):
            random.Random(seed).shuffle(items)
        tables = (PageTable(table({("digits", "soft"): runs})),)
        sections = (Section("Your experiments", tables),)
        pages.add(
            render_page(page(sources=tuple(sources), problems=tuple(problems), sections=sections))
        )
    assert len(pages) == 1


@pytest.mark.parametrize("verdict", Verdict)
def test_each_verdict_is_in_its_cell_in_the_counts_and_in_the_legend(verdict):
    parsed = ParsedPage(render_page(page()))
    text = f"{SYMBOLS[verdict]} {verdict}"
    assert parsed.visible.count(f"1 {text}") == 2  # of its table, in its notes
    assert parsed.visible.count(text) == 2 + 2
    assert f"--{verdict.name}:" in CSS
    assert f".verdict.{verdict.name} " in CSS


def test_a_published_cell_has_both_values_the_verdict_and_links_to_its_runs():
    text = render_page(page())
    cell = re.search(r'<td id="t1-0-2">(.*?)</td>', text, re.DOTALL).group(1)
    assert ParsedPage(cell).visible == "93.00 ± 0.50 90.00 ± 1.00 ≠ differs"
    target = re.search(r'href="#(c\d+)"', cell).group(1)
    block = re.search(rf'<section class="run" id="{target}">(.*?)</section>', text, re.DOTALL)
    visible = ParsedPage(block.group(1)).visible
    assert "iris · soft" in visible
    assert "iris-soft-0" in visible
    assert "digest of iris" in visible
    assert "+2.25 to +3.75" in ParsedPage(text).visible


def test_the_largest_differences_are_listed_first_and_link_to_their_cells():
    one = published(judged([Verdict.differs] * 5, (run(),)))
    parsed = ParsedPage(render_page(page(sections=(Section("P", (one,)),))))
    links = [a["href"] for a in parsed.all("a") if a["href"].startswith("#t1-")][:3]
    assert links == ["#t1-0-4", "#t1-0-3", "#t1-0-2"]
    assert "AdaCos: +5.00: ours 95.00 ± 0.50, published 90.00 ± 1.00" in parsed.visible


def test_empty_sections_are_left_out():
    parsed = ParsedPage(render_page(Page("A report", ())))
    assert parsed.visible == "A report Skip to the content A report"
    one = Table("k", "T", "", "row", ("a",), (Row("x", (Cell("1"),)),))
    parsed = ParsedPage(render(Report([one], [], {})))
    for absent in ("Reproduction summary", "Runs", "Claims", "skipped"):
        assert absent not in parsed.visible


def test_a_title_with_a_protocol_is_a_short_heading_with_the_rest_below():
    one = table({("iris", "soft"): [run()]}, title="arcgrad/table1: lr=0.003, epochs=10")
    text = render_page(page(sections=(Section("P", (PageTable(one),)),)))
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


@pytest.mark.slow
def test_ten_thousand_runs_make_a_page_that_can_be_sent():
    stream = random.Random(0)
    cells = {
        (f"data-set-{i}", f"arcgrad:scale={j + 1}"): [
            run(
                f"data-set-{i}",
                f"arcgrad:scale={j + 1}",
                store="/home/somebody/runs/arcgrad/table1",
                accuracies=[[stream.uniform(0, 100) for _ in range(10)] for _ in range(10)],
                data="0" * 64,
                timing={"seconds": stream.random()},
            )
        ]
        for i in range(2000)
        for j in range(5)
    }
    long_page = page(sections=(Section("Your experiments", (PageTable(table(cells)),)),))
    started = time.process_time()
    text = render_page(long_page)
    assert time.process_time() - started < 5
    assert len(text.encode()) < 10_000_000
    assert text.count("data-set-1999-arcgrad:scale=4-0<") == 1
