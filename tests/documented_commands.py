"""Documented commands made runnable: a folder with the files that they name, and less work."""

import itertools
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from marginctl.cli import run

NETWORK = ("--model", "mlp:width=8", "--epochs", "1", "--device", "cpu", "--quiet")
PROBE = ("--set", "images=100", "--set", "classes=3", "--set", "features=10")
# options that make a benchmark end within seconds
QUICK_BENCHMARKS = {
    ("bench", "objectives"): ("--rounds", "1", "--set", "shapes=[[8,10,16]]"),
    ("bench", "probe"): ("--rounds", "1", *PROBE),
}
STAND_INS = {"near=digits": "near=folder:textures", "far=fashion-mnist": "far=folder:photos"}


def create_files(folder: Path) -> Path:
    """Write runs folders, images, tables, logits and pair lists into a folder and return it."""
    stream = np.random.default_rng(0)
    for name, part, label in itertools.product(
        ("photos", "textures"), ("train", "val"), ("ant", "bee")
    ):
        (folder / name / part / label).mkdir(parents=True)
        for i in range(3):
            pixels = stream.integers(0, 255, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / part / label / f"{i}.png")
    rows = [f"{i % 7},{i % 5},{'ab'[i % 2]}" for i in range(40)]
    for name in ("mine", "train", "test"):
        (folder / f"{name}.csv").write_text("\n".join(["width,height,kind", *rows]))
        rows = rows[:30]
    alike = [
        f"photos/val/{c}/0.png photos/val/{c}/{i}.png 1" for c in ("ant", "bee") for i in (1, 2)
    ]
    others = [f"photos/val/ant/{i}.png photos/val/bee/{i}.png 0" for i in range(3)]
    (folder / "new.csv").write_text("height,width\n1,2\n3,\n")
    (folder / "pairs.txt").write_text("\n".join(alike + others))
    logits = stream.normal(size=(200, 10))
    np.savez(folder / "outputs.npz", logits=logits, labels=np.arange(200) % 10)
    runs, start = folder / "runs", folder / "runs" / "start"
    train = ["train", "--data", "digits", *NETWORK, "--out", str(runs)]
    assert run(train) == 0
    smoke = ["train", "temperature/smoke", *NETWORK, "--objective", "soft", "--seed", "0"]
    assert run([*smoke, "--out", str(start)]) == 0
    photos = [
        "train",
        "--data",
        f"folder:{folder / 'photos'}",
        "--set",
        "data.image_size=16",
        *NETWORK,
    ]
    photos += ["--model", "mobilenet:width=0.1", "--out", str(folder / "photo-runs")]
    assert run(photos) == 0
    table = ["uci-cv", "--dataset", "iris", "--objective", "soft", "--folds", "3", "--repeats", "1"]
    table += ["--objective", "arcgrad:scale=5", "--set", "protocol.epochs=1", "--quiet"]
    assert run([*table, "--out", str(runs)]) == 0
    mine = ["uci-cv", "--csv", str(folder / "mine.csv"), "--target", "kind", "--no-tune"]
    mine += ["--objective", "soft", "--set", "protocol.epochs=1", "--quiet", "--workers", "1"]
    mine += ["--out", str(folder / "own-runs"), "--save-model", str(folder / "mine.safetensors")]
    assert run(mine) == 0
    shutil.copytree(runs, folder / "other-runs")
    trial = next(runs.glob("*digits*/*/result.json")).parent
    calibrate = ["calibrate", str(trial), "--method", "temperature", "--quiet"]
    assert run([*calibrate, "--save", str(folder / "saved-calibrator.json")]) == 0
    return folder


def runnable(arguments: list[str], folder: Path) -> list[str]:
    """Return a documented command with the files of the folder and little work.

    Commands that train only print their plan; evaluation, calibration and reports are run.
    """
    digits = next((folder / "runs").glob("*digits*/*/result.json")).parent
    photos = next((folder / "photo-runs").rglob("result.json")).parent
    words: list[str] = []
    for word in arguments:
        if words and words[-1] == "--from":
            known = word == "efficientnet-lite0" or (folder / word).is_dir()
            words.append(word if known else str(photos))
        elif words and words[-1] == "--calibration":
            words.append("saved-calibrator.json")
        elif word == "RUN" or word.endswith("TRIAL"):
            words.append(str(photos if "--pairs" in arguments else digits))
        else:
            words.append(STAND_INS.get(word, word.replace("PATH", "photos")))
    if words[0] in ("train", "cosify", "transfer", "uci-cv") and "--dry-run" not in words:
        words.append("--dry-run")
    if words[0] == "train":
        words += ["--data", "digits", "--model", "mlp:width=8"]
        tail = any("imbalance" in word or "table7" in word for word in words)
        words += ["--set", "data.max_per_class=20" if tail else "data.subset_size=50"]
    if words[0] == "bench":
        words += QUICK_BENCHMARKS.get(tuple(words[:2]), ("--help",))
    return words
