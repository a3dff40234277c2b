"""The files of `report --figures`: names, reasons for omissions, same bytes."""

import json
import pkgutil

import pytest

from marginctl.errors import RequestError
from marginctl.reports.figures.draw import draw_figures
from marginctl.reports.figures.registry import FIGURES
from marginctl.results.collect import Collected, collect
from marginctl.runs.run_dir import file_digest
from tests.reports.figures.factories import kappa_run, record, run, trained_table

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


def test_a_file_per_kind_or_a_reason(store, tmp_path):
    written, skipped = draw_figures(collect([store]), tmp_path / "new" / "figures", [], "png")
    absent = {"option-sweep", "sample-difficulty", "input-gradient", "scale-by-classes"}
    absent.add("published")  # its tables are another argument
    assert sorted(p.name for p in (tmp_path / "new" / "figures").iterdir()) == sorted(
        f"share-{kind}.png" for kind in FIGURES if kind not in absent
    )
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in written)
    assert [line.split(": ")[:3] for line in skipped] == [
        ["share", "scale", "lm-softmax:strength=0.5 (in 2 rows)"],
        ["share", "example", "lm-softmax:strength=0.5 (in 2 rows)"],
        ["share", "option-sweep", "no two objectives differ in one option that is a number"],
        ["share", "sample-difficulty", "cosine-ls, lm-softmax:strength=0.5 (in 2 rows)"],
        ["share", "input-gradient", "cosine-ls, lm-softmax:strength=0.5 (in 2 rows)"],
        ["scale-by-classes", "all runs with kappa* have 10 classes", "expected two numbers"],
    ]


@pytest.mark.parametrize(
    "change", [lambda text: text.replace("60", "61"), lambda text: text[:-1], lambda text: "", None]
)
def test_a_run_whose_epochs_changed_is_named_and_not_drawn(tmp_path, change):
    runs = [run(tmp_path, "soft", seed, [record(1, 50), record(2, 60)]) for seed in (0, 1)]
    for one in runs:
        digest = file_digest(one.path / "metrics.jsonl")
        one.result.timing.sha256["metrics.jsonl"] = digest
    collected = Collected(training_runs=[trained_table(*runs)])
    unchanged, skipped = draw_figures(collected, tmp_path / "a", ["curves"], "svg")
    assert (len(unchanged), skipped) == (1, [])
    path = runs[0].path / "metrics.jsonl"
    if change is None:
        path.unlink()
    else:
        path.write_text(change(path.read_text()))
    written, skipped = draw_figures(collected, tmp_path / "a", ["curves"], "svg")
    assert skipped == [f"{runs[0].path}: metrics.jsonl has changed since the run finished"]
    assert len(written) == 1
    (runs[1].path / "metrics.jsonl").write_text("{}")
    written, skipped = draw_figures(collected, tmp_path / "a", ["curves"], "svg")
    assert (written, len(skipped)) == ({}, 2)


def test_every_kind_can_be_imported():
    for entry in FIGURES.values():
        assert callable(pkgutil.resolve_name(entry.path))


def test_the_same_runs_give_the_same_bytes(store, tmp_path):
    kinds = ["curves", "grid-sweep", "angles"]
    for name in ("a", "b"):
        draw_figures(collect([store]), tmp_path / name, kinds, "svg")
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert names == ["share-angles.svg", "share-curves.svg", "share-grid-sweep.svg"]
    for name in names:
        text = (tmp_path / "a" / name).read_text()
        assert text == (tmp_path / "b" / name).read_text()
        assert "<dc:date>" not in text


