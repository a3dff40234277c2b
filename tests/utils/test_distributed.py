"""Two processes under torchrun: equal on both, every image once, and what becomes of a loss."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from PIL import Image

from marginctl.cli import run as run_command
from marginctl.errors import MissingPeerError
from marginctl.training import epoch_metrics
from marginctl.training.trainer import Trainer
from marginctl.utils import distributed, heartbeat
from marginctl.utils.device import world_size
from tests.faults.harness import start

RECIPE = """
task: train
data: {name: digits, subset_size: 407}
model: mlp:width=16
objectives: [adacos, center]
optim: {optimizer: adam, lr: 0.005}
train: {epochs: 6, batch_size: 50, precision: fp32}
"""


def torchrun(*arguments):
    line = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"),
    ]
    return subprocess.run(
        [*line, "-m", "marginctl", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=120,
    )


def start_ranks(*arguments, command=run_command, ranks="01"):
    """Processes with the variables that torchrun sets, two or other `ranks`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    size = str(max(2, len(ranks)))
    shared = {"WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return [
        start(arguments, shared | {"RANK": rank, "LOCAL_RANK": rank}, command, **pipes)
        for rank in ranks
    ]


def run_ranks(*arguments, command=run_command):
    """Run two processes to their end; return the stdout of the first."""
    ranks = start_ranks(*arguments, command=command)
    told = [process.communicate(timeout=120) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], told
    assert told[1][0] == ""  # one document, of the first process
    return told[0][0]


def digests(folder):
    """Return a command that also writes the digests of all weights at its end."""

    def command(arguments):
        trainers = []
        init = Trainer.__init__

        def recorded_init(self, *more, **named):
            init(self, *more, **named)
            trainers.append(self)

        Trainer.__init__ = recorded_init
        status = run_command(arguments)
        found = [trainer.weights_digest() for trainer in trainers]
        (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(found))
        return status

    return command


