"""The backbones: published sizes, shapes, initial weights, dropout, gradients.

Shapes are tested on torch's meta device, which computes nothing else.
"""

import math

import numpy as np
import pytest
import torch
from torch import nn

from marginctl.errors import RequestError
from marginctl.models.factory import create_backbone
from marginctl.models.registry import BACKBONES, TORCHVISION, ModelSpec

OWN = [name for name in BACKBONES if not name.startswith(TORCHVISION)]


def create(model, channels=3, size=32):
    return create_backbone(ModelSpec.parse(model), channels, size)


def seeded(model, channels=3, size=32):
    torch.manual_seed(0)
    return create(model, channels, size)


def on_meta(model, channels=3, size=32):
    """A backbone with shapes only."""
    with torch.device("meta"):
        return create(model, channels, size)


def parameters(network, classes):
    """With a linear classifier on the features."""
    return sum(p.numel() for p in network.parameters()) + (network.feature_dim + 1) * classes


@pytest.mark.parametrize(
    ("model", "classes", "count"),
    [
        # the author's port of Large Margin in Softmax
        ("layer13", 100, 4_444_132),
        ("vgg16-mod", 1000, 37_719_080),
        # the usual ports for CIFAR-10
        ("resnet18", 10, 11_173_962),
        ("resnet34", 10, 21_282_122),
        ("resnet50", 10, 23_520_842),
        ("vgg16-bn", 10, 14_728_266),
        ("wrn-28-10", 10, 36_479_194),
        ("wrn-16-8", 10, 10_961_370),
        # Keras's MobileNet, trainable
        ("mobilenet", 1000, 4_231_976),
        ("mobilenet:width=0.5", 1000, 1_331_592),
        ("mobilenet:width=0.25", 1000, 470_072),
        # torchvision's documentation
        ("torchvision/mobilenet_v2", 1000, 3_504_872),
        ("torchvision/resnet18", 1000, 11_689_512),
        ("torchvision/resnet50", 1000, 25_557_032),
        ("torchvision/resnext50_32x4d", 1000, 25_028_904),
        ("torchvision/densenet161", 1000, 28_681_000),
        ("torchvision/densenet169", 1000, 14_149_480),
        ("torchvision/vgg16", 1000, 138_357_544),
        ("torchvision/vgg16_bn", 1000, 138_365_992),
    ],
)
def test_published_numbers_of_parameters(model, classes, count):
    assert parameters(on_meta(model, size=224), classes) == count


def test_vgg16_has_the_convolutions_of_torchvisions():
    from torchvision.models import vgg16

    with torch.device("meta"):
        theirs = [p.shape for p in vgg16().features.parameters()]
    assert [p.shape for p in on_meta("vgg16").parameters()] == theirs


@pytest.mark.parametrize("name", BACKBONES)
def test_feature_dim_at_all_image_sizes(name):
    """Of one network: the smallest images, and rectangles where it averages over all pixels."""
    smallest = BACKBONES[name].min_size
    for channels in (3,) if name.startswith(TORCHVISION) else (1, 4):
        network = on_meta(name, channels=channels, size=smallest).eval()
        for height, width in [(smallest, smallest)] + [(37, 70)] * (name != "mlp"):
            images = torch.empty(2, channels, height, width, device="meta")
            assert network(images).shape == (2, network.feature_dim)


@pytest.mark.parametrize("name", [n for n in BACKBONES if BACKBONES[n].min_size > 1])
def test_the_smallest_side_is_the_smallest(name):
    smallest = BACKBONES[name].min_size
    network = create(name, 3, smallest)  # torch 2.4 checks no sizes on the meta device
    with pytest.raises(RuntimeError, match="size"):
        network(torch.zeros(2, 3, smallest - 1, smallest - 1))
    with pytest.raises(RequestError, match=f"model '{name}'.*at least {smallest} x {smallest}"):
        create(name, 3, smallest - 1)


def test_torchvision_takes_three_channels():
    with pytest.raises(RequestError, match="images of 1 channel: expected 3"):
        create("torchvision/resnet18", 1, 64)


@pytest.mark.parametrize(
    ("model", "length"),
    [
        ("layer13", 128),
        ("layer13:width=0.25", 32),
        ("layer13:width=0.001", 1),
        ("resnet18", 512),
        ("cifar-cnn", 128),
        ("cifar-cnn:width=0.5", 64),
        ("resnet50", 2048),
        ("wrn-28-10", 640),
        ("wrn-16-8", 512),
        ("mnist-cnn", 2),
        ("mnist-cnn:feature_dim=3", 3),
        ("vgg16", 512),
        ("vgg16-mod", 4096),
        ("mobilenet:width=0.5", 512),
        ("mlp:width=10,depth=5", 10),
        ("torchvision/mobilenet_v2", 1280),
        ("torchvision/densenet161", 2208),
        ("torchvision/vgg16_bn", 4096),
    ],
)
def test_feature_dims(model, length):
    assert on_meta(model).feature_dim == length


@pytest.mark.parametrize("name", ["resnet18", "torchvision/mobilenet_v2", "mnist-cnn", "mlp"])
def test_an_embedding_layer_after_any_network(name):
    """Linear, then normalised over the batch; the backbone before it is unchanged."""
    torch.manual_seed(0)
    plain = create(name)
    torch.manual_seed(0)
    embedded = create(f"{name}:embedding=24")
    assert embedded.feature_dim == 24
    images = torch.randn(6, 3, 32, 32)
    with torch.no_grad():
        before = plain.eval()(images)
        linear, norm = embedded.eval().embedding
        assert torch.equal(embedded.backbone(images), before)
        assert embedded(images) == pytest.approx(before @ linear.weight.T, rel=1e-3, abs=1e-4)
        features = embedded.embedding.train()(before)
    assert features.mean(0).numpy() == pytest.approx(np.zeros(24), abs=1e-4)
    assert linear.bias is None
    assert norm.num_features == 24


