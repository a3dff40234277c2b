"""Evaluation of a run on other images: classes are matched by name, and never by their number."""

import csv
import json
import shutil

import pytest

from marginctl.cli import run as run_command
from tests.data.helpers import BLUE, GREEN, POINTER, RED, paint, write

COLOURS = {"blue": BLUE, "green": GREEN, "red": RED}
OPTIONS = ("--model", "mlp:width=8", "--device", "cpu", "--seed", "1")
OPTIONS += (
    "--set",
    "optim.lr=0.05",
    "--set",
    "data.image_size=4",
    "--set",
    "train.batch_size=4",
    "--epochs",
    "6",
)


def colours(root, names, parts=("train", "val"), count=4):
    """Images of one colour for each class; `names` gives the class of each colour."""
    for part in parts:
        for colour, name in names.items():
            for i in range(count):
                paint(root / part / name / f"{i}.png", COLOURS[colour], size=(4 + i, 4))
    return f"folder:{root}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder of three colours, `set`, and a network that knows them, in `runs`."""
    folder = tmp_path_factory.mktemp("trained")
    data = colours(folder / "set", {c: c for c in COLOURS})
    assert run_command(["train", "--data", data, *OPTIONS, "--out", str(folder / "runs")]) == 0
    return folder


@pytest.fixture
def run(trained):
    """The run directory of that network."""
    return next((trained / "runs").rglob("result.json")).parent


@pytest.fixture
def own(trained):
    """The name of the images that it was trained on."""
    return f"folder:{trained / 'set'}"


def evaluated(marginctl, run, data, *options):
    ran = marginctl("eval", run, "--data", data, "--json", "--device", "cpu", *options)
    assert ran.status == 0, ran.err
    return ran


def test_classes_by_name(marginctl, run, tmp_path):
    own = marginctl("eval", run, "--json", "--device", "cpu").json
    assert own["top1"] == 100
    # in fewer classes, which are other numbers there
    part = evaluated(marginctl, run, colours(tmp_path / "part", {"green": "green", "red": "red"}))
    assert (part.json["n"], part.json["top1"]) == (8, 100)
    assert f"folder:{tmp_path / 'part'}: test: 8" not in part.err
    assert f"folder:{tmp_path / 'part'}: val: 8 images in 2 classes: green (4), red (4)" in part.err
    # in a list, whose order is another one
    names = ["red", "blue", "green"]
    write(tmp_path / "list" / "classes.txt", "\n".join(names).encode())
    files = tmp_path / "part2" / "val"
    colours(tmp_path / "part2", {c: c for c in COLOURS})
    rows = [f"{files}/{c}/{i}.png {names.index(c)}" for c in names for i in range(4)]
    write(tmp_path / "list" / "val.txt", "\n".join(rows).encode())
    assert evaluated(marginctl, run, f"list:{tmp_path / 'list'}").json["top1"] == 100
    # wrong labels are wrong
    swapped = colours(tmp_path / "swapped", {"blue": "red", "red": "blue", "green": "green"})
    assert evaluated(marginctl, run, swapped).json["top1"] == pytest.approx(100 / 3)


def test_a_folder_without_parts_is_evaluated_as_a_whole(marginctl, run, tmp_path):
    colours(tmp_path / "whole", {c: c for c in COLOURS}, parts=("",), count=5)
    ran = evaluated(marginctl, run, f"folder:{tmp_path / 'whole'}")
    assert (ran.json["n"], ran.json["top1"]) == (15, 100)


@pytest.mark.parametrize("command", ["eval", "calibrate"])
@pytest.mark.parametrize(
    ("names", "unknown"),
    [
        ({"blue": "1", "green": "2", "red": "3"}, "1"),
        ({"blue": "azul", "green": "green", "red": "red"}, "azul"),
        ({"blue": "Blue", "green": "Green", "red": "Red"}, "Blue"),
        ({"blue": "blue", "red": "rouge"}, "rouge"),
    ],
)
def test_renamed_classes_are_refused(marginctl, run, tmp_path, command, names, unknown):
    ran = marginctl(command, run, "--data", colours(tmp_path / "other", names), "--device", "cpu")
    assert ran.status == 2
    assert ran.err.splitlines()[-1] == (
        f"error: data set 'folder:{tmp_path / 'other'}': class '{unknown}' is none of the 3 "
        "classes of the network (blue, green, red): rename it, or remove it"
    )


