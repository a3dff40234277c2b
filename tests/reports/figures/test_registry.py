"""Files of figures: which are written, their names, the reasons for the others, same bytes."""

import json

import pytest

from marginctl.errors import RequestError
from marginctl.reports.figures import KINDS
from marginctl.reports.figures.registry import ALONE, draw_all
from marginctl.results.collect import Collected, collect
from tests.reports.figures.made import kappa_run, line, run, table

SIZES = ((10, 6.0), (100, 16.0))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Real runs: two objectives along a grid, two seeds."""
    from marginctl.cli import run as command

    folder = tmp_path_factory.mktemp("figures")
    (folder / "share.yaml").write_text(
        "task: train\n"
        "data: {name: digits}\n"
        "model: mlp\n"
        "objectives: [cosine-ls, 'lm-softmax:strength=0.5']\n"
        "train: {epochs: 2}\n"
        "grid: {data.subset_fraction: [0.1, 0.2]}\n"
        "seeds: [0, 1]\n"
    )
    arguments = ["train", str(folder / "share.yaml"), "--out", str(folder / "runs"), "--quiet"]
    assert command([*arguments, "--device", "cpu"]) == 0
    return folder / "runs"


def test_one_file_a_kind_and_a_reason_for_each_other(store, tmp_path):
    written, skipped = draw_all(collect([store]), tmp_path / "new" / "figures", [], "png")
    absent = ("options", "kappa-classes", "divergences", "curriculum", "lipschitz")
    assert sorted(p.name for p in (tmp_path / "new" / "figures").iterdir()) == sorted(
        [*(f"share-{kind}.png" for kind in KINDS if kind not in absent), "divergences.png"]
    )
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in written)
    assert [line.split(": ")[:3] for line in skipped] == [
        ["share", "angles", "lm-softmax:strength=0.5 (in 2 rows)"],
        ["share", "kappa", "lm-softmax:strength=0.5 (in 2 rows)"],
        ["share", "example", "lm-softmax:strength=0.5 (in 2 rows)"],
        ["share", "options", "no two objectives differ in one option that is a number"],
        ["share", "curriculum", "cosine-ls, lm-softmax:strength=0.5 (in 2 rows)"],
        ["share", "lipschitz", "cosine-ls, lm-softmax:strength=0.5 (in 2 rows)"],
        ["kappa-classes", "all runs with kappa* have 10 classes", "two numbers of them are needed"],
    ]


def test_every_kind_of_runs_has_its_caption_on_the_page():
    from marginctl.reports.formats.html.assemble import CAPTIONS

    assert set(CAPTIONS) == set(KINDS) - {ALONE}


def test_the_same_runs_give_the_same_bytes(store, tmp_path):
    asked = ["curves", "sweep", "angles"]
    for name in ("a", "b"):
        draw_all(collect([store]), tmp_path / name, asked, ".svg")
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert names == ["share-angles.svg", "share-curves.svg", "share-sweep.svg"]
    for name in names:
        text = (tmp_path / "a" / name).read_text()
        assert text == (tmp_path / "b" / name).read_text()
        assert "<dc:date>" not in text


def test_the_command_says_what_it_wrote_and_what_not(marginctl, store, tmp_path):
    arguments = ("report", store, "--figures", tmp_path, "--kind", "rho", "--kind", "angles")
    ran = marginctl(*arguments, "--figure-format", "svg", "--format", "json")
    assert ran.status == 0
    assert ran.json["command"] == "report"
    assert ran.err.splitlines() == [
        f"wrote {tmp_path}/share-rho.svg",
        f"wrote {tmp_path}/share-angles.svg",
        "not drawn: share: angles: lm-softmax:strength=0.5 (in 2 rows): no objective.target_angle "
        "by epoch: objectives on a cosine or an angle have it",
    ]
    nothing = marginctl("report", store, "--paper", "arcgrad", "--figures", tmp_path / "none")
    assert nothing.status == 0
    assert not list((tmp_path / "none").iterdir())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--figures", "x", "--kind", "curvs"), "--kind curvs: expected one of curves, rho"),
        (("--kind", "curves"), "add --figures DIR"),
        (("--figure-format", "svg"), "add --figures DIR"),
    ],
)
def test_mistakes_of_the_command(marginctl, store, options, said):
    ran = marginctl("report", store, *options)
    assert ran.status == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="its folder cannot be written: File exists"):
        draw_all(Collected(), tmp_path / "file", [], "png")
    with pytest.raises(RequestError, match="--figure-format gif: expected one of png, svg, pdf"):
        draw_all(Collected(), tmp_path, [], "gif")


def test_two_tables_of_one_name_have_two_files(tmp_path):
    tables = [table(run(tmp_path / str(i), "soft", 0, [line(1, 50)])) for i in (1, 2)]
    tables[1].training["train"] = {"epochs": 7}
    found = Collected(trained=tables)
    written, _ = draw_all(found, tmp_path / "out", ["curves"], "png")
    assert len({p.name for p in written}) == 2
    assert draw_all(found, tmp_path / "out", ["curves"], "png")[0] == written


def test_torn_metrics_are_drawn_as_far_as_they_go(store, tmp_path):
    found = collect([store])
    one = next(r for r in found.trained[0].runs.values() if r.record["objective"] == "cosine-ls")
    path = one.path / "metrics.jsonl"
    whole = path.read_text()
    try:
        path.write_text(whole[: len(whole) - 40])
        with pytest.raises(json.JSONDecodeError):
            json.loads(path.read_text().splitlines()[-1])
        written, _ = draw_all(found, tmp_path, ["curves", "kappa"], "png")
        assert len(written) == 2
        path.unlink()
        assert len(draw_all(found, tmp_path, ["curves", "kappa"], "png")[0]) == 2
    finally:
        path.write_text(whole)


def test_kappa_by_classes_is_one_file_of_all_tables(tmp_path):
    tables = [
        table(kappa_run(tmp_path / str(classes), classes, 0, mean)) for classes, mean in SIZES
    ]
    for i, one in enumerate(tables):
        one.recipe = f"made/{i}"
    written, skipped = draw_all(
        Collected(trained=tables), tmp_path / "out", ["kappa-classes"], "png"
    )
    assert [p.name for p in written] == ["kappa-classes.png"]
    assert skipped == []
    nothing, said = draw_all(Collected(), tmp_path / "none", ["kappa-classes"], "png")
    assert nothing == []
    assert said == [
        "kappa-classes: no run has state.optimal_scale and its number of classes: cosine-ls has "
        "them"
    ]


def test_divergences_are_drawn_where_they_are_asked_for(tmp_path):
    found = Collected(trained=[table(run(tmp_path / "r", "soft", 0, [line(1, 50)]))])
    _, skipped = draw_all(found, tmp_path / "out", [], "png")
    assert [s for s in skipped if s.startswith("divergences: no run has the regulariser")]
    written, skipped = draw_all(Collected(), tmp_path / "out", ["divergences"], "png")
    assert [p.name for p in written] == ["divergences.png"]
    assert not skipped


def test_drawing_imports_no_torch(store, tmp_path):
    from tests.test_rules import python

    code = f"""
import sys
from marginctl.cli import run
assert run(["report", {str(store)!r}, "--figures", {str(tmp_path)!r}, "--format", "csv"]) == 0
print("\\n" + str(sorted({{"torch", "torchvision", "sklearn", "pandas"}} & set(sys.modules))))
"""
    assert python(code).splitlines()[-1] == "[]"
