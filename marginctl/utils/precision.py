"""Where a trial is computed, and in what arithmetic."""

import contextlib
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class DeviceConfig:
    """Where and how a trial is computed; nothing of it changes what it means."""

    device: torch.device
    precision: str  # fp32, bf16 or fp16
    channels_last: bool

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """What the backbone computes in."""
        kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        if kind is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, kind)


def device_config_for(device: str, precision: str) -> DeviceConfig:
    """The device and what suits it: `auto` is bf16 where the hardware multiplies it, else fp32."""
    place = torch.device(device)
    if precision == "auto":
        if place.type == "cuda":
            fast = torch.cuda.is_bf16_supported(including_emulation=False)
        else:
            fast = place.type == "cpu" and _multiplies_bf16()
        precision = "bf16" if fast else "fp32"
    return DeviceConfig(place, precision, channels_last=place.type in ("cuda", "cpu"))


def _multiplies_bf16() -> bool:
    """Whether this CPU has instructions for it; without them bf16 is slower than float32."""
    asked = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in asked)
