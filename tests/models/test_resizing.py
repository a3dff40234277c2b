"""Images are resized and cropped by the rule of the weights, to the pixel of the library's own."""

from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torchvision import models

from marginctl.data.images.resizing import Resizing
from marginctl.data.loading.transforms import ImageTransform
from marginctl.models.pretrained import pretrained_classifier


def torchvision_presets():
    """The weights of one model for each preset of torchvision's classifiers."""
    presets = {}
    for name in models.list_models(module=models):
        for weights in models.get_model_weights(name):
            preset = weights.transforms()
            key = (*preset.crop_size, *preset.resize_size, preset.interpolation)
            presets.setdefault(key, weights)
    return list(presets.values())


def timm_presets():
    """The weights of one model for each preset of timm that crops a square."""
    presets = {}
    for name in timm.list_pretrained():
        config = timm.get_pretrained_cfg(name)
        settings = timm.data.resolve_data_config({}, pretrained_cfg=config.to_dict())
        channels, height, width = settings["input_size"]
        keys = ("crop_pct", "crop_mode", "interpolation")
        square = (channels, height) == (3, width) and settings["crop_mode"] != "border"
        if square and settings["crop_pct"] <= 1 and height <= 448:
            presets.setdefault((height, *(settings[key] for key in keys)), (name, settings))
    return list(presets.values())


@pytest.fixture
def photographs(data_dir):
    folder = data_dir / "hymenoptera" / "val"
    files = [sorted((folder / kind).iterdir())[i] for kind in ("ants", "bees") for i in (0, 7)]
    return [Image.open(file).convert("RGB") for file in files]


def differences(weights, transform, photographs):
    """Return the largest difference of a channel in levels of 0 to 255."""
    ours = ImageTransform(weights.image_size, resizing=weights.resizing)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (weights.mean, weights.std))
    for image in photographs:
        theirs = (transform(image) * std + mean) * 255
        x, _ = ours(image, 0)
        assert x.shape == theirs.shape
        yield (x - theirs).abs().max().item()


def test_all_presets_of_torchvision(photographs):
    presets = torchvision_presets()
    assert len(presets) > 20
    for weights in presets:
        ours = pretrained_classifier(str(weights))
        assert ours.name == str(weights)
        assert max(differences(ours, weights.transforms(), photographs)) < 1e-3, weights


def test_all_presets_of_timm(photographs):
    presets = timm_presets()
    assert {settings["crop_mode"] for _, settings in presets} == {"center", "squash"}
    assert len(presets) > 30
    for name, settings in presets:
        ours = pretrained_classifier(f"timm/{name}")
        assert ours.name == f"timm/{name}"
        transform = timm.data.create_transform(**settings, is_training=False)
        assert max(differences(ours, transform, photographs[::2])) < 1e-3, name


@pytest.mark.parametrize("image_size", [32, 64, 96, 160, 288])
def test_other_image_sizes_crop_the_same_fraction(photographs, image_size):
    weights = models.ResNet50_Weights.IMAGENET1K_V2
    ours = pretrained_classifier(str(weights))
    short = round(image_size * 232 / 224)
    preset = weights.transforms(crop_size=image_size, resize_size=short)
    assert max(differences(replace(ours, image_size=image_size), preset, photographs)) < 1e-3


def test_squash_and_square():
    pixels = np.zeros((40, 80, 3), np.uint8)
    pixels[:, :40] = 255
    image = Image.fromarray(pixels)
    for mode, white in (("center", 8), ("squash", 8), ("square", 8)):
        x, _ = ImageTransform(16, resizing=Resizing(crop_fraction=1.0, crop_mode=mode))(image, 0)
        assert x.shape == (3, 16, 16)
        assert (x[0, 0] > 127).sum() == white
    left = np.zeros((40, 80, 3), np.uint8)
    left[:, :10] = 255  # outside of the central square
    for mode, white in (("center", 0), ("squash", 2), ("square", 0)):
        x, _ = ImageTransform(16, resizing=Resizing(crop_fraction=1.0, crop_mode=mode))(
            Image.fromarray(left), 0
        )
        assert (x[0, 0] > 127).sum() == white
    third = np.zeros((40, 80, 3), np.uint8)
    third[:, :30] = 255  # outside of half of the central square
    for mode, white in (("center", 0), ("squash", 4), ("square", 4)):
        x, _ = ImageTransform(16, resizing=Resizing(crop_fraction=0.5, crop_mode=mode))(
            Image.fromarray(third), 0
        )
        assert (x[0, 0] > 127).sum() == white


def test_the_short_side_is_the_librarys():
    for name, short in (("timm/resnet18.a1_in1k", 235), ("ResNet50_Weights.IMAGENET1K_V2", 232)):
        weights = pretrained_classifier(name)
        assert round(weights.image_size / weights.resizing.crop_fraction) == short
