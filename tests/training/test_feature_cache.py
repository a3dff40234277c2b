"""Blocks that stand still do so to the bit, and what they give is computed once."""

import pytest
import torch

from marginctl.objectives.parsing import parse
from marginctl.recipe.cosify import CosifyRecipe
from marginctl.training import feature_cache
from marginctl.training.feature_cache import FrozenModules, SplitBackbone
from marginctl.training.trainer import Trainer
from tests.training.factories import CPU, images, recipe, run


def trainer(model, blocks, pixels=8, channels=1, n=16, size=8, augment="none", epochs=1):
    made = CosifyRecipe.model_validate(
        {
            "task": "cosify",
            "source_model": "source",
            "blocks": blocks,
            "model": model,
            "data": {"name": "digits", "augment": augment},
            "train": {"epochs": epochs, "batch_size": size, "precision": "fp32"},
        }
    )
    of = images(n=n, tests=6, pixels=pixels, channels=channels)
    return Trainer(made, parse("cosine-ls").spec, of, 0, CPU)


def tensors(trained):
    return {k: v.clone() for k, v in trained.model.state_dict().items()}


def changed(before, after):
    return {name for name in after if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize("augment", ["none", "random-crop"])
@pytest.mark.parametrize("blocks", ["1-4", "2-4", "3-4", "4"])
def test_only_the_named_blocks_and_the_classifier_change(blocks, augment):
    trained = trainer("mnist-cnn:feature_dim=8", blocks, augment=augment)
    assert trained.cache_frozen_features() == (augment == "none" and blocks != "1-4")
    before, classifier = tensors(trained), trained.objective.weight.detach().clone()
    run(trained)
    place = ("layers.0", "layers.2", "layers.4", "feature")
    moving = place[int(blocks[0]) - 1 :]
    # all of them, statistics of batch normalisation too
    assert changed(before, tensors(trained)) == {n for n in before if n.startswith(moving)}
    assert not torch.equal(classifier, trained.objective.weight)
    held = {p for group in trained.optimizer.param_groups for p in group["params"]}
    named = dict(trained.model.named_parameters())
    assert {n for n, p in named.items() if p in held} == {n for n in named if n.startswith(moving)}


@pytest.mark.parametrize("augment", ["none", "random-crop"])
def test_a_second_stage_trains_a_new_classifier_alone(augment):
    """Also of a network that has no blocks; the classifier is another one than the first's."""
    changes = {"second_stage": {"epochs": 2}, "data": {"augment": augment}}
    for model in ("mnist-cnn:feature_dim=8", "torchvision/shufflenet_v2_x0_5"):
        own = recipe(model=model, train={"batch_size": 25}, **changes)
        of = images(n=60, tests=6, pixels=32, channels=3)
        first, trained = (
            Trainer(r.in_stage(), parse("cosine").spec, of, 0, CPU)
            for r in (own.model_copy(update={"second_stage": None}), own)
        )
        assert not torch.equal(first.objective.weight, trained.objective.weight)
        assert (first.total_steps, trained.total_steps) == (3 * 3, 2 * 3)
        assert trained.cache_frozen_features() == (augment == "none")
        before, classifier = tensors(trained), trained.objective.weight.detach().clone()
        run(trained)
        assert changed(before, tensors(trained)) == set()  # to the bit, statistics too
        assert not torch.equal(classifier, trained.objective.weight)


def test_cached_features_are_sampled_by_class_like_images():
    own = recipe(second_stage={"epochs": 1}, train={"batch_size": 10})
    kept, whole = (
        Trainer(own.in_stage(), parse("cosine").spec, images(n=60), 0, CPU) for _ in range(2)
    )
    assert kept.cache_frozen_features()
    pairs = zip(kept.batches.train_batches(0, 10), whole.batches.train_batches(0, 10), strict=True)
    for (features, labels), (x, expected) in pairs:
        whole.model.eval()
        assert torch.equal(labels, expected)
        assert features.allclose(whole.features(x), rtol=1e-3, atol=1e-4)


def test_only_block_4_of_efficientnet_changes():
    pytest.importorskip("efficientnet_lite_pytorch")
    trained = trainer("efficientnet-lite0", "4", pixels=32, channels=3, n=4, size=4)
    assert trained.cache_frozen_features()
    before = tensors(trained)
    run(trained)
    found = {int(name.split(".")[1]) for name in changed(before, tensors(trained))}
    assert found == set(range(12, 18))


@pytest.mark.parametrize("model", ["mlp:depth=4", "mobilenet:width=0.1", "mnist-cnn:feature_dim=8"])
def test_cached_features_give_the_same_results(model):
    # larger images: batch statistics of a few numbers enlarge the last bits of a sum
    kept, whole = (trainer(model, "3-4", n=24, pixels=32) for _ in range(2))
    assert kept.cache_frozen_features()
    records = run(kept)
    for trained, wanted in zip(records, run(whole), strict=True):
        assert trained["loss"] == pytest.approx(wanted["loss"], rel=1e-4)
    there, here = kept.predict(), whole.predict()
    assert torch.equal(there.labels, here.labels)
    assert there.features.allclose(here.features, rtol=1e-3, atol=1e-4)


def test_features_beyond_the_limit_are_not_cached(monkeypatch):
    monkeypatch.setattr(feature_cache, "MAX_CACHE_BYTES", 4 * (16 + 6) * 64 * 2 * 2 - 1)
    assert not trainer("mnist-cnn", "3-4").cache_frozen_features()
    monkeypatch.setattr(feature_cache, "MAX_CACHE_BYTES", 4 * (16 + 6) * 64 * 4 * 4)
    assert trainer("mnist-cnn", "3-4").cache_frozen_features()


def test_a_split_that_changes_the_features_is_detected():
    trained = trainer("mnist-cnn:feature_dim=8", "3-4")
    trained.model.eval()
    split = SplitBackbone(trained.model, FrozenModules(trained.recipe, trained.model))
    x, _ = next(iter(trained.batches.test_batches(4)))
    assert split.reproduces(x)
    split.head.layers[4] = torch.nn.Identity()
    assert not split.reproduces(x)
