"""What a backbone accepts."""

import pytest

from marginctl.errors import RequestError
from marginctl.models.factory import check_image_shape
from marginctl.models.registry import ModelSpec


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["nope", "resnet19", "resnet", "densenet_161"])
def test_an_unknown_model_is_named_before_its_images(name, channels):
    model = ModelSpec.parse(f"torchvision/{name}")
    with pytest.raises(RequestError, match=f"^unknown model 'torchvision/{name}': torchvision"):
        check_image_shape(model, channels, 32)


def test_a_known_model_for_images_of_one_channel():
    with pytest.raises(RequestError, match="images of 1 channel: expected 3: convert them to RGB"):
        check_image_shape(ModelSpec.parse("torchvision/resnet34"), 1, 32)
