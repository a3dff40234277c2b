"""What breaks in trainings elsewhere, item by item of the ledger: in this process."""

import ast
import importlib
import io
import json
import math
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import marginctl as package
from marginctl.data.loading import workers
from marginctl.experiments import run_trial as running
from marginctl.runs import atomic_io
from marginctl.training import checkpoint, trainer
from marginctl.training.running_metrics import RunningMetrics
from marginctl.utils.distributed import World
from tests.faults.harness import records
from tests.sampling import diagonal
from tests.training.factories import trainer as made_trainer

BASE = ("train", "--data", "digits", "--device", "cpu", "--quiet", "--json", "--epochs", "3")
BASE += ("--set", "data.subset_size=100", "--set", "train.batch_size=30")  # 4 steps an epoch
SMALL = (*BASE, "--model", "mlp:width=8")
OFTEN = ("--checkpoint-minutes", "0")


class KilledError(BaseException):
    """Ends the command as SIGKILL would: nothing of ours handles it."""


def killed_at(marginctl, monkeypatch, step, *arguments):
    """Runs a command that is killed before so many steps are done."""
    real, done = trainer.Trainer._train_step, []

    def train_step(self, x, y):
        if len(done) == step:
            raise KilledError
        done.append(step)
        real(self, x, y)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_train_step", train_step)
        with pytest.raises(KilledError):
            marginctl(*arguments)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """A folder of 24 pictures to train on and 5 to test on, in two classes."""
    root, stream = tmp_path_factory.mktemp("Bilder für alle"), np.random.default_rng(0)
    for part, count in (("train", 24), ("val", 5)):
        for i in range(count):
            path = root / part / "ab"[i % 2] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(stream.integers(0, 256, (20, 24, 3), np.uint8)).save(path)
    return root


CORRUPTED = ("data.subset_size=null", "data.subset_fraction=0.07", "data.label_noise=0.3")
COMBINED = [
    ("soft", "adamw", "one-cycle(max_lr=0.01)", (*CORRUPTED, "data.augment=random-crop")),
    ("center", "adam", "cosine(start=0.01,end=0)", ("train.grad_accum_steps=3",)),
    ("adacos", "sgd", "exponential(start=0.1,end=0.001)", ("optim.lr_interval=epoch",)),
    (
        "cosine-learned",
        "adamw",
        "0.01",
        ("data.augment=random-crop-flip", "optim.lr_interval=epoch"),
    ),
    ("sphereface", "sgd", "warm-up(end=0.01)", ("optim.nesterov=true", *CORRUPTED)),
    (
        "cosine-ls",
        "adam",
        "one-cycle(max_lr=0.01)",
        ("train.grad_accum_steps=2", "train.precision=bf16"),
    ),
]


@pytest.mark.parametrize(("combined", "step"), diagonal(COMBINED, [1, 6, 8]))
def test_killed_and_resumed(marginctl, tmp_path, monkeypatch, combined, step):
    """Items 10 and 11: optimiser, schedule, objective's state, and what is done to the images."""
    objective, optimizer, lr, others = combined
    given = (f"optim.optimizer={optimizer}", f"optim.lr={lr}", *others)
    sets = [part for text in given for part in ("--set", text)]
    model = ("--model", "mnist-cnn:feature_dim=8", "--objective", objective)
    arguments = (*BASE, *sets, *model, *OFTEN)
    undisturbed = marginctl(*arguments, "--out", tmp_path / "whole")
    assert undisturbed.status == 0, undisturbed.err
    killed_at(marginctl, monkeypatch, step, *arguments, "--out", tmp_path / "killed")
    assert not list((tmp_path / "killed").rglob("result.json"))
    ran = marginctl(*arguments, "--out", tmp_path / "killed")
    assert f"resuming from step {step} of 12" in ran.err
    assert records(tmp_path / "killed") == records(tmp_path / "whole")


