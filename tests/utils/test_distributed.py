"""Two processes under torchrun: equal on both, every image once, and what becomes of a loss."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

RECIPE = """
task: train
data: {name: digits, subset_size: 407}
model: mlp:width=16
objectives: [adacos, center]
optim: {optimizer: adam, lr: 0.005}
train: {epochs: 6, batch_size: 50, precision: fp32}
"""

# What each process holds at the end, for all objectives.
COMPARE = """
import json, os, sys
from pathlib import Path
from marginctl.training.trainer import Trainer
trainers = []
init = Trainer.__init__
def recorded_init(self, *arguments, **named):
    init(self, *arguments, **named)
    trainers.append(self)
Trainer.__init__ = recorded_init
from marginctl.cli import run
rank = os.environ["RANK"]
status = run(sys.argv[2:])
digests = [trainer.weights_digest() for trainer in trainers]
Path(sys.argv[1], f"rank{rank}.json").write_text(json.dumps([status, digests]))
os._exit(status)  # as `python -m marginctl` exits
"""


def torchrun(program, *arguments, **more):
    line = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*line, *map(str, (*program, *arguments))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
        **more,
    )


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text(RECIPE)
    return path


def _rank_of(pid):
    settings = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(int(s.removeprefix(b"RANK=")) for s in settings if s.startswith(b"RANK="))


def results(out):
    found = {}
    for path in sorted(out.rglob("result.json")):
        record = json.loads(path.read_text())
        found[record["objective"]] = record
    return found


def test_two_processes_agree_and_are_close_to_one(tmp_path, recipe, marginctl):
    program = tmp_path / "compare.py"
    program.write_text(COMPARE)
    arguments = ("train", recipe, "--device", "cpu", "--json")
    process = torchrun([program], tmp_path, *arguments, "--out", tmp_path / "two")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert len(json.loads(stdout)["cells"]) == 2  # one document, of the first process
    (status, first), (other, second) = (
        json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1)
    )
    assert status == other == 0
    assert first == second
    assert len(first) == 2
    assert marginctl(*arguments, "--out", tmp_path / "one").status == 0
    two, one = results(tmp_path / "two"), results(tmp_path / "one")
    for objective, record in one.items():
        assert two[objective]["last"]["n"] == record["last"]["n"] == 360
        assert two[objective]["last"]["nll"] == pytest.approx(record["last"]["nll"], rel=0.01)
        assert two[objective]["last"]["top1"] == pytest.approx(record["last"]["top1"], abs=1)


def test_a_killed_process_ends_the_other_and_a_restart_resumes(tmp_path, recipe):
    out = tmp_path / "runs"
    arguments = ("-m", "marginctl", "train", recipe, "--device", "cpu", "--out", out)
    slow = ("--epochs", "100", "--checkpoint-minutes", "0.001", "--objective", "adacos")
    for rank in (0, 1):
        there = set(out.rglob("step-*.pt"))
        process = torchrun((), *arguments, *slow)
        deadline = time.monotonic() + 60
        while not set(out.rglob("step-*.pt")) - there:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        own = subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        ranks = {_rank_of(pid): int(pid) for pid in own}
        os.kill(ranks[rank], signal.SIGKILL)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode != 0
        assert stderr.count("error: another process of this training run has ended") == 1
        assert "marginctl/training" not in stderr  # no traceback of ours
        assert not list(out.rglob("result.json"))
    again = torchrun((), *arguments, *slow)
    time.sleep(0.1)
    _, stderr = again.communicate(timeout=200)
    assert again.returncode == 0, stderr
    assert "resuming from step" in stderr
    assert results(out)["adacos"]["epochs"] == 100


def test_ood_scale_from_a_run_and_cosify_on_two_processes(tmp_path, marginctl):
    small = ("--set", "train.batch_size=50", "--epochs", "1", "--device", "cpu", "--quiet")
    asked = ("train", "--data", "digits", "--set", "data.subset_size=101", "--model", "mlp:width=8")
    assert marginctl(*asked, *small, "--out", tmp_path / "start").status == 0
    (start,) = (path.parent for path in (tmp_path / "start").rglob("run.json"))
    tests = tmp_path / "odd" / "val" / "a"  # 3 images: one more for one of the processes
    tests.mkdir(parents=True)
    for i in range(3):
        Image.new("L", (9, 9), 80 * i).save(tests / f"{i}.png")
    twice = "similarity=cosine;scale=fixed(from_run=cosine-ls,times=2)"
    more = ("--objective", twice, "--objective", "cosine-ls", "--ood", f"folder:{tmp_path / 'odd'}")
    pairs = tmp_path / "odd" / "pairs.txt"
    pairs.write_text("val/a/0.png val/a/1.png 1\nval/a/0.png val/a/2.png 0\n")
    more += ("--set", f"pairs=[{pairs}]")
    process = torchrun(
        *(("-m", "marginctl"), "cosify", "--from", start, *small, *more),
        *("--blocks", "4", "--out", tmp_path / "two"),
    )
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert (
        marginctl(
            *("cosify", "--from", start, *small, *more, "--blocks", "4", "--out", tmp_path / "one")
        ).status
        == 0
    )
    two, one = results(tmp_path / "two"), results(tmp_path / "one")
    assert two.keys() == one.keys() == {"cosine-ls", twice}
    for objective, record in one.items():
        other = two[objective]
        assert other["baseline"]["top1"] == record["baseline"]["top1"]
        ours, theirs = (
            r["baseline"]["detection"]["ood"][0]["scores"]["max_similarity"]
            for r in (other, record)
        )
        assert ours["auroc"] == pytest.approx(theirs["auroc"])
        assert other["last"]["nll"] == pytest.approx(record["last"]["nll"], rel=0.01)
        assert other["evaluation"]["detection"]["ood"][0]["n_out"] == 3
        ours, theirs = (r["evaluation"]["verification"][0] for r in (other, record))
        assert (ours["images"], ours["auroc"]) == (3, theirs["auroc"])
    kappa = two["cosine-ls"]["state"]["optimal_scale"]["mean"]
    assert two[twice]["scale_from"]["value"] == pytest.approx(2 * kappa)


def test_two_stages_on_two_processes(tmp_path, recipe, marginctl):
    program = tmp_path / "compare.py"
    program.write_text(COMPARE)
    tail = (
        "data.subset_size=null",
        "data.imbalance_factor=20",
        "data.max_per_class=140",
        "second_stage.epochs=2",
    )
    more = [part for setting in (*tail, "train.epochs=2") for part in ("--set", setting)]
    arguments = ("train", recipe, *more, "--objective", "adacos", "--device", "cpu", "--json")
    process = torchrun([program], tmp_path, *arguments, "--out", tmp_path / "two")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert len(json.loads(stdout)["cells"]) == 2
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert marginctl(*arguments, "--out", tmp_path / "one").status == 0
    two, one = (
        {r["setting"]["stage"]: r for r in map(read, (tmp_path / out).rglob("result.json"))}
        for out in ("two", "one")
    )
    assert two.keys() == one.keys() == {"first", "second:epochs=2"}
    for stage, record in one.items():
        assert two[stage]["last"]["nll"] == pytest.approx(record["last"]["nll"], rel=0.02)


def read(path):
    return json.loads(path.read_text())
