"""OOD images adapted to a network, and their predictions."""

import numpy as np
import pytest
import torch
from PIL import Image

from marginctl.data.images.image_sets import OODDataset
from marginctl.metrics.detection import detection_metrics
from marginctl.training.ood_evaluation import (
    AdaptedLoader,
    adapt_images,
    input_format_of,
    predict_ood,
)
from tests.training.factories import images, trainer


def test_color_becomes_luminance_and_gray_is_repeated():
    x = torch.tensor([100.0, 200.0, 50.0]).view(1, 3, 1, 1).expand(2, 3, 4, 4)
    grey = adapt_images(x, 1, 4)
    assert grey.shape == (2, 1, 4, 4)
    assert grey.numpy() == pytest.approx(0.299 * 100 + 0.587 * 200 + 0.114 * 50)
    back = adapt_images(grey, 3, 4)
    assert back.shape == (2, 3, 4, 4)
    assert bool((back == grey).all())
    assert adapt_images(x, 3, 4) is x


@pytest.mark.parametrize("side", [5, 8, 29])
def test_images_are_resized_as_by_pillow(side):
    grey = np.random.default_rng(0).integers(0, 256, (13, 13)).astype(np.float32)
    by_pillow = Image.fromarray(grey).resize((side, side), Image.Resampling.BILINEAR)
    ours = adapt_images(torch.tensor(grey).view(1, 1, 13, 13), 1, side)
    assert ours[0, 0].numpy() == pytest.approx(np.asarray(by_pillow), abs=1e-3)


def test_images_of_the_same_format_equal_the_test_images():
    own = images()
    made = trainer(of=own)
    batches = AdaptedLoader(
        own.select(np.arange(0)),
        input_format_of(made, own),
        made.device_config,
        None,
    )
    assert list(batches.train_batches(0, 8)) == []
    (theirs, labels), (ours, _) = (next(b.test_batches(100)) for b in (batches, made.batches))
    assert theirs.numpy() == pytest.approx(ours.numpy(), abs=1e-6)
    assert labels.tolist() == own.test_y.tolist()


def test_larger_color_images_are_normalized_as_the_training_images():
    own, other = images(), images(pixels=16, channels=3, tests=9, seed=5)
    made = trainer(of=own)
    (one,) = predict_ood(made, [OODDataset("far", other)], own, None)
    x = adapt_images(torch.tensor(other.test.x).permute(0, 3, 1, 2).float(), 1, 8)
    made.model.eval()
    with torch.no_grad():
        features = made.features((x / 255 - own.mean[0]) / own.std[0])
    assert one.outputs.features == pytest.approx(features.numpy(), abs=1e-4)
    assert (one.name, one.group, one.digest) == ("made", "far", other.split_digests["test"])


def test_scores_that_are_not_finite_are_null_with_their_reason(monkeypatch):
    own, other = images(), images(seed=5)
    made = trainer(of=own)
    tested = made.predict()
    monkeypatch.setattr(
        made._classifier, "_forward", lambda x: torch.full((len(x), 8), float("nan"))
    )
    ood_predictions = predict_ood(made, [OODDataset(None, other)], own, None)
    found = detection_metrics(tested.outputs, tested.labels.numpy(), ood_predictions, 5)
    assert set(found["ood"][0]["scores"].values()) == {None}
    assert found["reasons"]["ood made max_similarity"] == "a score is not finite"
