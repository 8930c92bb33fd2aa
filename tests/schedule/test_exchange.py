"""torch.distributed.pipelining reads our schedules, and we read its own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bitpipe.errors import InputError
from bitpipe.schedule import ScheduleSpec, check, describe, from_torch_csv, generate, lower, to_torch_csv


def stages(depth: int, per_rank: int) -> list[Any]:
    """Stand-ins for stage modules: the peer's constructors only look at where they are."""
    return [
        SimpleNamespace(
            group_size=depth,
            group_rank=0,
            num_stages=per_rank * depth,
            stage_index=index * depth,
            is_last=False,
            submod=None,
        )
        for index in range(per_rank)
    ]


@pytest.mark.parametrize(
    ("method", "per_rank"), [("gpipe", 1), ("dapple", 1), ("1f1b_int", 2), ("1f1b_int", 3)]
)
@pytest.mark.parametrize("split", [False, True])
def test_torch_accepts_what_we_write(tmp_path: Path, method: str, per_rank: int, split: bool) -> None:
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    spec = ScheduleSpec(
        method=method,
        depth=4,
        micro_batches=8,
        split_backward=split,
        chunks=per_rank if per_rank > 1 else None,
    )
    ours = generate(spec)
    path = tmp_path / "ours.csv"
    path.write_text(to_torch_csv(ours))
    runtime = _PipelineScheduleRuntime(stages(4, per_rank), 8)
    runtime._load_csv(str(path))  # its own validation and lowering
    assert [len(row) for row in runtime.pipeline_order.values()] == [len(row) for row in ours.orders]
    again = generate(ScheduleSpec(method=f"file:{path}", depth=4, micro_batches=8))
    assert again.orders == ours.orders


@pytest.mark.parametrize(
    "name", ["Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV", "LoopedBFS"]
)
def test_we_read_what_torch_writes(tmp_path: Path, name: str) -> None:
    from torch.distributed.pipelining import schedules

    theirs = getattr(schedules, f"Schedule{name}")(stages(4, 2), 8)
    path = tmp_path / "theirs.csv"
    theirs._dump_csv(str(path), format="compute_only")
    schedule = generate(ScheduleSpec(method=f"file:{path}", depth=4, micro_batches=8))
    check(lower(schedule, sync="eager", width=2))
    assert schedule.placement.name == ("v" if name in ("ZBVZeroBubble", "DualPipeV") else "cyclic")
    if name == "Interleaved1F1B":
        ours = generate(ScheduleSpec(method="1f1b_int", depth=4, micro_batches=8))
        assert describe(schedule).makespan == describe(ours).makespan == 28.5


def test_two_directions_cannot_be_written() -> None:
    with pytest.raises(InputError, match="one direction only"):
        to_torch_csv(generate(ScheduleSpec(method="bitpipe", depth=4, micro_batches=4)))


def test_a_cell_that_is_no_compute_action() -> None:
    with pytest.raises(InputError, match="csv cell=0SEND_F1"):
        from_torch_csv("0F0,0SEND_F1\n")
    assert [str(a) for a in from_torch_csv("0F1,,(1F1;0B0)OVERLAP_F_B\n\n")[0]] == ["F1@0d", "F1@1d", "B0@0d"]