@pytest.mark.parametrize("augment", ["none", "imagenet"])
def test_killed_and_resumed_from_files(marginctl, tmp_path, monkeypatch, photographs, augment):
    """Item 10: images that are decoded while training."""
    monkeypatch.setattr(workers, "worker_count", lambda: 0)
    arguments = [*SMALL, *OFTEN, "--data", f"folder:{photographs}", "--objective", "center"]
    for text in ("load=stream", "image_size=16", "subset_size=null", f"augment={augment}"):
        arguments += ["--set", f"data.{text}"]
    arguments += ["--set", "train.batch_size=8"]
    assert marginctl(*arguments, "--out", tmp_path / "whole").status == 0
    killed_at(marginctl, monkeypatch, 5, *arguments, "--out", tmp_path / "killed")
    assert "resuming from step 5 of 9" in marginctl(*arguments, "--out", tmp_path / "killed").err
    assert records(tmp_path / "killed") == records(tmp_path / "whole")


def diverges_at(monkeypatch, step):
    """Learning rates of which the one at `step` blows every weight up."""
    real = trainer.rate_at
    monkeypatch.setattr(
        trainer,
        "rate_at",
        lambda rate, at, total: math.inf if at == step else real(rate, at, total),
    )


def test_a_diverged_training(marginctl, tmp_path, monkeypatch):
    """Item 6: stopped at once, step and cause named, exit 1, the last good checkpoint kept."""
    diverges_at(monkeypatch, 6)
    arguments = (*SMALL, *OFTEN, "--objective", "arcface", "--keep", "3", "--out", tmp_path)
    ran = marginctl(*arguments)
    assert ran.status == 1
    assert "diverged: " in ran.err
    (path,) = tmp_path.rglob("result.json")
    result = json.loads(path.read_text())
    assert "is not finite at step 7 (epoch 2)" in result["diverged"]
    assert (result["epochs"], result["last"]["epoch"]) == (1, 1)
    assert result["weights_sha256"] is None
    steps = [
        checkpoint.load(p)["step"]
        for p in checkpoint.list_checkpoints(path.parent, checkpoint.LAST)
    ]
    assert steps == [6, 5, 4]
    state = checkpoint.load(checkpoint.list_checkpoints(path.parent, checkpoint.LAST)[0])
    assert all(bool(v.isfinite().all()) for v in state["model"].values())
    assert marginctl("eval", path.parent, "--json", "--device", "cpu").json["step"] == 6
    stamp = path.stat().st_mtime_ns
    assert marginctl(*arguments).status == 1
    assert path.stat().st_mtime_ns == stamp


@pytest.mark.parametrize("kind", ["parameter", "buffer"])
def test_a_weight_that_is_not_finite_is_no_checkpoint(kind):
    """Item 6: also where the loss does not show it."""
    made = made_trainer("soft", model="resnet18", train={"batch_size": 50})
    tensors = made.model.parameters() if kind == "parameter" else made.model.buffers()
    next(t for t in tensors if t.is_floating_point()).data.view(-1)[0] = float("inf")
    with pytest.raises(trainer.DivergedError, match=r"'.+' is not finite at step 0"):
        made.state_dict()


def test_a_collapsed_training_is_marked(marginctl, tmp_path):
    """Item 6: a step so large that no unit is left: one class for every image."""
    sets = ("--set", "optim.lr=100", "--set", "optim.momentum=0.0", "--epochs", "1")
    assert marginctl(*SMALL, *sets, "--out", tmp_path).status == 0
    (path,) = tmp_path.rglob("result.json")
    assert json.loads(path.read_text())["collapsed"] is True


def contents(folder):
    """Every file below a folder: its bytes, and when it was written."""
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def state_of(made):
    """All that a training goes on from, as bytes: tensors are not copied in a state."""
    content = io.BytesIO()
    torch.save(made.state_dict(), content)
    return content.getvalue()


