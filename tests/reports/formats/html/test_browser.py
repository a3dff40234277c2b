"""The page in a browser: nothing clipped, no error, accessible, sorted and filtered by a click.

Needs playwright, a Chromium on the PATH, and AXE_CORE, the path of axe-core's axe.min.js.
"""

import os
import shutil

import pytest

from marginctl.reports.formats.html.page import PageTable, Section, render_page
from tests.reports.formats.html.factories import page, run, table

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium"),
]

# elements that reach beyond the window, outside regions that scroll
CLIPPED = """() => [...document.querySelectorAll("main *, header *")]
  .filter((e) => !e.closest(".scroll") && !e.closest("svg") && e.checkVisibility())
  .filter((e) => { const box = e.getBoundingClientRect();
                   return box.width && (box.left < 0 || box.right > innerWidth + 0.5); })
  .map((e) => e.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def address(tmp_path):
    """A page with a wide table, long names and runs of several rows."""
    rows = ("breast-cancer-wisconsin-prognostic", "iris", "wine", "user-knowledge-modeling")
    scales = map("arcgrad:scale={}".format, range(1, 7))
    columns = ("soft", "center", "arcface:margin=0.1,scale=20", *scales)
    cells = {(d, o): [run(d, o, seed=s) for s in range(3)] for d in rows for o in columns}
    wide = PageTable(table(cells, answers=("Best on iris: arcgrad:scale=5 95.2 %.",)))
    sections = (*page().sections, Section("A wide table", (wide,)))
    (tmp_path / "page.html").write_text(render_page(page(sections=sections)), "utf-8")
    return (tmp_path / "page.html").as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_clipped_and_axe_finds_nothing(browser, address, width, scheme):
    opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    errors = []
    opened.on("console", lambda message: errors.append(message.text))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto(address)
    for folded in (True, False):
        if not folded:
            opened.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        assert opened.evaluate(CLIPPED) == []
        assert opened.evaluate("() => document.documentElement.scrollWidth") <= width
    assert errors == []
    axe = os.environ.get("AXE_CORE")
    if axe is None:
        pytest.skip("AXE_CORE is not set: boxes and errors were checked alone")
    with open(axe, encoding="utf-8") as file:
        opened.evaluate(file.read())  # the page's policy forbids a script element
    found = opened.evaluate("() => axe.run()")["violations"]
    assert [(one["id"], [n["html"] for n in one["nodes"]][:3]) for one in found] == []


def test_a_click_sorts_and_a_text_filters(browser, address):
    opened = browser.new_page()
    opened.goto(address)
    own = opened.locator("section:has(> h2:text('A wide table')) table").first
    heading = own.locator("thead th").first
    names = own.locator("tbody th")
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    ascending = names.all_inner_texts()
    assert ascending == sorted(ascending)
    heading.locator("button").click()
    assert names.all_inner_texts() == ascending[::-1]
    opened.get_by_label("Show runs with").fill("wine · arcgrad:scale=5")
    shown = opened.locator(".run:visible h4").all_inner_texts()
    assert [text.split(" ↩")[0] for text in shown] == ["wine · arcgrad:scale=5"]


def test_by_keyboard_and_in_print(browser, address):
    """Tab reaches the skip link first, and Enter opens and sorts; print opens what is folded."""
    opened = browser.new_page()
    opened.goto(address)
    opened.keyboard.press("Tab")
    assert opened.evaluate("() => document.activeElement.className") == "skip"
    heading = opened.locator("section:has(> h2:text('A wide table')) table thead th").first
    heading.locator("button").focus()
    opened.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    folded = opened.locator("section.paper details:not([open])")
    before = folded.count()
    folded.first.locator("summary").first.focus()
    opened.keyboard.press("Enter")
    assert folded.count() == before - 1
    opened.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    opened.emulate_media(media="print")
    assert folded.count() == 0
    assert opened.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
