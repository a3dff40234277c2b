"""The published peaks of GPUs, by the names that they give themselves."""

import re

# Dense bf16 products with float32 sums, in TFLOP/s, from the makers' data sheets; the V100 and the
# T4 have fp16 alone, so that their bf16 share says nothing: they are left out.
PEAK = {
    "H200": 989.0,
    "H100": 989.0,
    "H100 PCIE": 756.0,
    "H100 NVL": 835.0,
    "A100": 312.0,
    "A100 PCIE": 312.0,
    "L40S": 362.0,
    "L4": 121.0,
    "A10": 125.0,
    "RTX 4090": 165.0,
    "RTX 3090": 71.0,
}
# words of a name that change no peak: the maker, the memory, the socket that is the usual one
_NO_MATTER = re.compile(r"NVIDIA|GEFORCE|SXM\d?|HBM\d\w?|\d+GB")


def peak_of(card: str) -> tuple[float | None, str | None]:
    """The dense bf16 peak of a card in TFLOP/s, or None with the reason.

    Args:
        card: as the driver names it, such as `NVIDIA A100-SXM4-80GB`. Another word in it makes it
            another card: `RTX 3090 Ti` is none of those that are held.
    """
    words = [w for w in re.split(r"[\s-]+", card.upper()) if not _NO_MATTER.fullmatch(w)]
    if "MIG" in words:
        return None, f"{card}: is a slice of a card, and the published peak is of a whole one"
    if "LAPTOP" in words or "MAX" in words:
        return None, f"{card}: in a laptop the peak depends on the power that it is given"
    peak = PEAK.get(" ".join(words))
    return peak, None if peak else f"{card}: no published peak is held"
