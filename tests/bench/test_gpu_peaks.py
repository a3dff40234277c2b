"""Peaks are of exactly the cards that are held."""

import pytest

from marginctl.bench.gpu_peaks import peak_of


@pytest.mark.parametrize(
    ("card", "peak"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 SXM5 80GB", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA A100-PCIE-40GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA L40S", 362),
        ("NVIDIA L4", 121),
        ("NVIDIA A10", 125),
        ("NVIDIA GeForce RTX 4090", 165),
        ("NVIDIA GeForce RTX 3090", 71),
    ],
)
def test_cards_that_are_held(card, peak):
    assert peak_of(card) == (peak, None)


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        ("NVIDIA RTX A1000", "no published peak"),
        ("NVIDIA A100X", "no published peak"),
        ("GRID A100-10C", "no published peak"),
        ("NVIDIA L40", "no published peak"),
        ("NVIDIA A10G", "no published peak"),
        ("NVIDIA GH200 480GB", "no published peak"),
        ("NVIDIA GeForce RTX 3090 Ti", "no published peak"),
        ("NVIDIA GeForce RTX 4090 D", "no published peak"),
        ("NVIDIA GeForce RTX 4080 SUPER", "no published peak"),
        ("Tesla V100-SXM2-16GB", "no published peak"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "in a laptop the peak depends on the power"),
        ("NVIDIA GeForce RTX 2080 with Max-Q Design", "in a laptop"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "is a slice of a card"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "is a slice of a card"),
    ],
)
def test_every_other_name_has_a_reason(card, reason):
    peak, said = peak_of(card)
    assert peak is None
    assert said.startswith(f"{card}: ")
    assert reason in said