def test_the_summary_is_printed_and_recorded(marginctl, run, own, tmp_path):
    ran = marginctl("calibrate", run, "--data", own, "--json", "--bootstrap", "0")
    assert "all 12 images of val are also in an earlier part" in ran.err
    quiet = ("--json", "--quiet", "--bootstrap", "0")
    assert marginctl("calibrate", run, "--data", own, *quiet).err == ""
    record = json.loads((run / "run.json").read_text())["data_summary"]
    assert record["parts"]["train"] == {"images": 12, "classes": dict.fromkeys(COLOURS, 4)}
    assert record["duplicates"] == {"within_parts": 0, "across_parts": 12, "across_classes": 0}
    few = ("--epochs", "1", "--out", tmp_path)
    again = marginctl("train", "--data", own, *OPTIONS, *few)
    assert f"{own}: sizes: 4 x 4 to 7 x 4 (median 5 x 4), used at 4 x 4" in again.err
    assert marginctl("train", "--data", own, *OPTIONS, *few).err == ""  # nothing is trained


def test_cosify_compares_with_the_network_before_by_names(marginctl, run, tmp_path):
    other = colours(tmp_path / "list", {c: c for c in COLOURS})
    names = ["red", "blue", "green"]
    write(tmp_path / "list" / "classes.txt", "\n".join(names).encode())
    for part in ("train", "val"):
        rows = [f"{part}/{c}/{i}.png {names.index(c)}" for c in names for i in range(4)]
        write(tmp_path / "list" / f"{part}.txt", "\n".join(rows).encode())
    for data, options in ((other, ()), (other.replace("folder", "list"), ("--epochs", "1"))):
        ran = marginctl(
            *("cosify", "--from", run, "--data", data, "--blocks", "head", "--objective", "cosine"),
            *("--device", "cpu", "--out", tmp_path / "cosified", "--json", "--epochs", "1"),
            *("--set", "data.image_size=4", *options),
        )
        assert ran.status == 0, ran.err
        records = list((tmp_path / "cosified").rglob("result.json"))
        for record in records:
            assert json.loads(record.read_text())["baseline"]["top1"] == 100
    assert len(records) == 2


@pytest.mark.parametrize("load", ["memory", "stream"])
def test_pointers_stop_a_training_before_it_starts(marginctl, tmp_path, load):
    data = colours(tmp_path / "set", {c: c for c in COLOURS})
    write(tmp_path / "set" / "val" / "red" / "0.png", POINTER)
    ran = marginctl(
        *("train", "--data", data, *OPTIONS, "--set", f"data.load={load}", "--out", tmp_path / "r")
    )
    assert ran.status == 2
    assert "Git LFS pointer: run git lfs pull: val/red/0.png" in ran.err
    assert not (tmp_path / "r").exists()


def test_nested_images_are_predicted_by_their_path(marginctl, run, tmp_path):
    colours(tmp_path / "set", {c: c for c in COLOURS})
    for part in ("train", "val"):
        shutil.move(tmp_path / "set" / part / "red", tmp_path / "moved" / part / "red" / "2019")
        shutil.copytree(tmp_path / "moved", tmp_path / "set", dirs_exist_ok=True)
        shutil.rmtree(tmp_path / "moved")
    ran = marginctl(
        *("transfer", "--from", run, "--data", f"folder:{tmp_path / 'set'}", "--device", "cpu"),
        *("--out", tmp_path / "t", "--predictions", tmp_path / "p.csv", "--quiet"),
    )
    assert ran.status == 0, ran.err
    with (tmp_path / "p.csv").open() as file:
        names = [row["image"] for row in csv.DictReader(file)]
    assert names[-1] == "val/red/2019/3.png"
