"""Features: what they are, and under which name they are kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from marginctl.experiments.source_model import SourceModel
from marginctl.models.registry import ModelSpec
from marginctl.objectives.parsing import parse
from marginctl.training.checkpoint import weights_digest
from marginctl.transfer.cached_features import extract_features, missing_batches
from marginctl.utils.precision import device_config_for
from tests.data.helpers import load_in_memory
from tests.training.factories import trainer


@pytest.fixture
def start():
    backbone = trainer("soft", model="mlp:width=4").model.state_dict()
    spec, moments = parse("soft").spec, ([0.5], [0.25])
    digest = weights_digest(backbone)
    return SourceModel(
        path="x",
        weights=digest,
        model=ModelSpec.parse("mlp:width=4"),
        spec=spec,
        backbone=backbone,
        objective={},
        moments=moments,
        classes=(),
        data=None,
        image_size=8,
        row="x",
        trained_with="soft",
        seed=0,
    )


def made(start, images, store, said=None, check=lambda: None):
    heard = [] if said is None else said
    return extract_features(
        start, images, store, device_config_for("cpu", "fp32"), heard.append, check
    )


def test_features_equal_the_networks_in_image_order(start, tmp_path):
    images = load_in_memory("digits", Path())
    found = made(start, images, tmp_path)
    model = trainer("soft", model="mlp:width=4").model.eval()
    model.load_state_dict(start.backbone)
    for x, features in ((images.train.x, found.train), (images.test.x, found.test)):
        pixels = torch.as_tensor(x[:5]).permute(0, 3, 1, 2).float() / 255
        with torch.no_grad():
            wanted = model((pixels - 0.5) / 0.25).numpy()
        assert len(features) == len(x)
        assert features[:5] == pytest.approx(wanted, abs=1e-5)


def test_the_cache_key_covers_weights_and_images(start, tmp_path):
    images = load_in_memory("digits", Path())
    config = device_config_for("cpu", "fp32")
    assert missing_batches(start, images, tmp_path, config) == 15 + 4  # of 1437 and 360 images
    made(start, images, tmp_path)
    assert not missing_batches(start, images, tmp_path, config)
    for other in (replace(start, weights="y"), replace(start, moments=([0.5], [0.5]))):
        assert missing_batches(other, images, tmp_path, config)
    assert missing_batches(start, images.select(np.arange(9)), tmp_path, config)
    for other in (
        replace(config, precision="tf32"),
        replace(config, device=torch.device("cuda:1")),
    ):
        assert missing_batches(start, images, tmp_path, other)

    def never():
        raise AssertionError("computed again")

    made(start, images, tmp_path, check=never)


def test_features_that_are_not_finite_are_refused(start, tmp_path):
    from marginctl.errors import RequestError

    backbone = {name: value * float("nan") for name, value in start.backbone.items()}
    images = load_in_memory("digits", Path())
    with pytest.raises(RequestError, match="a feature of a train image of digits is not finite"):
        made(replace(start, backbone=backbone), images, tmp_path)
    assert not (tmp_path / "features").exists()
