"""One pool of ranks per P, shared by all tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from bitpipe.runtime.processes.pool import Pool


@pytest.fixture(scope="session")
def pool_of() -> Iterator[Callable[[int], Pool]]:
    """Pools by number of ranks, started when first asked for."""
    torch.set_num_threads(1)  # the machine belongs to the ranks
    pools: dict[int, Pool] = {}

    def get(ranks: int) -> Pool:
        return pools.setdefault(ranks, Pool(ranks, watchdog=60.0))

    yield get
    for pool in pools.values():
        pool.close()
