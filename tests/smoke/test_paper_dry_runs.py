"""The temperature paper's tables by name: --dry-run on miniatures of their data, and the cost."""

import pytest

from tests.data.miniatures import write_miniature

SEVEN = (
    *("cub-200-2011", "food-101", "stanford-cars", "fgvc-aircraft", "sun397", "dtd"),
    "flowers-102",
)
TRAINED = {
    "table2-cifar10": ("cifar-10",),
    "table2-cifar100": ("cifar-100",),
    "table2-food101": ("food-101",),
    "table2-imagenet": ("imagenet",),
    "table9-densenet161": ("imagenet",),
    "table9-mobilenet-v2": ("imagenet",),
    "table9-resnext50": ("imagenet",),
}
TRANSFERRED = {
    "table4a": "table2-imagenet",
    "table4b": "table2-imagenet",
    "table12": "table9-densenet161",
    "table13": "table9-resnext50",
    "table14": "table9-mobilenet-v2",
    "table15": "table2-imagenet",
}
IN_CI = ("table2-cifar10", "table14")


def named(recipes):
    return [pytest.param(n, marks=() if n in IN_CI else pytest.mark.slow) for n in recipes]


@pytest.mark.parametrize("name", named(TRAINED))
def test_trainings(name, marginctl, tmp_path, monkeypatch):
    for data in TRAINED[name]:
        write_miniature(data, tmp_path / "data", monkeypatch)
    plan = marginctl(
        *("train", f"temperature/{name}", "--dry-run", "--json", "--device", "cpu"),
        *("--data-dir", tmp_path / "data", "--out", tmp_path / "runs"),
    )
    assert plan.status == 0, plan.err
    document = plan.json["dry_run"]
    assert document["trials"] == document["to_do"] == (27 if "cifar" in name else 9)
    assert all(row["operations"] > 0 for row in document["rows"])


@pytest.mark.parametrize("name", named(TRANSFERRED))
def test_transfer_from_trained_networks(name, marginctl, tmp_path, monkeypatch):
    data, runs = tmp_path / "data", tmp_path / "runs"
    for needed in ("imagenet", *SEVEN):
        write_miniature(needed, data, monkeypatch)
    source = f"temperature/{TRANSFERRED[name]}"
    place = ("--data-dir", data, "--out", runs, "--device", "cpu", "--quiet", "--json")
    trained = marginctl("train", source, "--objective", "soft", "--epochs", "1", *place)
    assert trained.status == 0, trained.err
    plan = marginctl(
        "transfer", f"temperature/{name}", "--from", runs / source, "--dry-run", *place
    )
    assert plan.status == 0, plan.err
    document = plan.json["dry_run"]
    methods = 1 if name.startswith("table4") else 2
    assert document["trials"] == methods * len(SEVEN)
    operations = {row["trial"]: row["operations"] for row in document["rows"]}
    assert all(operations.values())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "trials"), [("table5", 12), ("table10", 4)])
def test_cosify_of_published_weights(name, trials, marginctl, tmp_path, monkeypatch):
    """With made weights of ResNet-50 where torch.hub would cache the published ones."""
    import torch
    from torchvision.models import ResNet50_Weights, resnet50

    file = ResNet50_Weights.IMAGENET1K_V1.url.rpartition("/")[2]
    cache = tmp_path / "torch" / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    torch.save(resnet50(weights=None).state_dict(), cache / file)
    write_miniature("imagenet", tmp_path / "data", monkeypatch)
    plan = marginctl(
        *("cosify", f"temperature/{name}", "--dry-run", "--json", "--device", "cpu"),
        *("--data-dir", tmp_path / "data", "--out", tmp_path / "runs"),
    )
    assert plan.status == 0, plan.err
    document = plan.json["dry_run"]
    assert document["trials"] == trials
    assert all(row["operations"] > 0 for row in document["rows"])
