"""What a report makes of real runs: pages, LaTeX, figures, differences; and training from files."""

import os

import pytest

from marginctl.cli import run as run_command

pytestmark = pytest.mark.smoke

OBJECTIVES = ("gradient-decay", "gradient-decay:beta=5", "cosine-ls", "arcgrad", "lm-softmax")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A grid of two shares, five objectives and two seeds on digits; iris beside it."""
    out = tmp_path_factory.mktemp("store")
    recipe = out / "shares.yaml"
    recipe.write_text(
        "paper: large-margin\ntask: train\nmodel: mlp:width=16\n"
        f"objectives: {list(OBJECTIVES)}\noptim: {{optimizer: adam, lr: 0.01}}\n"
        "train: {epochs: 2, batch_size: 100}\nseeds: [0, 1]\ngrid: "
        "{data.subset_fraction: [0.5, 1.0]}\n"
    )
    quick = ["--folds", "3", "--repeats", "1", "--set", "protocol.epochs=2", "--quiet"]
    for line in (
        ["train", recipe, "--device", "cpu", "--tensorboard", out / "tb", "--out", out / "runs"],
        ["uci-cv", "--dataset", "iris", *quick, "--out", out / "runs"],
    ):
        assert run_command([str(word) for word in line]) == 0
    return out / "runs"


def test_a_page(marginctl, store, tmp_path):
    page = tmp_path / "report.html"
    assert marginctl("report", store, "--format", "html", "--output", page).status == 0
    text = page.read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert text.count("data:image/svg+xml") >= 5
    assert "arcgrad, table I" in text


def test_latex_and_figures(marginctl, store, tmp_path):
    assert r"\begin{tabular}" in marginctl("report", store, "--format", "latex").out
    ran = marginctl("report", store, "--figures", tmp_path)
    drawn = {path.stem.partition("-")[2] for path in tmp_path.glob("*.png")}
    assert {
        "curves",
        "rho",
        "angles",
        "scale",
        "grid-sweep",
        "option-sweep",
        "reliability",
    } <= drawn
    assert ran.status == 0


def test_diff_of_two_runs_folders(marginctl, store):
    found = marginctl("report", "--diff", store, store, "--format", "json").json
    assert all(cell["identical"] for cell in found["diff"]["cells"])
    assert "identical" in marginctl("report", "--diff", store, store).out


def test_training_from_a_list_of_files(marginctl, tmp_path, data_dir):
    found = sorted((data_dir / "hymenoptera").rglob("*.jpg"))
    lines = [f"{path} {int('bees' in str(path))}\n" for path in found]
    for name in ("train.txt", "val.txt"):
        (tmp_path / name).write_text("".join(lines[::4]))
    arguments = ("train", "--data", f"list:{tmp_path}", "--model", "mnist-cnn", "--epochs", "1")
    small = (
        "--set",
        "data.image_size=32",
        "--set",
        "data.augment=random-resized-crop-flip",
        "--device",
        "cpu",
    )
    ran = marginctl(*arguments, *small, "--out", tmp_path / "runs", "--json")
    assert ran.status == 0, ran.err
    assert ran.json["cells"][0]["n"] == 1


def test_runs_of_an_unknown_paper_are_on_the_page(marginctl, tmp_path):
    recipe = tmp_path / "own.yaml"
    recipe.write_text("paper: my-paper\ntask: train\nmodel: mlp:width=8\ntrain: {epochs: 1}\n")
    assert marginctl("train", recipe, "--device", "cpu", "--out", tmp_path / "runs").status == 0
    (metrics,) = (tmp_path / "runs").rglob("metrics.jsonl")
    metrics.unlink()
    os.mkfifo(metrics)  # which no figure waits for
    page = tmp_path / "page.html"
    assert marginctl("report", tmp_path / "runs", "--format", "html", "--output", page).status == 0
    text = page.read_text("utf-8")
    assert ">own</h3>" in text
    assert ">epochs=1</p>" in text
