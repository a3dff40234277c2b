"""Published image sets by name, through the commands, on miniatures in the original layout."""

import json

import pytest

from tests.data.miniatures import WRITERS, write_miniature

SMALL = ("--model", "mlp:width=4", "--device", "cpu", "--quiet", "--set", "train.batch_size=2")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The folder of a network of three-channel images, to evaluate on others."""
    import numpy as np
    from PIL import Image

    from marginctl.cli import run

    root = tmp_path_factory.mktemp("source")
    for i in range(12):
        path = root / "photos" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (32, 32, 3), np.uint8)
        Image.fromarray(pixels).save(path)
    status = run(
        [
            *("train", "--data", f"folder:{root / 'photos'}", "--objective", "soft", *SMALL),
            *("--set", "data.image_size=32", "--epochs", "1", "--out", str(root / "runs")),
            *("--workers", "1"),
        ]
    )
    assert status == 0
    (result,) = (root / "runs").rglob("result.json")
    return result.parent


@pytest.mark.parametrize("name", WRITERS)
def test_a_named_set_in_every_command(name, marginctl, tmp_path, monkeypatch, source):
    data = tmp_path / "data"
    write_miniature(name, data, monkeypatch)
    place = ("--data-dir", data)

    rows = {r["name"]: r for r in marginctl("data", "list", "--json", *place).json}
    assert rows[name]["state"] == "present"
    assert rows[name]["instances"] == sum(rows[name]["parts"].values())
    assert marginctl("data", "verify", name, *place).out == f"{name}: present\n"

    sized = () if name in ("kmnist", "emnist", "usps", "stl-10") else ("data.image_size=32",)
    options = [part for text in sized for part in ("--set", text)]
    trained = marginctl(
        *("train", "--data", name, "--objective", "soft", *SMALL, *options, *place),
        *("--epochs", "1", "--out", tmp_path / "runs", "--json"),
    )
    assert trained.status == 0, trained.err
    (result,) = (tmp_path / "runs").rglob("result.json")
    assert json.loads(result.read_text())["last"]["n"] == rows[name]["parts"]["test"]

    plan = marginctl(
        *("transfer", "--from", result.parent, "--data", name, "--method", "probe", *place),
        *("--dry-run", "--json", "--out", tmp_path / "runs"),
    )
    assert plan.status == 0, plan.err
    assert plan.json["dry_run"]["trials"] == 1

    if name not in ("kmnist", "emnist", "usps", "stl-10"):
        evaluated = marginctl("eval", source, "--ood", name, "--json", *place)
        assert evaluated.status == 0, evaluated.err
        assert name in json.dumps(evaluated.json["detection"])
