"""Stores with every kind of damage: the whole runs are shown, the others are named."""

import json
import os
import shutil
from pathlib import Path

import pytest

from marginctl.results.collect import collect, run_folders
from marginctl.runs import safe_read
from tests.reports.stores import another, change_result, change_run, copied, make, trial
from tests.results.factories import cv_result, cv_run

FORMATS = ("table", "markdown", "latex", "csv", "json", "html")
NAMES = {"u": "iris-soft", "t": "digits-mlp-soft"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make(tmp_path_factory.mktemp("whole") / "store")


def text(file, content):
    def damage(folder):
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())

    return damage


def replaced(file, make_other):
    def damage(folder):
        (folder / file).unlink()
        make_other(folder / file)

    return damage


def cut(file):
    def damage(folder):
        path = folder / file
        path.write_bytes(path.read_bytes()[:-30])

    return damage


def run(**changes):
    return lambda folder: change_run(folder, **changes)


def result(**changes):
    return lambda folder: change_result(folder, **changes)


def only(*names):
    def damage(folder):
        for path in folder.iterdir():
            if path.name not in names:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


def huge(path):
    with path.open("wb") as file:
        file.truncate(40 * 2**20)  # of zeros, which take no room


def other_task(folder):
    there = next(p for p in folder.parent.parent.rglob("result.json") if "digits" in str(p))
    shutil.copy(there, folder / "result.json")