@pytest.mark.parametrize("name", OWN)
def test_every_parameter_is_trained(name):
    size = max(8, BACKBONES[name].min_size)
    network = seeded(name, channels=1, size=size)
    features = network(torch.randn(4, 1, size, size))
    assert features.isfinite().all()
    features.square().sum().backward()
    for which, parameter in network.named_parameters():
        assert parameter.grad is not None, which
        assert parameter.grad.isfinite().all(), which
        # a bias under batch normalisation has none but rounding errors
        assert parameter.dim() == 1 or parameter.grad.any(), which


@pytest.mark.parametrize(
    "model",
    [
        "layer13:width=0.25",
        "wrn-16-8:dropout=0.3",
        "mnist-cnn",
        "mlp",
        "torchvision/mobilenet_v2",
    ],
)
def test_the_seed_alone_decides_the_weights(model):
    first, second = seeded(model).state_dict(), seeded(model).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    other = create(model).state_dict()
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", ["layer13", "cifar-cnn", "resnet18", "vgg16", "mobilenet"])
def test_convolutions_start_as_kaimings_by_fan_out(name):
    for layer in seeded(name).modules():
        if isinstance(layer, nn.Conv2d):
            outputs = layer.out_channels // layer.groups
            expected = math.sqrt(2 / (outputs * math.prod(layer.kernel_size)))
            # five standard errors of a standard deviation
            close = 5 / math.sqrt(2 * layer.weight.numel())
            assert layer.weight.std().item() == pytest.approx(expected, rel=close)
            assert layer.bias is None or not layer.bias.any()


def test_dropout_acts_in_training_alone():
    torch.manual_seed(0)
    images = torch.randn(2, 3, 8, 8)
    plain, dropped = seeded("wrn-16-8"), seeded("wrn-16-8:dropout=0.5")
    assert torch.equal(plain(images), plain(images))
    assert not torch.equal(dropped(images), dropped(images))
    plain, dropped = seeded("wrn-16-8").eval(), seeded("wrn-16-8:dropout=0.5").eval()
    assert torch.equal(dropped(images), dropped(images))
    assert torch.equal(dropped(images), plain(images))


def test_the_last_two_convolutions_of_layer13():
    def kernels(last):
        layers = on_meta(f"layer13:last={last}").modules()
        return [c.kernel_size[0] for c in layers if isinstance(c, nn.Conv2d)]

    assert kernels("3x3") == [3] * 9
    assert kernels("1x1") == [3] * 7 + [1] * 2


def test_layer13_is_not_padded_before_its_512_channels():
    """32 x 32 leaves 6 x 6 maps: 32, 16, 8, then 6."""
    network = on_meta("layer13")
    assert network.layers(torch.empty(1, 3, 32, 32, device="meta")).shape == (1, 128, 6, 6)


@pytest.mark.parametrize(("size", "left"), [(32, 2), (64, 4), (65, 3), (224, 7)])
def test_mobilenet_halves_large_images_once_more(size, left):
    maps = on_meta("mobilenet", size=size).layers(torch.empty(1, 3, size, size, device="meta"))
    assert maps.shape == (1, 1024, left, left)


@pytest.mark.parametrize(("name", "left"), [("cifar-cnn", 4), ("resnet50", 4), ("wrn-28-10", 8)])
def test_residual_networks_halve_between_stages(name, left):
    maps = on_meta(name).layers(torch.empty(1, 3, 32, 32, device="meta"))
    assert maps.shape[2:] == (left, left)


def test_plotted_features_have_both_signs():
    features = seeded("mnist-cnn", channels=1, size=8)(torch.randn(64, 1, 8, 8))
    assert (features > 0).any()
    assert (features < 0).any()


def vgg16_mod_of_the_port() -> nn.Sequential:
    """The layers of vgg16bow_bn in the author's port (tk1980/LargeMarginInSoftmax, models/vgg.py).

    Written anew from their list: 3x3 convolutions by stage, pooling between stages, a 1x1
    convolution to 4096, an average over all pixels, a hidden layer; eps is 1e-4 throughout.
    """
    layers: list[nn.Module] = []
    inputs = 3
    for number in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 4096):
        if not number:
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
            continue
        size = 1 if number == 4096 else 3
        layers.append(nn.Conv2d(inputs, number, size, padding=(size - 1) // 2))
        layers += [nn.BatchNorm2d(number, eps=1e-4), nn.ReLU()]
        inputs = number
    layers += [nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten()]
    layers += [nn.Linear(4096, 4096), nn.BatchNorm1d(4096, eps=1e-4), nn.ReLU()]
    return nn.Sequential(*layers)


def test_the_features_of_vgg16_mod_are_those_of_the_port():
    """The same weights in the same order, in training and in evaluation, in float64."""
    torch.manual_seed(0)
    network = create_backbone(ModelSpec.parse("vgg16-mod"), 3, 32).double()
    port = vgg16_mod_of_the_port().double()
    for (name, mine), theirs in zip(
        network.state_dict().items(), port.state_dict().values(), strict=True
    ):
        if "running" not in name and mine.dim() == 1:
            mine.add_(0.2 * torch.rand_like(mine))
        theirs.copy_(mine)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(network(images), port(images), rtol=0, atol=1e-10)
        found, expected = network.eval()(images), port.eval()(images)
    assert expected.std() > 0.01
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
