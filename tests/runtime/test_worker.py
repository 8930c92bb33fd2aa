"""Process groups of a rank's world."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.processes.world import World
from bitpipe.schedule import Kind


def sums(world: World) -> list[float]:
    """Rank 1 is in more groups than its neighbours when the last one is made."""
    groups = world.groups({(Kind.SYNC, 0): (0, 1), (Kind.SYNC, 1): (1, 2), (Kind.SYNC, 2): (0, 1, 2, 3)})
    found = []
    for group in sorted(groups):
        tensor = torch.tensor([float(world.rank)])
        dist.all_reduce(tensor, group=groups[group])
        found.append(tensor.item())
    everyone: list[list[float]] = [[] for _ in range(world.size)]
    dist.all_gather_object(everyone, found)
    return [value for row in everyone for value in row]


def test_ranks_may_be_in_unequally_many_groups(pool_of: Callable[[int], Pool]) -> None:
    # Ranks 0 and 1 hold 0+1 = 1, ranks 1 and 2 hold 1+2 = 3, all hold 6.
    assert pool_of(4).call(sums) == [1, 6, 1, 3, 6, 3, 6, 6]
