"""Every setting of a recipe of a paper is the paper's (with the place), public code's, or ours."""

import re
from collections import defaultdict

import pytest

from marginctl.papers import papers
from marginctl.recipe.load import RecipeFile, read_document, recipes_folder

SECTION = re.compile(r"(Paper|Public code|Ours)(?: \(([^)]+)\))?[:,] ")
# The words that name a setting, by the key of a recipe or by what a key implies.
TRAINING = r"the training\b(?! (?:data|images|runs|rows|set))"
WORDS = {
    "data": r"\bdata\b|data set|CIFAR|ImageNet|SVHN|Places-365|Food-101",
    "datasets": r"\bdata\b|data set",
    "augment": r"crops|flips|augmentation",
    "subset": r"training images|1,280 images|fractions|part of the",
    "label_noise": r"wrong labels",
    "model": r"network|ResNet|VGG|MobileNet",
    "source_models": r"network|source model",
    "source_model": r"source model",
    "objectives": r"method|objective|values of beta|ArcGrad|AdaCos|options|kappa\*",
    "optimizer": rf"\bSGD\b|\bAdam\b|optimizer|{TRAINING}",
    "lr": rf"learning[- ]rate|{TRAINING}",
    "weight_decay": rf"weight decay|{TRAINING}",
    "epochs": rf"epochs?\b|{TRAINING}",
    "batch_size": rf"batch size|{TRAINING}",
    "seeds": r"seeds?\b|training runs",
    "protocol": rf"folds|protocol|{TRAINING}",
    "search": r"search",
    "tune": r"learning rates",
    "ood": r"OOD",
    "pairs": r"pairs",
    "blocks": r"block",
    "method": r"method|probe|fine-tuning",
    "second_stage": r"stage",
    "class weights": r"class weights",
}
REST = re.compile("everything else|the rest of the protocol")
PAPER_RECIPES = sorted(
    f"{paper.name}/{path.stem}"
    for paper in papers()
    for path in (recipes_folder() / paper.name).glob("*.yaml")
    if path.name != "published.yaml"
)


def attribution(name: str) -> dict[str, str]:
    """Return the text of a recipe by the source of the settings, such as `Paper (Table III)`."""
    sources = defaultdict(str)
    current = None
    for line in (recipes_folder() / f"{name}.yaml").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.removeprefix("#").strip()
        if match := SECTION.match(text):
            current = match[1] + (f" ({match[2]})" if match[2] else "")
        if current:
            sources[current] += text.removeprefix(match[0] if match else "") + " "
    return dict(sources)


def settings(name: str) -> dict[str, str]:
    """Return the settings of a recipe: a key of WORDS -> its value."""
    recipe = read_document(RecipeFile(name, recipes_folder() / f"{name}.yaml")).content
    values = {key: recipe[key] for key in recipe if key in WORDS and key != "data"}
    data = recipe.get("data", {})
    values |= {"data": data["name"]} if data else {}
    if data.get("augment", "none") != "none":
        values["augment"] = data["augment"]
    for key in ("subset_size", "subset_fraction", "imbalance_factor", "label_noise"):
        if key in data or f"data.{key}" in recipe.get("grid", {}):
            word = "label_noise" if key == "label_noise" else "subset"
            values[word] = data.get(key, recipe.get("grid", {}).get(f"data.{key}"))
    optim = {"optimizer": "sgd", **recipe.get("optim", {})} if "optim" in recipe else {}
    for section in (optim, recipe.get("train", {})):
        values |= {key: value for key, value in section.items() if key in WORDS}
    if recipe["task"] == "train":
        values["class weights"] = "uniform"
    values |= {key: recipe["grid"][key] for key in ("blocks",) if key in recipe.get("grid", {})}
    return {key: str(value) for key, value in values.items()}


def sources_of(name: str) -> dict[str, list[str]]:
    """Return the sources that name each setting; `everything else` names what no other does."""
    texts = attribution(name)
    found = {
        key: [source for source, text in texts.items() if re.search(WORDS[key], text)]
        for key in settings(name)
    }
    rest = [source for source, text in texts.items() if REST.search(text)]
    return {key: sources or rest for key, sources in found.items()}


@pytest.mark.parametrize("name", PAPER_RECIPES)
def test_every_setting_has_a_source(name):
    unnamed = [key for key, sources in sources_of(name).items() if not sources]
    assert unnamed == []


@pytest.mark.parametrize("name", PAPER_RECIPES)
def test_what_is_the_papers_or_public_codes_has_a_place(name):
    texts = attribution(name)
    assert "Ours" in texts
    for source in texts:
        assert source == "Ours" or re.fullmatch(r"(Paper|Public code) \(.+\)", source)


def test_what_was_attributed_wrongly():
    ours = {name: attribution(name)["Ours"] for name in PAPER_RECIPES}
    for name in ("table1", "table2", "table2-cpu", "table3-noise", "table3-share"):
        texts = attribution(f"large-margin/{name}")
        (port,) = [text for source, text in texts.items() if source.startswith("Public code")]
        assert "crops" in port
        assert "flips" in port
        assert "mean color" in port
        assert "N(0, 0.01)" in ours[f"large-margin/{name}"]
    for name in ("vgg16", "vgg16-mod", "mobilenet", "resnext50"):
        texts = attribution(f"large-margin/table4-{name}")
        assert not any("supplement" in source for source in texts)
        (port,) = [text for source, text in texts.items() if source.startswith("Public code")]
        assert "learning rate 0.1" in port
        assert "weight decay 1e-4" in port
        given = settings(f"large-margin/table4-{name}")
        assert (given["lr"], given["weight_decay"]) == (
            "step(start=0.1,factor=0.1,every=0.25)",
            "0.0001",
        )
    for name in ("table4", "table5", "table6", "table7", "figure3"):
        assert "stem" in ours[f"arcgrad/{name}"]
        assert "alpha" in ours[f"arcgrad/{name}"]
        five = any("five training runs" in text for text in attribution(f"arcgrad/{name}").values())
        assert five == (name in ("table4", "table5"))
    assert "CIFAR-10 with augmentation" in ours["arcgrad/table7"]
    assert "positive class" in ours["temperature/table10"]
    for name in PAPER_RECIPES:
        if name.startswith("gradient-decay/"):
            assert "beta" in ours[name] or REST.search(ours[name])
    assert "100 epochs" not in ours["temperature/table9-mobilenet-v2"]
    for number in (12, 13, 14):
        assert "all nine" in ours[f"temperature/table{number}"]