def test_the_command_lists_files_and_omissions(marginctl, store, tmp_path):
    arguments = ("report", store, "--figures", tmp_path, "--kind", "angles", "--kind", "scale")
    ran = marginctl(*arguments, "--figure-format", "svg", "--format", "json")
    assert ran.status == 0
    assert ran.json["command"] == "report"
    assert ran.err.splitlines() == [
        f"wrote {tmp_path}/share-angles.svg: Angles of test features to the target's class weight. "
        "Percentages are means over the seeds; the dashed line is the mean angle.",
        f"wrote {tmp_path}/share-scale.svg: Scale by epoch. Mean over the seeds. kappa*: mean and "
        "quantiles over the test images.",
        "figure omitted: share: scale: lm-softmax:strength=0.5 (in 2 rows): no "
        "scale of two epochs: least-squares, learned and AdaCos's scales record it",
    ]
    nothing = marginctl("report", store, "--paper", "arcgrad", "--figures", tmp_path / "none")
    assert nothing.status == 0
    assert not list((tmp_path / "none").iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--figures", "x", "--kind", "curvs"),
            "unknown figure 'curvs': expected one of comparison, published, curves, rho",
        ),
        (("--kind", "curves"), "need --figures FOLDER"),
        (("--figure-format", "svg"), "need --figures FOLDER"),
    ],
)
def test_mistakes_of_the_command(marginctl, store, options, message):
    ran = marginctl("report", store, *options)
    assert ran.status == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="its folder cannot be written: File exists"):
        draw_figures(Collected(), tmp_path / "file", [], "png")
    with pytest.raises(RequestError, match="--figure-format gif: expected one of png, svg, pdf"):
        draw_figures(Collected(), tmp_path, [], "gif")


def test_two_tables_of_one_recipe_have_two_files(tmp_path):
    tables = [
        trained_table(run(tmp_path / str(i), "soft", 0, [record(1, 50), record(2, 60)]))
        for i in (1, 2)
    ]
    tables[1].training["train"] = {"epochs": 7}
    found = Collected(training_runs=tables)
    written, _ = draw_figures(found, tmp_path / "out", ["curves"], "png")
    assert len({p.name for p in written}) == 2
    assert draw_figures(found, tmp_path / "out", ["curves"], "png")[0] == written


def test_incomplete_metrics_are_drawn_up_to_the_last_whole_line(store, tmp_path):
    found = collect([store])
    one = next(r for r in found.training_runs[0].runs.values() if r.result.objective == "cosine-ls")
    path = one.path / "metrics.jsonl"
    content = path.read_text()
    try:
        path.write_text(content[: len(content) - 40])
        with pytest.raises(json.JSONDecodeError):
            json.loads(path.read_text().splitlines()[-1])
        written, _ = draw_figures(found, tmp_path, ["curves", "scale"], "png")
        assert len(written) == 2
        path.unlink()
        assert len(draw_figures(found, tmp_path, ["curves", "scale"], "png")[0]) == 2
    finally:
        path.write_text(content)


def test_scale_by_classes_is_one_file_of_all_tables(tmp_path):
    tables = [
        trained_table(kappa_run(tmp_path / str(classes), classes, 0, mean))
        for classes, mean in SIZES
    ]
    for i, one in enumerate(tables):
        one.recipe = f"made/{i}"
    written, skipped = draw_figures(
        Collected(training_runs=tables), tmp_path / "out", ["scale-by-classes"], "png"
    )
    assert [p.name for p in written] == ["scale-by-classes.png"]
    assert skipped == []
    nothing, skipped = draw_figures(Collected(), tmp_path / "none", ["scale-by-classes"], "png")
    assert nothing == {}
    assert skipped == [
        "scale-by-classes: no run has state.optimal_scale and its number of classes: cosine-ls has"
    ]


def test_drawing_imports_no_torch(store, tmp_path):
    from tests.test_rules import python

    code = f"""
import sys
from marginctl.cli import run
assert run(["report", {str(store)!r}, "--figures", {str(tmp_path)!r}, "--format", "csv"]) == 0
print("\\n" + str(sorted({{"torch", "torchvision", "sklearn", "pandas"}} & set(sys.modules))))
"""
    assert python(code).splitlines()[-1] == "[]"


PLUGIN = """
from marginctl.reports.figures.registry import FigureEntry
from marginctl.utils.plugins import Plugin


def draw(table, omissions):
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().set_title(f"{len(table.groups)} groups")
    return figure


PLUGIN = Plugin({"figure": {"toy": FigureEntry(f"{__name__}:draw", "A toy")}})
"""


def test_a_plug_in_adds_a_figure(tmp_path, monkeypatch):
    path = tmp_path / "toy_figures.py"
    path.write_text(PLUGIN)
    monkeypatch.setenv("MARGINCTL_PLUGINS", str(path))
    runs = run(tmp_path / "r", "soft", 0, [record(1, 50)])
    found = Collected(training_runs=[trained_table(runs)])
    written, _ = draw_figures(found, tmp_path / "out", ["toy"], "png")
    assert list(written.values()) == ["A toy"]
    assert "toy" in FIGURES