def assert_equal_digests(folder):
    first, second = (json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert len(first) == 2


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text(RECIPE)
    return path


def results(out):
    found = {}
    for path in sorted(out.rglob("result.json")):
        record = json.loads(path.read_text())
        found[record["objective"]] = record
    return found


def test_two_processes_agree_and_are_close_to_one(tmp_path, recipe, marginctl):
    arguments = ("train", recipe, "--device", "cpu", "--json")
    stdout = run_ranks(*arguments, "--out", tmp_path / "two", command=digests(tmp_path))
    assert len(json.loads(stdout)["cells"]) == 2
    assert_equal_digests(tmp_path)
    assert marginctl(*arguments, "--out", tmp_path / "one").status == 0
    two, one = results(tmp_path / "two"), results(tmp_path / "one")
    for objective, record in one.items():
        assert two[objective]["last"]["n"] == record["last"]["n"] == 360
        assert two[objective]["last"]["nll"] == pytest.approx(record["last"]["nll"], rel=0.01)
        assert two[objective]["last"]["top1"] == pytest.approx(record["last"]["top1"], abs=1)


def test_torchrun(tmp_path, recipe):
    arguments = ("train", recipe, "--device", "cpu", "--json", "--epochs", "1")
    ran = torchrun(*arguments, "--out", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert len(json.loads(ran.stdout)["cells"]) == 2


def test_a_killed_process_ends_the_other_and_a_restart_resumes(tmp_path, recipe):
    out = tmp_path / "runs"
    arguments = ("train", recipe, "--device", "cpu", "--out", out, "--objective", "adacos")
    slow = ("--epochs", "30", "--checkpoint-minutes", "0.001")
    for killed in (0, 1):
        there = set(out.rglob("step-*.pt"))
        ranks = start_ranks(*arguments, *slow)
        deadline = time.monotonic() + 60
        while not set(out.rglob("step-*.pt")) - there:
            assert ranks[0].poll() is None, ranks[0].stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        ranks[killed].kill()
        ranks[killed].communicate()
        _, stderr = ranks[1 - killed].communicate(timeout=60)
        assert ranks[1 - killed].returncode not in (0, None)
        assert stderr.count("error: another process of this training run has ended") == 1
        assert "marginctl/training" not in stderr  # no traceback of ours
        assert not list(out.rglob("result.json"))
    again = start_ranks(*arguments, *slow)
    _, stderr = again[0].communicate(timeout=200)
    again[1].communicate(timeout=60)
    assert [process.returncode for process in again] == [0, 0], stderr
    assert "resuming from step" in stderr
    assert results(out)["adacos"]["epochs"] == 30


def start_training(out, recipe):
    """Start two processes; return them once they train."""
    slow = ("--epochs", "1000", "--checkpoint-minutes", "0.001", "--objective", "adacos")
    ranks = start_ranks("train", recipe, "--device", "cpu", "--out", out, *slow)
    deadline = time.monotonic() + 60
    while not list(out.rglob("step-*.pt")):
        assert ranks[0].poll() is None, ranks[0].stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return ranks


@pytest.mark.parametrize("stalled", [0, 1])
def test_a_process_that_stalls_ends_the_other(tmp_path, recipe, monkeypatch, stalled):
    monkeypatch.setattr(heartbeat, "STALL_SECONDS", 4.0)
    ranks = start_training(tmp_path, recipe)
    ranks[stalled].send_signal(signal.SIGSTOP)
    other = ranks[1 - stalled]
    _, stderr = other.communicate(timeout=30)
    ranks[stalled].kill()
    ranks[stalled].communicate()
    assert other.returncode == 1
    assert f"error: process {stalled} of 2 has not answered for" in stderr.splitlines()[-1]
    assert "run the same command again to resume" in stderr


@pytest.mark.parametrize("stalled", [0, 1])
def test_a_signal_ends_a_process_whose_peer_stalls(tmp_path, recipe, stalled):
    ranks = start_training(tmp_path, recipe)
    ranks[stalled].send_signal(signal.SIGSTOP)
    other = ranks[1 - stalled]
    time.sleep(0.5)  # until it waits for the stalled one
    other.send_signal(signal.SIGTERM)
    _, stderr = other.communicate(timeout=20)  # the stall alone would take 45 s
    ranks[stalled].kill()
    ranks[stalled].communicate()
    assert other.returncode == 128 + signal.SIGTERM
    assert f"error: process {stalled} of 2 has not answered for" in stderr


def test_one_signal_stops_both_with_a_checkpoint(tmp_path, recipe):
    ranks = start_training(tmp_path, recipe)
    ranks[1].send_signal(signal.SIGTERM)
    _, stderr = ranks[0].communicate(timeout=30)
    ranks[1].communicate(timeout=30)
    assert [process.returncode for process in ranks] == [143, 143]
    assert "has a checkpoint at step" in stderr


def test_a_process_alone_for_long_stalls_nothing(tmp_path, recipe, monkeypatch):
    """The first process evaluates alone, while the other waits."""
    monkeypatch.setattr(heartbeat, "STALL_SECONDS", 3.0)
    evaluate = epoch_metrics.evaluation_record

    def slow_evaluation(*arguments):
        time.sleep(6)
        return evaluate(*arguments)

    monkeypatch.setattr(epoch_metrics, "evaluation_record", slow_evaluation)
    run_ranks("train", recipe, "--epochs", "1", "--objective", "soft", "--out", tmp_path, "--quiet")


def test_more_processes_than_gpus(tmp_path, recipe, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    ranks = start_ranks("train", recipe, "--device", "cuda", "--out", tmp_path, ranks="012")
    for process in ranks:
        _, stderr = process.communicate(timeout=30)
        assert process.returncode == 2
        line = "error: 3 processes on this machine, which has 2 CUDA devices: start at most 2 here"
        assert stderr.splitlines() == [line]


def test_a_process_whose_peers_never_come_ends(tmp_path, recipe, monkeypatch):
    monkeypatch.setattr(distributed, "JOIN_SECONDS", 1)
    for rank in "01":
        (alone,) = start_ranks("train", recipe, "--device", "cpu", "--out", tmp_path, ranks=rank)
        _, stderr = alone.communicate(timeout=30)
        assert alone.returncode == 2
        assert "other processes are missing after 1 s" in stderr.splitlines()[-1]


def test_ood_scale_from_a_run_and_cosify_on_two_processes(tmp_path, marginctl):
    small = ("--set", "train.batch_size=50", "--epochs", "1", "--device", "cpu", "--quiet")
    asked = ("train", "--data", "digits", "--set", "data.subset_size=101", "--model", "mlp:width=8")
    assert marginctl(*asked, *small, "--out", tmp_path / "start").status == 0
    (source,) = (path.parent for path in (tmp_path / "start").rglob("run.json"))
    tests = tmp_path / "odd" / "val" / "a"  # 3 images: one more for one of the processes
    tests.mkdir(parents=True)
    for i in range(3):
        Image.new("L", (9, 9), 80 * i).save(tests / f"{i}.png")
    twice = "similarity=cosine;scale=fixed(from_run=cosine-ls,times=2)"
    more = ("--objective", twice, "--objective", "cosine-ls", "--ood", f"folder:{tmp_path / 'odd'}")
    pairs = tmp_path / "odd" / "pairs.txt"
    pairs.write_text("val/a/0.png val/a/1.png 1\nval/a/0.png val/a/2.png 0\n")
    more += ("--set", f"pairs=[{pairs}]")
    command = ("cosify", "--from", source, *small, *more, "--blocks", "4", "--out")
    run_ranks(*command, tmp_path / "two")
    assert marginctl(*command, tmp_path / "one").status == 0
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
    tail = (
        "data.subset_size=null",
        "data.imbalance_factor=20",
        "data.max_per_class=140",
        "second_stage.epochs=2",
    )
    more = [part for setting in (*tail, "train.epochs=2") for part in ("--set", setting)]
    arguments = ("train", recipe, *more, "--objective", "adacos", "--device", "cpu", "--json")
    stdout = run_ranks(*arguments, "--out", tmp_path / "two", command=digests(tmp_path))
    assert len(json.loads(stdout)["cells"]) == 2
    assert_equal_digests(tmp_path)
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


@pytest.mark.parametrize(("rank", "number"), [(0, signal.SIGTERM), (1, signal.SIGINT)])
def test_variables_of_torchrun_without_other_processes(tmp_path, rank, number):
    """Left over in the environment: the command says what it waits for, and ends on a signal."""
    line = [
        sys.executable,
        "-m",
        "marginctl",
        "train",
        "--data",
        "digits",
        "--model",
        "mlp:width=4",
    ]
    alone = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    if rank == 0:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            alone["MASTER_PORT"] = str(free.getsockname()[1])
    process = subprocess.Popen(
        [*line, "--device", "cpu", "--out", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **alone},
    )
    while not (said := process.stderr.readline()).startswith("waiting"):
        assert process.poll() is None, said
    assert f"up to 45 s for other processes (RANK={rank} WORLD_SIZE=2 MASTER_ADDR=local" in said
    assert "unset RANK and WORLD_SIZE to train in one process" in said
    process.send_signal(number)
    assert process.wait(timeout=20) == 128 + number
    process.stderr.close()


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({}, "environment variable MASTER_ADDR expected, but not set"),
        ({"MASTER_ADDR": "localhost", "MASTER_PORT": "x"}, "invalid literal for int"),
        ({"RANK": "first", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}, "invalid literal"),
        ({"MASTER_ADDR": "localhost", "MASTER_PORT": "1", "RANK": "1"}, "missing after 0.5 s"),
    ],
)
def test_what_torchrun_did_not_set(monkeypatch, variables, reason):
    monkeypatch.setattr(distributed, "ANNOUNCE_SECONDS", 0.1)
    monkeypatch.setattr(distributed, "JOIN_SECONDS", 0.5)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", **variables}.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(MissingPeerError, match=f"WORLD_SIZE=2.*{reason}.*torchrun, or unset"),
        distributed.process_group("cpu", lambda line: None),
    ):
        pass


@pytest.mark.parametrize("size", ["", "two", "-2", "0", "1"])
def test_a_world_size_that_torchrun_cannot_set_is_one(monkeypatch, size):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", size)
    assert world_size() == 1
