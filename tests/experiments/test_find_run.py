"""The reference network of a curriculum: found, and refused with its reason."""

import json
import shutil

import pytest

QUICK = ("--data", "digits", "--model", "mlp:width=8", "--device", "cpu", "--quiet")
SMALL = ("--epochs", "1", "--set", "data.subset_size=100", "--set", "train.batch_size=50")
NAME = "digits-mlp-width-8"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with one finished trial."""
    from marginctl.cli import run

    out = tmp_path_factory.mktemp("reference") / "runs"
    assert run(["train", *QUICK, *SMALL, "--objective", "soft", "--out", str(out)]) == 0
    return out


@pytest.fixture
def trial(store, tmp_path):
    """A copy of the trial's folder."""
    (folder,) = (path.parent for path in store.rglob("run.json"))
    return shutil.copytree(folder, tmp_path / folder.name)


def asked(marginctl, reference, tmp_path, *more):
    return marginctl(
        *("train", *QUICK, *SMALL, "--set", f"train.reference_run={reference}"),
        *("--out", tmp_path / "out", *more),
    )


def trial_ids(tmp_path):
    return sorted(path.parent.name for path in (tmp_path / "out").rglob("result.json"))


def test_a_trial_is_that_of_its_reference_s_weights_wherever_it_lies(
    marginctl, store, trial, tmp_path
):
    first = asked(marginctl, trial, tmp_path)
    assert first.status == 0, first.err
    (made,) = trial_ids(tmp_path)
    again = asked(marginctl, store / NAME, tmp_path)  # that folder holds one trial
    assert again.status == 0
    assert trial_ids(tmp_path) == [made]
    other = store.parent / "other"
    ran = marginctl("train", *QUICK, *SMALL, "--seed", "7", "--objective", "soft", "--out", other)
    assert ran.status == 0
    assert asked(marginctl, other / NAME, tmp_path).status == 0
    assert len(trial_ids(tmp_path)) == 2
    plain = marginctl("train", *QUICK, *SMALL, "--out", tmp_path / "out")
    assert plain.status == 0
    assert len(trial_ids(tmp_path)) == 3


def test_what_is_no_reference_is_refused_in_a_line(marginctl, store, trial, tmp_path):
    def refused(reference, said, *more):
        ran = asked(marginctl, reference, tmp_path, *more)
        assert ran.status == 2
        assert said in ran.err
        assert len(ran.err.splitlines()) == 1
        assert not trial_ids(tmp_path)

    refused(tmp_path / "absent", "no trial is there: expected the folder of a finished trial")
    refused(
        trial, "was trained on other images (digits) than digits", "--set", "data.subset_size=120"
    )
    refused(trial, "train.difficulty_groups = 101", "--set", "train.difficulty_groups=101")
    whole = (trial / "result.json").read_text()
    (trial / "result.json").unlink()
    refused(trial, "that trial is not finished: expected the folder of a finished trial")
    (trial / "result.json").write_text(whole.replace("soft", "sofd"))
    refused(trial, "its result.json is corrupt")
    (trial / "result.json").write_text(whole)
    shutil.copytree(trial, tmp_path / "two" / "a")
    shutil.copytree(trial, tmp_path / "two" / "b")
    refused(tmp_path / "two", "holds 2 trials: name the folder of one of them")
    run = json.loads((trial / "run.json").read_text())
    (trial / "run.json").write_text(json.dumps(run | {"task": "uci-cv"}))
    refused(trial, "expected a trial of marginctl train")
    (trial / "run.json").write_text(json.dumps(run))
    for path in (trial / "checkpoints").iterdir():
        path.unlink()
    refused(trial, "has no valid checkpoint: train it again")


def test_a_diverged_reference_is_refused(marginctl, tmp_path):
    huge = ("--set", "optim.optimizer=sgd", "--set", "optim.lr=1e6", "--out", tmp_path / "huge")
    ran = marginctl("train", *QUICK, *SMALL, *huge, "--objective", "soft")
    assert ran.status == 1
    refused = asked(marginctl, tmp_path / "huge" / NAME, tmp_path)
    assert refused.status == 2
    assert "expected a trial of marginctl train that was trained to its end" in refused.err


def test_groups_need_a_reference_and_images(marginctl, trial, tmp_path):
    ran = marginctl(
        "train", *QUICK, "--set", "train.difficulty_groups=7", "--out", tmp_path / "out"
    )
    assert ran.status == 2
    assert "train.difficulty_groups = 7 without train.reference_run" in ran.err
    few = ("--set", "data.subset_size=12", "--set", "train.difficulty_groups=13")
    ran = asked(marginctl, trial, tmp_path, *few)
    assert (
        "train.difficulty_groups = 13 of 12 training images: expected at least one image in each"
        in ran.err
    )


@pytest.mark.parametrize("command", ["eval", "calibrate"])
@pytest.mark.parametrize("file", ["a/b/c", "notes.txt", "train/cat/1.png", "checkpoints/old.txt"])
def test_nobody_is_told_to_remove_a_folder_that_is_no_run(marginctl, tmp_path, command, file):
    path = tmp_path / "mine" / file
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    ran = marginctl(command, tmp_path / "mine")
    assert ran.status == 2
    assert ran.err == (
        f"error: {tmp_path / 'mine'}: expected the folder of a trial of marginctl train, or a "
        "checkpoint in it\n"
    )
