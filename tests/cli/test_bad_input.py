"""Whatever a user gets wrong: one clear line, exit 2, nothing written."""

import json
import os
import subprocess
import sys

import pytest
import torch

from marginctl.cli import run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "irs"], "unknown data set 'irs'"),
        (["--dataset", "irs"], "Did you mean 'iris'?"),
        (["--dataset", "haberman"], "no file 'haberman.data'"),
        (["--objective", "arcgard"], "Did you mean 'arcgrad'?"),
        (["--objective", "arcgrad:scale=0"], "scale = '0': expected a finite number above 0"),
        (["--objective", "arcgrad:scale=big"], "scale = 'big': expected a finite number above 0"),
        (["--objective", "arcgrad:scael=1"], "Did you mean 'scale'?"),
        (["--folds", "1"], "'--folds': '1': expected an integer of at least 2"),
        (["--folds", "ten"], "'--folds': 'ten': expected an integer of at least 2"),
        (["--folds", "151", "--dataset", "iris"], "folds = 151, expected at most its 150 rows"),
        (["--repeats", "0"], "'--repeats': '0': expected an integer of at least 1"),
        (["--seed", "-1"], "'--seed': '-1': expected an integer of at least 0"),
        (["--set", "protocol.epoch=3"], "Did you mean 'epochs'?"),
        (["--set", "protocol.lr=fast"], "protocol.lr = 'fast': expected a number above 0"),
        (["--set", "nothing"], "expected dotted.key=value"),
        (["--device", "cuda:99"], "--device cuda:99: this machine has"),
        (["--device", "gpu"], "--device gpu: expected auto, cpu, cuda, cuda:N or mps"),
        (["--workers", "0"], "'--workers': '0': expected an integer of at least 1"),
        (["--format", "pdf"], "unknown format 'pdf': expected one of table"),
        (["arcgrad/table2"], "no recipe 'arcgrad/table2'"),
        (["arcgrad/tabel1"], "Did you mean 'arcgrad/table1'?"),
        (["--datset", "iris"], "No such option: --datset"),
        (["arcgrad/table1", "more"], "unexpected extra argument"),
    ],
    ids=str,
)
def test_one_line_and_exit_2(marginctl, tmp_path, arguments, message):
    ran = marginctl("uci-cv", *arguments, "--out", tmp_path / "runs")
    assert ran.status == 2
    assert message in ran.err
    assert ran.out == ""
    lines = ran.err.strip().splitlines()
    assert len([line for line in lines if not line.startswith("fetching ")]) == 1
    assert lines[-1].startswith("error: ")
    assert not (tmp_path / "runs").exists()


def test_a_data_file_with_a_missing_row(marginctl, tmp_path):
    folder = tmp_path / "data" / "uci" / "haberman"
    folder.mkdir(parents=True)
    (folder / "haberman.data").write_text("30,64,1,1\n" * 304 + "30,64,1,2\n")
    ran = marginctl("uci-cv", "--offline", "--data-dir", tmp_path / "data", "--out", tmp_path / "r")
    assert ran.status == 2
    assert "haberman" in ran.err
    assert "305 instances" in ran.err
    assert "expected 306" in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_several_problems_are_several_lines(marginctl, tmp_path):
    ran = marginctl(
        *("uci-cv", "--objective", "sof", "--objective", "arcgrad:scale=-1", "--dataset", "irs"),
        *("--set", "protocol.folds=1", "--out", tmp_path),
    )
    assert ran.status == 2
    assert len(ran.err.strip().splitlines()) == 4


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["recipes", "show", "nope"], ["recipes", "nope"], ["bench", "nope"]]
)
def test_unknown_commands_and_recipes(marginctl, arguments):
    ran = marginctl(*arguments)
    assert ran.status == 2
    assert len(ran.err.strip().splitlines()) == 1


def test_a_store_that_cannot_be_written_is_exit_1(marginctl, tmp_path, quick):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "arcgrad").write_text("a file")
    ran = marginctl("uci-cv", "--dataset", "iris", *quick, "--out", tmp_path / "runs")
    assert ran.status == 1
    assert "cannot be written" in ran.err
    assert len([line for line in ran.err.splitlines() if line.startswith("error")]) == 1


def test_a_trial_that_fails_is_named_and_the_others_are_kept(
    marginctl, tmp_path, quick, monkeypatch
):
    from marginctl.crossval import stacked_trainer

    original = stacked_trainer.train_stack

    def fail(stack, *args, **kwargs):
        if str(stack.objective) == "center":
            raise RuntimeError("no memory left\nsecond line")
        return original(stack, *args, **kwargs)

    monkeypatch.setattr(stacked_trainer, "train_stack", fail)
    arguments = ("uci-cv", "--dataset", "iris", *quick, "--out", tmp_path, "--format", "csv")
    ran = marginctl(*arguments)
    assert ran.status == 1
    assert "error: iris / center (seed 0): RuntimeError: no memory left (see " in ran.err
    assert len(ran.out.splitlines()) == 1 + 6
    assert list(tmp_path.rglob("error.txt"))
    monkeypatch.undo()
    ran = marginctl(*arguments)
    assert ran.status == 0
    assert len(ran.out.splitlines()) == 1 + 7