NAN = '{"schema": 1, "trial": NaN}'
NOT_THIS = "result.json is not a result of this trial "
DAMAGE = {
    "no run.json": ("u", only("result.json", "metrics.jsonl"), "run.json is missing"),
    "an empty run.json": ("u", text("run.json", " \n"), "run.json is corrupt (empty)"),
    "a torn run.json": ("t", cut("run.json"), "run.json is corrupt (invalid JSON: line "),
    "run.json in Latin-1": ("u", text("run.json", b'{"a": "\xe9"}'), "(not UTF-8: byte 7)"),
    "a list": ("u", text("run.json", "[1]"), "run.json is corrupt (a list: expected an object)"),
    "null": ("u", text("run.json", "null"), "run.json is corrupt ('None': expected an object)"),
    "a seed in words": (
        "t",
        run(seed="x"),
        "run.json is corrupt (seed = 'x': expected an integer",
    ),
    "no numerics": ("u", run(numerics=...), "run.json is corrupt ('numerics' is missing)"),
    "a recipe without folds": (
        "u",
        run(recipe__protocol__folds=0),
        "its recipe does not fit this version: ",
    ),
    "no recipe": ("t", run(recipe=...), "run.json is corrupt ('recipe' is missing)"),
    "a future schema": ("u", run(schema=2), "run.json has schema = '2': expected 1"),
    "a huge run.json": ("u", replaced("run.json", huge), "run.json is too large: 41943040 bytes"),
    "a folder run.json": ("u", replaced("run.json", Path.mkdir), "run.json is not a regular file"),
    "NaN in run.json": ("t", text("run.json", NAN), "corrupt (NaN, which is not JSON)"),
    "deep JSON": ("u", text("run.json", "[" * 10**5), "run.json is corrupt (nested too deeply)"),
    "infinite": (
        *(
            "u",
            lambda f: text("run.json", (f / "run.json").read_text().replace("0.003", "1e999"))(f),
        ),
        "run.json is corrupt (a number is infinite)",
    ),
    "another task": ("u", run(task="sing"), "run.json is of the task 'sing': expected one of"),
    "no such task": ("u", run(task=["train"]), "run.json is of the task "),
    "missing plug-in": (
        *("t", run(objective="focal", plugins=["focal 1.0"])),
        "needs focal 1.0, which is not installed: install it or add it to MARGINCTL_PLUGINS",
    ),
    "no such model": ("t", run(recipe__model="gone"), "its recipe does not fit this version: "),
    "an unknown setting": (
        "t",
        run(recipe__train__x=1),
        "does not fit this version: unknown key 'train.x'",
    ),
    "a torn result": ("u", cut("result.json"), "result.json is corrupt (invalid JSON: line "),
    "an empty result": ("t", text("result.json", ""), "result.json is corrupt (empty)"),
    "a result in Latin-1": ("u", text("result.json", b"\xff"), "result.json is corrupt (not UTF-8"),
    "NaN in a result": ("u", text("result.json", NAN), "corrupt (NaN, which is not JSON)"),
    "infinite result": (
        *("u", text("result.json", '{"a": 1e999, "sha256": ""}')),
        "result.json is corrupt (a number is infinite)",
    ),
    "a flipped digit": (
        *(
            "u",
            lambda f: text("result.json", (f / "result.json").read_text().replace("51", "52"))(f),
        ),
        "result.json is corrupt (checksum mismatch)",
    ),
    "a future result": ("t", result(schema=9), "result.json has schema = '9': expected 1"),
    "of another trial": (
        "u",
        result(trial="x"),
        NOT_THIS + "(trial = 'x', and run.json has 'iris-s",
    ),
    "of another seed": ("t", result(seed=7), NOT_THIS + "(seed = '7', and run.json has '0')"),
    "of another task": ("u", other_task, NOT_THIS + "('dataset' is missing)"),
    "an accuracy of 101": (
        *("u", result(accuracies=[[101.0, 1.0, 1.0]] * 2)),
        NOT_THIS + "(accuracies.0.0 = 101.0: expected less than or equal to 100)",
    ),
    "no versions": ("t", result(versions=...), NOT_THIS + "('versions' is missing)"),
    "no time": ("t", result(timing={}), NOT_THIS + "('timing.seconds' is missing)"),
    "no such objective": ("u", result(objective="nix"), NOT_THIS + "(unknown objective 'nix'"),
    "a folder result.json": (
        "u",
        replaced("result.json", Path.mkdir),
        "result.json is not a regular file",
    ),
    "a dangling link": (
        *("u", replaced("result.json", lambda p: p.symlink_to("nowhere"))),
        "not finished",
    ),
    "a loop of links": (
        *("u", replaced("result.json", lambda p: p.symlink_to("result.json"))),
        "result.json cannot be read: Too many levels of symbolic links",
    ),
    "a pipe run.json": (
        "t",
        replaced("run.json", os.mkfifo),
        "run.json is not a regular file",
    ),
    "a device": (
        *("u", replaced("result.json", lambda p: p.symlink_to("/dev/zero"))),
        "result.json is not a regular file",
    ),
    "a huge result": ("t", replaced("result.json", huge), "result.json is too large"),
    "unreadable": ("u", lambda folder: None, "result.json cannot be read: Permission denied"),
    "failed": (
        *("u", lambda f: (only("run.json")(f), text("error.txt", "Traceback")(f))),
        "failed, see error.txt",
    ),
    "unfinished": ("t", only("run.json", ".lock", "checkpoints", "metrics.jsonl"), "not finished"),
    "checkpoints alone": ("t", only("checkpoints"), "run.json is missing"),
    "metrics alone": ("u", only("metrics.jsonl"), "run.json is missing"),
    "a name\n\x1b[31m with blanks é": ("u", cut("result.json"), "result.json is corrupt"),
}


@pytest.fixture
def damaged(whole, tmp_path, monkeypatch):
    """A copy of the store with every kind of damage in a folder of its own."""
    store = copied(whole, tmp_path / "store")
    for name, (kind, damage, _) in DAMAGE.items():
        damage(copied(trial(whole, NAMES[kind]), store / "damage" / name))

    def refuse(path, *arguments, **options):
        if "unreadable" in str(path) and str(path).endswith("result.json"):
            raise PermissionError(13, "Permission denied", str(path))
        return open(path, *arguments, **options)

    monkeypatch.setattr(
        safe_read, "open", refuse, raising=False
    )  # permission bits do not hold root back
    return store


