"""Groups of images: by a pattern or a table, held out together."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from marginctl.data.images.groups import hold_out_groups, read_image_groups
from marginctl.data.images.image_sets import load_image_set
from marginctl.data.images.subsets import split_indices
from marginctl.data.images.summary import inspect_image_set
from marginctl.errors import RequestError
from marginctl.recipe.image_data import ImageData

PATTERN = r"re:^(p\d+)_"


@pytest.fixture
def patients(tmp_path):
    """Two classes of 12 persons each with 4 images, 8 x 8 pixels of the person's own color."""
    stream = np.random.default_rng(0)
    for person in range(24):
        folder = tmp_path / "scans" / ("ill", "well")[person % 2]
        folder.mkdir(parents=True, exist_ok=True)
        color = tuple(stream.integers(256, size=3).tolist())
        for i in range(4):
            Image.new("RGB", (8, 8), color).save(folder / f"p{person}_{i}.png")
    return tmp_path


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fraction", [0.15, 0.2, 0.5, 0.7])
def test_whole_groups_of_every_class_are_held_out(seed, fraction):
    stream = np.random.default_rng(seed)
    groups = stream.integers(40, size=300).astype(np.int64)
    labels = (groups % 3).astype(np.int64)
    rows = hold_out_groups("images", labels, groups, fraction, seed, "test")
    fit = np.setdiff1d(np.arange(300), rows)
    assert not set(groups[rows]) & set(groups[fit])
    assert set(labels[fit]) == set(labels)
    assert len(rows) / 300 == pytest.approx(fraction, abs=0.08)
    validation = split_indices(labels, fraction, seed, groups)
    assert not set(groups[validation[0]]) & set(groups[validation[1]])


def test_too_few_groups():
    labels = np.array([0, 0, 1, 1])
    with pytest.raises(RequestError, match="2 groups of images: no division leaves images of ev"):
        hold_out_groups("images", labels, labels, 0.2, 0, "test")


@pytest.mark.parametrize("stream", [False, True])
def test_a_folder_is_split_by_a_pattern_of_its_files(patients, stream):
    groups = read_image_groups(PATTERN, patients)
    data = load_image_set("folder:scans", patients, 8, stream=stream, groups=groups)
    assert len(data.train_y) + len(data.test_y) == 96
    assert len(data.test_y) == pytest.approx(19, abs=5)
    assert (np.unique(data.groups, return_counts=True)[1] == 4).all()
    half = data.select(np.arange(0, len(data.train_y), 2))
    assert half.groups.tolist() == data.groups[::2].tolist()
    apart = load_image_set("folder:scans", patients, 8, stream=stream)
    assert apart.groups is None
    assert data.digest != apart.digest
    summary = inspect_image_set("folder:scans", patients, None, groups)
    assert "24 groups of images (data.groups): those of a group are held out together" in (
        summary.remarks
    )
    assert not any("in several parts" in remark for remark in summary.remarks)


def test_a_table_names_the_groups(patients):
    files = sorted((patients / "scans").rglob("*.png"))
    lines = [
        f"{path.relative_to(patients / 'scans').as_posix()},{re.match('p[0-9]+', path.name)[0]}"
        for path in files
    ]
    (patients / "groups.csv").write_text("\n".join(["image,group", *lines]))
    named = read_image_groups("groups.csv", patients)
    matched = read_image_groups(PATTERN, patients)
    paths = [line.partition(",")[0] for line in lines]
    assert named.numbers(paths).tolist() == matched.numbers(paths).tolist()
    with pytest.raises(RequestError, match=r"has no row for 1 image: ill/new\.png: expected"):
        named.numbers(["ill/new.png"])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("re:p(", "no regular expression"),
        ("re:patient", "expected parentheses around the name of the group"),
    ],
)
def test_wrong_patterns_are_refused_in_the_recipe(source, words):
    with pytest.raises(ValueError, match=words):
        ImageData(name="folder:scans", groups=source)
    with pytest.raises(ValueError, match="expected folder:PATH or list:PATH"):
        ImageData(name="digits", groups=PATTERN)


def test_a_table_without_the_columns(patients):
    (patients / "wrong.csv").write_text("file,person\na,b\n")
    with pytest.raises(RequestError, match="no column 'image': expected a CSV file with the col"):
        read_image_groups("wrong.csv", Path(patients))


@pytest.mark.smoke
def test_train_and_transfer_take_groups(marginctl, patients):
    arguments = ("--data", f"folder:{patients / 'scans'}", "--groups", PATTERN)
    small = ("--set", "data.image_size=8", "--device", "cpu", "--out", patients / "runs")
    ran = marginctl(
        *("train", *arguments, *small, "--model", "mlp", "--set", "data.val_fraction=0.2"),
        *("--objective", "soft", "--epochs", "1", "--json"),
    )
    assert ran.status == 0, ran.err
    assert "24 groups of images (data.groups)" in ran.err
    run = next((patients / "runs").rglob("result.json")).parent
    probe = marginctl("transfer", "--from", run, *arguments, *small, "--json")
    assert probe.status == 0, probe.err
    assert marginctl("eval", run, "--json").json["n"] == probe.json["cells"][0]["trials"][0]["n"]
