"""The 1F1B-Int order is Megatron's: by its own table and its own number of warm-up forwards."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bitpipe.schedule import Kind, ScheduleSpec, generate


@pytest.mark.slow  # importing megatron-core takes many seconds
@pytest.mark.parametrize(
    ("depth", "count", "chunks"), [(2, 4, 2), (4, 4, 2), (4, 8, 2), (4, 12, 3), (8, 16, 2)]
)
def test_orders_equal_megatron_cores(depth: int, count: int, chunks: int) -> None:
    from megatron.core.pipeline_parallel.schedules import get_pp_rank_microbatches, get_schedule_table

    table = get_schedule_table(count, chunks, depth)
    ours = generate(ScheduleSpec(method="1f1b_int", depth=depth, micro_batches=count, chunks=chunks))
    for device, row in enumerate(ours.orders):
        group = SimpleNamespace(size=lambda: depth, rank=lambda device=device: device)
        where = SimpleNamespace(pp_group=group, virtual_pipeline_model_parallel_size=chunks)
        total, _, warm_up, _ = get_pp_rank_microbatches(count, chunks, depth, p2p_communicator=where)
        if count == depth:
            warm_up = total  # all forwards first: Megatron-LM's rule of the paper's time, since dropped
        forwards = [(Kind.F, m, chunk * depth + device) for m, chunk in table]
        backwards = [(Kind.B, m, (chunks - 1 - chunk) * depth + device) for m, chunk in table]
        expected = forwards[:warm_up]
        for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
            expected += [forward, backward]
        expected += backwards[total - warm_up :]
        assert [(a.kind, a.micro_batch, a.stage) for a in row] == expected
