"""Creation of backbones, and the check that a backbone accepts images of a shape."""

from marginctl.errors import RequestError
from marginctl.models.backbone import Backbone, EmbeddedBackbone
from marginctl.models.registry import BACKBONES, EMBEDDING, ModelSpec
from marginctl.utils.registry import import_object
from marginctl.utils.text import count_noun


def create_backbone(model: ModelSpec, channels: int, image_size: int) -> Backbone:
    """Return a backbone with initial weights drawn from torch's global random stream."""
    check_image_shape(model, channels, image_size)
    entry, options = model.entry, dict(model.options)
    embedding_dim = options.pop(EMBEDDING)
    build = import_object(entry.path, f"model '{model.name}'", Backbone)
    backbone: Backbone = build(channels, image_size, **entry.settings, **options)
    return EmbeddedBackbone(backbone, embedding_dim) if embedding_dim else backbone


def check_image_shape(model: ModelSpec, channels: int, image_size: int) -> None:
    """Raise RequestError where a backbone does not accept images of a shape.

    A model of timm, or one of torchvision that is not in `BACKBONES`, is built on torch's meta
    device to find out: an unknown name, or that timm is not installed, is reported here.

    Args:
        image_size: image height and width in pixels, the smaller one where they differ.
    """
    name, entry = model.name, model.entry
    if name not in BACKBONES:
        from marginctl.models.backbones.external import external_feature_dim

        external_feature_dim(name, channels, image_size)
    if channels < 1 or entry.channels not in (None, channels):
        advice = ": convert them to RGB, or choose a model such as 'resnet18'"
        raise RequestError(
            f"model '{name}': images of {count_noun(channels, 'channel')}: expected "
            f"{entry.channels or 'at least 1'}{advice if channels > 0 else ''}"
        )
    if image_size < entry.min_size:
        raise RequestError(
            f"model '{name}': images of {image_size} x {image_size} pixels: expected at least "
            f"{entry.min_size} x {entry.min_size}: enlarge them, or choose a model that pools "
            "less, such as 'resnet18'"
        )
