"""What a batch's statistics need where several processes train one network."""

import torch
from torch import Tensor
from torch import distributed as dist


def _ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def several_ranks() -> bool:
    """Whether this is one of several processes that train together."""
    return _ranks() > 1


def rows_of_all_ranks(rows: Tensor) -> Tensor:
    """(N,) of every process, one after the other; their numbers of rows may differ.

    Statistics of these are the same on every process, and those of one process with all the rows.
    """
    if _ranks() == 1:
        return rows
    counts = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(_ranks())]
    dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
    longest = max(int(count) for count in counts)
    padded = torch.cat([rows, rows.new_zeros(longest - len(rows))])
    gathered = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(gathered, padded)
    return torch.cat([g[: int(count)] for g, count in zip(gathered, counts, strict=True)])


def sum_over_ranks(total: Tensor) -> Tensor:
    """The sum of a tensor over all processes, in place."""
    if _ranks() > 1:
        dist.all_reduce(total)
    return total
