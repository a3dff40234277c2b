"""The device and the precision that a trial computes with."""

import contextlib
from dataclasses import dataclass
from typing import Any

import torch

AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class DeviceConfig:
    """Device, precision (fp32, tf32, bf16 or fp16) and memory format of a trial."""

    device: torch.device
    precision: str
    channels_last: bool

    @property
    def memory_format(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def apply(self, *, fast: bool = False) -> None:
        """Make the device the current one, and fp32 what it says; torch's settings are global.

        Args:
            fast: whether cuDNN times its algorithms and takes the fastest.
        """
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.backends.cuda.matmul.allow_tf32 = self.precision == "tf32"
            torch.backends.cudnn.allow_tf32 = self.precision == "tf32"
            torch.backends.cudnn.benchmark = fast

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which the backbone computes."""
        dtype = AUTOCAST_DTYPES.get(self.precision)
        if dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype)


def device_config_for(device: str, precision: str) -> DeviceConfig:
    """Return the configuration of a device; `auto` is bf16 where the hardware supports it."""
    torch_device = torch.device(device)
    if precision == "auto":
        if torch_device.type == "cuda":
            torch.cuda.set_device(torch_device)  # the device that torch tells about
            has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        else:
            has_bf16 = torch_device.type == "cpu" and _cpu_has_bf16()
        precision = "bf16" if has_bf16 else "fp32"
    return DeviceConfig(torch_device, precision, channels_last=torch_device.type in ("cuda", "cpu"))


def _cpu_has_bf16() -> bool:
    """Return whether this CPU has bf16 instructions; without them bf16 is slower than fp32."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in checks)
