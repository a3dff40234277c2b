"""Loading of source models from runs and published weights, and checks that they fit."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from marginctl.data.images.image_sets import ImageDataset
from marginctl.errors import RequestError
from marginctl.experiments import find_run
from marginctl.experiments.records import PROBE_OBJECTIVE
from marginctl.experiments.source_scale import resolved_spec
from marginctl.models import pretrained
from marginctl.models.factory import create_backbone
from marginctl.models.registry import ModelSpec
from marginctl.models.stages import frozen_modules
from marginctl.models.state_dicts import check_shapes, read_backbone
from marginctl.recipe.image_recipe import ImageRecipe
from marginctl.runs.base_record import parse_objective
from marginctl.training.checkpoint import weights_digest
from marginctl.transfer.source import SourceModel


def load_source_model(name: str, key: str = "source_model") -> SourceModel:
    """Return the network of a finished run's folder, a checkpoint, or published weights."""
    return _from_weights(name) if pretrained.is_weights_name(name) else _from_run(name, key)


def load_source_models(names: Iterable[str]) -> tuple[list[SourceModel], list[str]]:
    """Return the distinct networks of runs, folders of runs, checkpoints or weights.

    The second result has a line for each run that is skipped.
    """
    models: dict[tuple[str, str, str], SourceModel] = {}
    skipped: list[str] = []
    for name in names:
        for path in _paths(name, skipped):
            model = load_source_model(path, "source_models")
            models.setdefault((model.weights, model.row, model.trained_with), model)
    return list(models.values()), skipped


def check_source_model(
    source: SourceModel, recipe: ImageRecipe, images: ImageDataset, key: str = "source_model"
) -> None:
    """Check that a network fits the images, and has the blocks that the recipe trains."""
    if source.model != recipe.model:
        raise RequestError(
            f"{key} = {source.path}: is of model = {source.model}, not of {recipe.model}"
        )
    with torch.device("meta"):
        backbone = create_backbone(source.model, images.channels, images.image_size)
    try:
        check_shapes(backbone, source.backbone)
    except ValueError as error:
        shape = f"{images.channels} x {images.image_size} x {images.image_size}"
        raise RequestError(
            f"{key} = {source.path}: is no {source.model} for images of {shape} ({error}): name "
            "another network, or images like those that it was trained on"
        ) from None
    frozen_modules(source.model, backbone, recipe.trainable_blocks)


def load_initial_weights(model: ModelSpec, text: str) -> SourceModel:
    """Return the network that a training begins with, by the key `weights` of its recipe.

    Images of weights in a file are prepared as for the published ones of the model, if it has some.
    """
    if text == "pretrained" or pretrained.is_weights_name(text):
        return replace(_from_weights(model.name if text == "pretrained" else text), path=text)
    backbone, classifier = read_backbone(model.name, Path(text))
    source = _weights_source(text, model, pretrained.find_published(model.name), backbone, {})
    if not classifier:
        return source
    classes = len(next(iter(classifier.values())))
    return replace(source, remark=f"{text}: its classifier of {classes} classes is left out")


def _from_weights(name: str) -> SourceModel:
    published = pretrained.pretrained_classifier(name)
    backbone, weight, bias = published.weights()
    model, classifier = ModelSpec.parse(published.model), {"weight": weight, "bias": bias}
    return _weights_source(name, model, published, backbone, classifier)


def _weights_source(
    path: str,
    model: ModelSpec,
    weights: pretrained.PretrainedClassifier | None,
    backbone: Mapping[str, Tensor],
    objective: Mapping[str, Tensor],
) -> SourceModel:
    """Return a source model; without published `weights` of its model, its images are unknown."""
    source = SourceModel(
        path=path,
        weights=weights_digest(backbone),
        model=model,
        spec=parse_objective(PROBE_OBJECTIVE).spec,
        backbone=backbone,
        objective=objective,
        row=path,
        trained_with=PROBE_OBJECTIVE,
    )
    if weights is None:
        return source
    return replace(
        source,
        moments=(weights.mean, weights.std),
        classes=weights.categories,
        image_size=weights.image_size,
        resizing=weights.resizing,
    )


def _from_run(name: str, key: str) -> SourceModel:
    path = Path(name)
    if path.is_dir():
        path, _, _ = find_run.find_trained_run(path, f"{key} = {name}")
    elif not path.exists():
        raise RequestError(
            f"{key} = {name}: does not exist: expected the folder of a finished trial of marginctl "
            "train, a checkpoint in it, or published weights such as efficientnet-lite0"
        )
    loaded = find_run.load_checkpoint(path, "last")
    state, info, recipe = loaded.state, loaded.info, loaded.recipe
    mean, std = state["normalization"]
    return SourceModel(
        path=name,
        weights=weights_digest(state["model"]),
        model=recipe.model,
        spec=resolved_spec(info),
        backbone=state["model"],
        objective=state["objective"],
        moments=(mean, std),
        classes=state["classes"],
        data=recipe.data,
        image_size=state["image_size"],
        resizing=recipe.data.test_resizing,
        row=recipe.row_name(info.setting),
        trained_with=info.objective,
        seed=info.seed,
    )


def _paths(name: str, skipped: list[str]) -> list[str]:
    path = Path(name)
    if pretrained.is_weights_name(name) or not path.is_dir() or find_run.is_run_dir(path):
        return [name]
    paths, problems = [], []
    for folder in sorted(run.parent for run in path.rglob("run.json")):
        try:
            find_run.load_trained_run(folder, exclude=("transfer",))
            paths.append(str(folder))
        except find_run.OtherTaskError:  # a runs folder holds runs of all tasks
            continue
        except find_run.UnusableRunError as error:
            problems.append(f"source_models = {folder}: {error}: skipped")
    if not paths:
        raise RequestError(
            *problems,
            f"source_models = {name}: no finished trial is there: expected folders of trials that "
            "train a network: train one first",
        )
    skipped += problems
    return paths
