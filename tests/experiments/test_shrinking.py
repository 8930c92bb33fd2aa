"""``scale=fit`` on whole sweeps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bitpipe.errors import InputError
from experiments.composing.sweep import Sweep

SMALL = "scale=fit cluster.device.memory_bytes=25769803776"


def test_all_cells_of_a_comparison_get_one_smaller_model_and_keep_their_schedules(
    planned: Callable[..., Sweep],
) -> None:
    jobs = [f"method={m} depth=8 micro_batches=8 micro_batch_size=4" for m in ("dapple", "bitpipe")]
    before = planned(*jobs)
    after = planned(*(f"{job} {SMALL}" for job in jobs))
    models = {point.cell.job.model for point in after.points}
    assert len(models) == 1
    assert models.pop().layers < 64
    for old, new in zip(before.points, after.points, strict=True):
        assert old.cell.job.schedule == new.cell.job.schedule
        assert old.cell.id != new.cell.id


def test_another_scale_is_refused(planned: Callable[..., Sweep]) -> None:
    with pytest.raises(InputError, match="scale=fti: allowed are fit"):
        planned("method=dapple scale=fti")