@pytest.mark.parametrize("objective", ["adacos", "center", "cosine-learned", "cosine-ls"])
def test_evaluation_changes_no_state(marginctl, tmp_path, objective):
    """Item 7: AdaCos's scale, centers, batch statistics, the optimiser; and eval no file."""
    made = made_trainer(objective, model="resnet18", train={"batch_size": 25, "epochs": 1})
    made.run_epoch(lambda: None)
    before = state_of(made)
    made.evaluation_batch = 4
    made.predict()
    assert state_of(made) == before
    assert marginctl(*SMALL, "--objective", objective, "--out", tmp_path).status == 0
    (run,) = tmp_path.rglob("run.json")
    kept = contents(tmp_path)
    for _ in range(2):
        assert marginctl("eval", run.parent, "--data", "digits", "--device", "cpu").status == 0
    assert contents(tmp_path) == kept


def test_killed_at_each_write(marginctl, tmp_path, monkeypatch):
    """Item 12: before any file is in its place; what was half written is swept."""
    arguments = (*SMALL, *OFTEN, "--objective", "center", "--epochs", "2")
    assert marginctl(*arguments, "--out", tmp_path / "whole").status == 0
    whole, at = records(tmp_path / "whole"), 0
    while True:
        out, count, real = tmp_path / str(at), iter(range(10**6)), os.replace

        def replace(*paths, at=at, count=count, real=real):
            if next(count) == at:
                raise KilledError
            real(*paths)

        with monkeypatch.context() as patch:
            patch.setattr(atomic_io.os, "replace", replace)
            patch.setattr(atomic_io.os, "unlink", lambda *a, **k: None)  # a kill tidies nothing up
            try:
                assert marginctl(*arguments, "--out", out).status == 0
                break
            except KilledError:
                assert len(list(out.rglob(".tmp-*"))) == 1
        for path in out.rglob("*.pt"):
            checkpoint.load(path)
        assert marginctl(*arguments, "--out", out).status == 0
        assert records(out) == whole
        left = list(out.rglob(".tmp-*"))  # beside the recipe, where another process may write
        assert all(path.parent == out / "digits-mlp-width-8" for path in left)
        for path in left:
            os.utime(path, (0, 0))
        assert marginctl(*arguments, "--seeds", "2", "--epochs", "1", "--out", out).status == 0
        assert not list(out.rglob(".tmp-*"))
        at += 1
    assert at > 10