def test_every_damage_is_named_in_every_format_and_the_whole_runs_are_shown(
    marginctl, damaged, whole, tmp_path
):
    assert len(DAMAGE) > 40
    before = marginctl("report", whole, "--format", "json").json
    for form in FORMATS:
        page = tmp_path / "page.html"
        ran = marginctl(
            *("report", damaged, "--format", form), *(("--output", page) if form == "html" else ())
        )
        assert ran.status == 0, form
        assert "\x1b" not in ran.err + ran.out
        lines = [line for line in ran.err.splitlines() if not line.startswith("wrote ")]
        assert len(lines) == len(DAMAGE), form
        for name, (_, _, message) in DAMAGE.items():
            shown = name.encode("unicode_escape").decode().replace("\\xe9", "é")
            (line,) = (s for s in lines if s.startswith(f"{damaged / 'damage' / shown}: "))
            assert message in line
            assert line.endswith(": skipped")
        if form == "json":
            assert ran.json["problems"] == lines
            assert {**ran.json, "problems": []} == before


def test_what_is_not_damage_is_not_complained_of(marginctl, whole, tmp_path):
    store = copied(whole, tmp_path / "store")
    soft, cosine = trial(store, "digits-mlp-soft"), trial(store, "digits-mlp-cosine")
    with (soft / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2, "tr')
    (cosine / "metrics.jsonl").unlink()
    (soft / ".lock").touch()  # of a dead process
    (soft / ".tmp-abc").write_text("{")
    (store / "notes.txt").write_text("hello")
    (store / "notes").mkdir()
    (store / "up").symlink_to(store)
    change_run(soft, unknown={"key": 1})
    change_result(
        soft, evaluation=..., state=..., timing={"seconds": 1.0}, unknown=1
    )  # an older one
    change_result(trial(store, "iris-soft"), versions={"torch": "1.0", "numpy": "1.0"})
    ran = marginctl("report", store, "--format", "json")
    assert ran.err == ""
    tables = marginctl("report", whole, "--format", "json").json["tables"]
    assert ran.json["tables"] == tables
    assert {c["objective"] for t in ran.json["trained"] for c in t["cells"]} == {"soft", "cosine"}
    for form in FORMATS[:4]:
        assert marginctl("report", store, "--format", form).status == 0


def test_folders_nested_deeper_than_python_calls(tmp_path, whole):
    store = copied(whole, tmp_path / "s")
    here = os.open(store, os.O_RDONLY)
    depth = 1200
    try:
        for _ in range(depth):
            os.mkdir("d", dir_fd=here)
            inner = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
        assert len(run_folders([store], [])) == 4
    finally:
        os.close(here)
        path = str(store) + "/d" * depth
        while path != str(store):
            os.rmdir(path)
            path = path[:-2]


def test_of_two_runs_of_one_cell_the_later_stays(whole, tmp_path):
    store = copied(whole, tmp_path / "store")
    for start, numerics in (("iris-soft", 99), ("digits-mlp-soft", 98)):
        old = trial(store, start)
        new = another(old, store / "later" / f"again-{start}")
        change_run(new, numerics=numerics)
    collected = collect([store])
    assert [p.partition(": ")[2] for p in collected.problems] == [
        "a later run has that cell: skipped"
    ] * 2
    kept = {r.info.numerics for t in collected.cv_runs for r in t.runs.values()}
    assert 99 in kept
    assert 98 in {r.info.numerics for t in collected.training_runs for r in t.runs.values()}


def test_a_row_holds_one_data_set(whole, tmp_path):
    store = copied(whole, tmp_path / "store")
    for start in ("iris-soft", "digits-mlp-soft"):
        new = another(trial(store, start), store / "later" / f"again-{start}", seed=1)
        change_run(new, data="0" * 64)
    problems = [p.partition(": ")[2] for p in collect([store]).problems]
    later = "a later run has other data of '{}', or reads it otherwise: skipped"
    assert problems == [later.format("iris")] * 2 + [later.format("digits, mlp")] * 2


def test_a_trial_in_two_stores_is_one_and_other_numbers_are_said(whole, tmp_path):
    store = copied(whole, tmp_path / "store")
    once, twice = collect([whole]), collect([whole, store])
    assert twice.problems == []
    assert [len(t.runs) for t in twice.cv_runs] == [len(t.runs) for t in once.cv_runs] == [2]
    change_result(trial(store, "iris-soft"), accuracies=[[1.0, 2.0, 3.0]] * 2)
    (line,) = collect([whole, store]).problems
    assert ": the same trial as " in line
    assert line.endswith(" with other numbers: skipped")


def test_diverged_and_collapsed_runs_are_counted(marginctl, whole, tmp_path):
    store = copied(whole, tmp_path / "store")
    change_result(trial(store, "digits-mlp-soft"), diverged="at step 3", last=None, best=None)
    change_result(trial(store, "digits-mlp-cosine"), collapsed=True)
    change_result(trial(store, "iris-soft"), diverged=[0], collapsed=[1, 2])
    ran = marginctl("report", store, "--format", "json")
    assert ran.err == ""
    cells = {c["objective"]: c for t in ran.json["trained"] for c in t["cells"]}
    assert (
        cells["soft"]["n"],
        cells["soft"]["diverged"],
        cells["cosine"]["collapsed"],
    ) == (
        0,
        1,
        1,
    )
    for form in FORMATS[:4]:
        assert marginctl("report", store, "--format", form).status == 0


def test_names_that_a_terminal_would_obey_are_escaped(marginctl, whole, tmp_path):
    store = copied(whole, tmp_path / "store")
    change_result(trial(store, "digits-mlp-soft"), row="a\x1b[2J\nb")
    change_run(trial(store, "iris-soft"), dataset="\x1b[31mx", recipe__name="r\x1b]0;t\x07")
    change_result(trial(store, "iris-soft"), dataset="\x1b[31mx")
    for form in FORMATS[:5]:
        ran = marginctl("report", store, "--format", form)
        assert ran.status == 0
        assert "\x1b" not in ran.out + ran.err
        assert "\x07" not in ran.out + ran.err


def test_reading_many_runs_does_a_bounded_work_for_each(whole, tmp_path, monkeypatch):
    """Two files a run, nothing else; a recipe, and an objective, once for all that have it."""
    from marginctl.experiments import records
    from marginctl.recipe.train import TrainRecipe
    from marginctl.runs import base_record as base_records

    store, number = tmp_path / "many", 30
    for start in ("iris-soft", "digits-mlp-soft"):
        one = trial(whole, start)
        for seed in range(number):
            another(one, store / f"{start}-{seed}", seed=seed)
    opened, read = [], []
    validate = TrainRecipe.model_validate

    def count(path, *arguments, **options):
        opened.append(Path(path).name)
        return open(path, *arguments, **options)

    monkeypatch.setattr(safe_read, "open", count, raising=False)
    monkeypatch.setattr(
        TrainRecipe, "model_validate", lambda *a, **k: read.append(a) or validate(*a, **k)
    )
    records._shared_recipe.cache_clear()
    base_records.parse_objective.cache_clear()
    collected = collect([store])
    assert collected.problems == []
    assert sorted(opened) == ["result.json"] * 2 * number + ["run.json"] * 2 * number
    assert len(read) == 1
    assert base_records.parse_objective.cache_info().misses == 1
    runs = [r for t in (*collected.cv_runs, *collected.training_runs) for r in t.runs.values()]
    assert len(runs) == 2 * number
    assert len({id(r.recipe) for r in runs}) == 2  # one object for thousands of runs


def test_the_cells_of_a_table_are_made_once(whole, tmp_path, monkeypatch):
    from marginctl.results import cv_cells

    for seed in range(10):
        another(trial(whole, "iris-soft"), tmp_path / "many" / f"s{seed}", seed=seed)
    (table,) = collect([tmp_path / "many"]).cv_runs
    made, cell = [], cv_cells.cell
    monkeypatch.setattr(cv_cells, "cell", lambda *given: made.append(1) or cell(*given))
    grid = table.cv_grid("accuracy")
    assert len(made) == 1
    assert grid.cells["iris", "soft"].n == 60


def test_a_store_that_is_not_there(marginctl, tmp_path):
    assert marginctl("report", tmp_path / "none").status == 2
    assert json.loads(marginctl("report", tmp_path, "--format", "json").out)["tables"] == []


def test_runs_are_ordered_by_their_start_in_utc():
    def run(started):
        return cv_run("run", cv_result(), timing={"started": started})

    early, late = run("2026-11-28T09:00:00+0200"), run("2026-11-28T08:00:00+00:00")
    assert early.started == "2026-11-28T07:00:00+00:00" < late.started
    assert run("yesterday").started == "yesterday"
