"""The device and the precision of a trial, with CUDA's calls replaced."""

import pytest
import torch

from marginctl.errors import RequestError
from marginctl.experiments.checks import check_device
from marginctl.utils.device import synchronize
from marginctl.utils.precision import DeviceConfig, device_config_for
from tests.training.factories import recipe


@pytest.fixture
def current(monkeypatch):
    """Return the list of the devices that became current."""
    devices = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: devices.append(str(device)))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: devices[-1] == "cuda:1")
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    yield devices
    cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before


@pytest.mark.parametrize(("precision", "tf32"), [("fp32", False), ("tf32", True), ("bf16", False)])
def test_fp32_on_a_gpu_is_fp32(current, precision, tf32):
    DeviceConfig(torch.device("cuda:1"), precision, channels_last=True).apply()
    assert current == ["cuda:1"]
    assert torch.backends.cudnn.allow_tf32 is tf32
    assert torch.backends.cuda.matmul.allow_tf32 is tf32
    assert not torch.backends.cudnn.benchmark
    DeviceConfig(torch.device("cuda:1"), precision, channels_last=True).apply(fast=True)
    assert torch.backends.cudnn.benchmark


def test_auto_asks_the_named_gpu(current):
    assert device_config_for("cuda:1", "auto").precision == "bf16"
    assert device_config_for("cuda:0", "auto").precision == "fp32"


def test_tf32_is_refused_elsewhere():
    with pytest.raises(RequestError, match=r"train\.precision = tf32 on cpu"):
        check_device(recipe(train={"precision": "tf32"}), "cpu")
    check_device(recipe(train={"precision": "tf32"}), "cuda:0")


@pytest.mark.parametrize("name", ["mps", "mps:0"])
def test_mps_is_waited_for(monkeypatch, name):
    calls = []
    monkeypatch.setattr(torch.mps, "synchronize", lambda: calls.append(1))
    synchronize(torch.device(name))
    assert calls