@pytest.mark.parametrize("damage", ["torn", "absent", "a pipe"])
def test_the_last_checkpoint_is_damaged(marginctl, tmp_path, monkeypatch, damage):
    """Item 12: the one before is found, named and used."""
    arguments = (*SMALL, *OFTEN, "--keep", "2")
    assert marginctl(*arguments, "--out", tmp_path / "whole").status == 0
    killed_at(marginctl, monkeypatch, 6, *arguments, "--out", tmp_path / "killed")
    last = max((tmp_path / "killed").rglob("step-*.pt"))
    data = last.read_bytes()
    last.unlink()
    if damage == "torn":
        last.write_bytes(data[: len(data) // 2])
    elif damage == "a pipe":
        os.mkfifo(last)
    ran = marginctl(*arguments, "--out", tmp_path / "killed")
    assert "resuming from step 5 of 12" in ran.err
    assert (": skipped" in ran.err) == (damage != "absent")
    assert records(tmp_path / "killed") == records(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["wiped", "doubled", "torn", "ahead", "absent"])
def test_metrics_after_a_kill(marginctl, tmp_path, monkeypatch, damage):
    """Item 15: the file has each epoch once again, whatever became of it."""
    arguments = (*SMALL, *OFTEN)
    assert marginctl(*arguments, "--out", tmp_path / "whole").status == 0
    killed_at(marginctl, monkeypatch, 9, *arguments, "--out", tmp_path / "killed")
    (path,) = (tmp_path / "killed").rglob("metrics.jsonl")
    text = path.read_text()
    assert text.count("\n") == 2
    changed = {
        "wiped": "",
        "doubled": text + text,
        "torn": text[:-40],
        "ahead": text + text.splitlines()[1].replace('"epoch": 2', '"epoch": 3') + "\n",
    }
    path.unlink() if damage == "absent" else path.write_text(changed[damage])
    assert marginctl(*arguments, "--out", tmp_path / "killed").status == 0
    assert records(tmp_path / "killed") == records(tmp_path / "whole")


def test_no_pickle_is_trusted():
    """Item 17: every torch.load says weights_only=True, and no np.load says allow_pickle=True."""
    loads = 0
    for path in Path(package.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            called, named = ast.unparse(node.func), {k.arg: k.value for k in node.keywords}
            # a worker unpickles what its scheduler or its parent process sends
            if path.name not in ("dask_executor.py", "processes.py"):
                assert called not in ("pickle.load", "pickle.loads", "torch.jit.load"), path
            if called == "torch.load":
                loads += 1
                assert ast.literal_eval(named["weights_only"]) is True, path
            if "allow_pickle" in named:
                assert ast.literal_eval(named["allow_pickle"]) is False, path
    assert loads


@pytest.mark.parametrize(
    ("objective", "model", "said"),
    [
        ("soft", "mlp:width=9", r"'.+weight' is 9 x 64 in it, and 8 x 64 in this network"),
        ("soft", "mlp:width=8,depth=3", r"'.+' is 8 x 8 in it, and absent in this network"),
        ("soft:bias=true", "mlp:width=8", r"'bias' is 10 in it, and absent in this network"),
    ],
)
def test_a_checkpoint_of_another_network(marginctl, tmp_path, monkeypatch, objective, model, said):
    """Item 18: one line that says what it has and what is wanted, in train and in eval."""
    other = (*BASE, "--model", model, "--objective", objective, "--out", tmp_path / "other")
    assert marginctl(*other).status == 0
    arguments = (*SMALL, *OFTEN, "--out", tmp_path / "own")
    killed_at(marginctl, monkeypatch, 6, *arguments)
    (own,) = (tmp_path / "own").rglob("step-*.pt")
    trial = own.parent.parent
    own.unlink()
    (path,) = (tmp_path / "other").rglob("step-*.pt")
    state = checkpoint.load(path) | {"trial": trial.name, "step": 6}
    checkpoint.save(trial, checkpoint.LAST, 6, state, 1)
    for command in (arguments, ("eval", trial, "--device", "cpu")):
        ran = marginctl(*command)
        assert (ran.status, ran.out) == (2, "")
        (line,) = [li for li in ran.err.splitlines() if li.startswith("error: ")]
        assert len(ran.err.splitlines()) == 1
        assert re.search(said, line), line
        assert str(trial) in line
        assert "train it again" in line or "remove the folder" in line


def test_each_test_image_counts_once(monkeypatch):
    """Item 23: images that are doubled or lost on their way are no evaluation."""
    made = made_trainer("soft", model="mlp:width=4")
    assert len(made.predict().labels) == 21
    batches = list(made.batches.test_batches(4))
    for wrong in (batches[:-1], [*batches, batches[0]]):
        monkeypatch.setattr(made.batches, "test_batches", lambda size, wrong=wrong: wrong)
        with pytest.raises(AssertionError, match=r"\d+ of 21 images were evaluated"):
            made.predict()


def test_the_last_and_the_best_epoch_are_reported(marginctl, tmp_path, monkeypatch):
    """Item 25: the one that was chosen by the test images is no substitute, and says so."""
    accuracies, real = iter([70.0, 70.0, 60.0]), running.epoch_metrics.accuracy_record
    monkeypatch.setattr(
        running.epoch_metrics,
        "accuracy_record",
        lambda tested: real(tested) | {"top1": next(accuracies)},
    )
    ran = marginctl(*SMALL, "--out", tmp_path)
    (cell,) = ran.json["cells"]
    assert (cell["last"]["mean"], cell["best"]["mean"]) == (60.0, 70.0)
    (path,) = tmp_path.rglob("result.json")
    result = json.loads(path.read_text())
    assert [(result[k]["epoch"], result[k]["top1"]) for k in ("last", "best")] == [
        (3, 60.0),
        (1, 70.0),
    ]
    assert "selected on the test set (optimistically biased)" in result["selection"]
    found = marginctl("eval", path.parent, "--json", "--device", "cpu").json
    assert found["step"] == 12


def test_float64_stays_off_devices_without_it(monkeypatch):
    """Item 34: MPS has none; what is counted there is counted in float32."""
    asked, real = [], torch.zeros

    def zeros(size, dtype, device):  # no MPS is needed to see what it is asked for
        asked.append((device.type, dtype))
        return real(size, dtype=dtype)

    objective = made_trainer("soft", model="mlp:width=4").objective
    monkeypatch.setattr(torch, "zeros", zeros)
    for device in ("mps", "cpu"):
        RunningMetrics(objective, torch.device(device), World(0, 1))
    assert asked == [("mps", torch.float32), ("cpu", torch.float64)]


def test_torch_keeps_its_threads(marginctl, tmp_path):
    """Item 35: training and evaluating leave them as they were."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert marginctl(*SMALL, "--out", tmp_path).status == 0
        (run,) = tmp_path.rglob("run.json")
        assert marginctl("eval", run.parent, "--device", "cpu").status == 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_pipe_instead_of_a_record_does_not_block(marginctl, tmp_path):
    """A run.json that is a FIFO: written anew by train, one line of eval."""
    arguments = (*SMALL, "--out", tmp_path)
    assert marginctl(*arguments).status == 0
    (run,) = tmp_path.rglob("run.json")
    run.unlink()
    os.mkfifo(run)
    ran = marginctl("eval", run.parent)
    assert ran.status == 2
    assert ran.err.endswith("run.json: is missing, corrupt or not of marginctl train\n")
    assert marginctl(*arguments).status == 0
    assert json.loads(run.read_text())["task"] == "train"


RECIPE = (
    "task: train\ndata: {name: digits, subset_size: 100}\nmodel: mlp:width=8\ntrain: {epochs: 1}\n"
)


@pytest.mark.parametrize("shipped", [False, True])
def test_the_recorded_recipe_reproduces_the_run(
    marginctl, tmp_path, monkeypatch, photographs, shipped
):
    """Item 31 too: in the same folder, where its trials are found; it is not written over."""
    out, common = tmp_path / "Läufe von mir", ("--device", "cpu", "--data-dir", tmp_path)
    if shipped:
        (tmp_path / "own.yaml").write_text(RECIPE)
        known = {"paper/own": tmp_path / "own.yaml"}
        module = importlib.import_module("marginctl.recipe.load")
        monkeypatch.setattr(module, "shipped_recipes", lambda: known)
        arguments = ("train", "paper/own")
    else:  # a name of more than 60 characters, cut at a sign
        name = "x" * 47 + "a  b é"
        shutil.copytree(photographs, tmp_path / name)
        sets = ("--set", "data.image_size=8", "--set", "train.batch_size=8", "--epochs", "1")
        arguments = ("train", "--data", f"folder:{name}", "--model", "mlp:width=8", *sets)
    assert marginctl(*arguments, *common, "--out", out).status == 0
    (written,) = out.rglob("*.yaml")
    before, (run,) = written.read_text(), out.rglob("run.json")
    assert run.parent.parent == written.parent
    again = ("train", written, *common)
    planned = marginctl(*again, "--out", out, "--dry-run", "--json").json["dry_run"]
    assert (planned["to_do"], planned["folder"]) == (0, str(written.parent))
    assert marginctl(*again, "--out", out, "--seeds", "2").status == 0
    assert written.read_text() == before
    assert [path.parent.parent for path in out.rglob("run.json")] == [written.parent] * 2
    assert list(out.rglob("*.yaml")) == [written]
    other = tmp_path / "other"
    assert marginctl(*again, "--out", other).status == 0
    (rewritten,) = other.rglob("*.yaml")
    last = ("train", rewritten, *common, "--out", other, "--dry-run", "--json")
    assert marginctl(*last).json["dry_run"]["to_do"] == 0
