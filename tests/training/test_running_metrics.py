"""Running metrics of batches, in blocks of any size."""

import pytest
import torch

from marginctl.objectives import create
from marginctl.training import running_metrics
from marginctl.utils.distributed import World


@pytest.mark.parametrize("name", ["soft", "arcface", "cosine-ls"])
def test_the_block_size_changes_nothing(name, monkeypatch):
    torch.manual_seed(0)
    objective = create(name, 12, 5)
    batches = [(torch.randn(n, 5), torch.randint(12, (n,))) for n in (17, 1)]
    records = []
    for size in (running_metrics.BLOCK_SIZE, 12 * 4, 1):
        monkeypatch.setattr(running_metrics, "BLOCK_SIZE", size)
        running = running_metrics.RunningMetrics(objective, torch.device("cpu"), World())
        for x, y in batches:
            running.update(objective(x, y).detach(), x, y)
        records.append(running.compute())
    whole, *parts = records
    assert "nll" in whole
    for record in parts:
        assert record == pytest.approx(whole, rel=1e-6)
    scores = torch.cat([objective.similarities(x) for x, _ in batches])
    labels = torch.cat([y for _, y in batches])
    right = (scores.argmax(1) == labels).double().mean().item()
    assert whole["top1"] == pytest.approx(100 * right)
