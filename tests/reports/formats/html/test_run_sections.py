"""Each run is written once, and what many share once for all."""

from marginctl.reports.formats.html.contents import Report, parts
from marginctl.reports.formats.html.run_sections import book
from tests.reports.formats.html.made import comparison, judged, report, run, sheet


def of(*sheets):
    return book(parts(Report("", "", sheets=sheets)))


def test_what_all_runs_of_a_table_share_is_written_once():
    (group,) = of(
        sheet({("iris", "soft"): [run()], ("wine", "soft"): [run("wine", rows=9)]})
    ).groups
    assert group.settings["protocol.lr"] == "0.003"
    assert group.results == {
        "accuracies": "90, 91, 92, 93",
        "diverged": "0 networks",
    }
    assert [block.settings for block in group.blocks] == [(), ()]
    assert [[f.name for f in block.results] for block in group.blocks] == [[], ["rows"]]
    assert group.folder == "runs/"
    assert [block.origin[0].texts for block in group.blocks] == [("iris-soft-0",), ("wine-soft-0",)]


def test_the_runs_of_a_cell_stand_side_by_side_in_the_order_of_their_seeds():
    seeds = [run(seed=s, top1=90.0 + s, n=5) for s in (2, 0, 1)]
    (group,) = of(
        sheet({("iris", "soft"): seeds, ("iris", "arcface"): [run("iris", "arcface")]})
    ).groups
    block = group.blocks[0]
    assert block.heads == ("seed 0", "seed 1", "seed 2")
    texts = {fact.name: fact.texts for fact in block.results}
    assert texts == {"top1": ("90", "91", "92"), "n": ("5",)}


def test_a_run_behind_two_cells_is_written_in_the_smaller_one():
    few, more = [run(seed=0)], [run(seed=0), run(seed=1)]
    made = of(sheet({("iris", "soft"): more, ("iris", "best"): few}))
    wide, narrow = made.groups[0].blocks
    assert (wide.heads, narrow.heads) == (("seed 1",), ("seed 0",))
    assert wide.elsewhere == ((narrow.number, "iris · soft"),)
    assert made.number(more[::-1]) == wide.number


def test_a_published_table_leads_to_the_runs_below_our_own():
    made = book(parts(report()))
    assert [group.table.sheet.title for group in made.groups] == ["Ours", "Ours"]
    assert made.number((run(),)) == 1
    alone = book(parts(report(papers=report().papers[:1], sheets=())))
    assert len(alone.groups) == 1


def test_runs_of_a_published_table_alone_stand_under_its_name():
    section = report().papers[0]
    other = comparison(judged(runs=(run("other"),)))
    shown = Report("", "", papers=(type(section)("P", "", (other,)),))
    (group,) = book(parts(shown)).groups
    assert group.table.sheet is other.sheet
    assert group.blocks[0].back == "t1-0-0"


def test_environments_are_numbered_and_written_once():
    new = run("wine")
    new.about["device"] = "cuda"
    made = of(
        sheet({("iris", "soft"): [run()], ("wine", "soft"): [new]}), sheet({("x", "y"): [run("x")]})
    )
    assert [e["device"] for e in made.environments] == ["cpu", "cuda"]
    assert [b.environments for b in made.groups[0].blocks] == [(1,), (2,)]
    assert made.groups[1].environment == 1
    assert made.groups[1].blocks[0].environments == ()