def test_an_interrupt_is_130_and_a_termination_143(marginctl, tmp_path, quick, monkeypatch, capsys):
    import os
    import signal

    from marginctl.crossval import stacked_trainer

    def interrupt(*_args, **_kwargs):
        raise KeyboardInterrupt

    def terminate(*_args, **_kwargs):
        os.kill(os.getpid(), signal.SIGTERM)

    for way, status in ((interrupt, 130), (terminate, 143)):
        monkeypatch.setattr(stacked_trainer, "train_stack", way)
        ran = marginctl("uci-cv", "--dataset", "iris", *quick, "--out", tmp_path)
        assert ran.status == status
        assert "the same command again resumes" in ran.err
        assert ran.out == ""
    assert run(["--version"]) == 0


def test_outputs_that_cannot_be_written_are_said_before_training(marginctl, tmp_path, quick):
    table = tmp_path / "t.csv"
    table.write_text("a,b\n" + "".join(f"{i % 7},{'xy'[i % 2]}\n" for i in range(20)))
    before = table.read_text()
    own = ("uci-cv", "--csv", table, "--target", "b", *quick, "--no-tune")
    own += ("--out", tmp_path / "runs")
    for arguments, message in (
        (("--predictions", table), "is an input of this command"),
        (("--predictions", tmp_path), "is a folder: name a file"),
        (("--predictions", table / "p.csv"), "its folder cannot be written"),
        (("--objective", "soft", "--save-model", table / "x"), "its folder cannot be written"),
        (("--out", table), "is a file: name a folder"),
    ):
        ran = marginctl(*own, *arguments)
        assert ran.status == 2
        assert message in ran.err
    assert table.read_text() == before
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [["recipes", "show"], ["report"], ["recipes", "copy", "arcgrad/table1"], ["data", "list"]],
)
def test_a_name_that_is_too_long_for_a_path(marginctl, arguments):
    option = ["--data-dir"] if arguments[0] == "data" else []
    ran = marginctl(*arguments, *option, "a" * 300)
    assert ran.status == 2
    assert len(ran.err.splitlines()) == 1


def python(code, **streams):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **streams)


def test_closed_full_and_narrow_outputs(tmp_path):
    """No traceback, and no progress on stdout, whatever the streams are."""
    call = "import sys; from marginctl.cli import run; sys.exit(run({!r}))"
    listed = call.format(["recipes", "list"])
    closed = python("import sys; sys.stdout = None\n" + listed)
    assert (closed.returncode, closed.stderr) == (0, "")
    quiet = python("import sys; sys.stderr = None\n" + call.format(["recipes", "list", "--json"]))
    json.loads(quiet.stdout)
    if os.path.exists("/dev/full"):
        full = python("import sys; sys.stdout = open('/dev/full', 'w')\n" + listed)
        assert full.returncode == 1
        assert full.stderr.startswith("error: output: No space left")
    narrow = python(listed, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert narrow.returncode == 0
    assert narrow.stderr == ""


def test_a_reader_that_leaves_is_no_failure():
    line = f"{sys.executable} -m marginctl --help | true; exit ${{PIPESTATUS[0]}}"
    for _ in range(3):
        assert subprocess.run(["bash", "-c", line], stderr=subprocess.DEVNULL).returncode == 0


def test_threads_are_restored(marginctl, tmp_path, quick):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        marginctl("uci-cv", "--dataset", "iris", "--objective", "soft", *quick, "--out", tmp_path)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "nope"),
        ("uci-cv", "--dataset", "nope"),
        ("data", "inspect", "nope"),
        ("train", "--data", "nope", "--model", "mlp", "--objective", "soft"),
    ],
)
def test_an_error_is_said_with_ranks_left_over_in_the_environment(
    marginctl, monkeypatch, arguments
):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    ran = marginctl(*arguments)
    assert ran.status == 2
    assert "nope" in ran.err
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert marginctl(*arguments).err == ""


def test_a_plan_is_printed_with_ranks_left_over_in_the_environment(
    marginctl, tmp_path, monkeypatch
):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    line = ("train", "--data", "digits", "--model", "mlp:width=4", "--objective", "soft")
    ran = marginctl(*line, "--epochs", "1", "--dry-run", "--out", tmp_path)
    assert "1 trial, 1 pending" in ran.out
