"""torch.distributed.pipelining's own runtime on a schedule that we export, beside ours."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from bitpipe.runtime.processes.world import World
from bitpipe.schedule import ScheduleSpec, generate, to_torch_csv

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import peer  # our chunks and micro-batches on both sides


def gradient_difference(world: World, method: str, per_rank: int, split: bool, micro_batches: int) -> Any:
    """Largest relative difference of any gradient of any rank; None but on rank 0."""
    spec = ScheduleSpec(method=method, depth=world.size, micro_batches=micro_batches, split_backward=split)
    text = to_torch_csv(generate(spec))

    def runtime(stages: Any, count: int, **options: Any) -> _PipelineScheduleRuntime:
        made = _PipelineScheduleRuntime(stages if isinstance(stages, list) else [stages], count, **options)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "schedule.csv"
            path.write_text(text)
            made._load_csv(str(path))
        return made

    name = "interleaved_csv" if per_rank == 2 else "csv"
    peer.SCHEDULES[name] = (runtime, method, split)
    case = peer.Case(
        schedule=name,
        micro_batches=micro_batches,
        layers=4,
        hidden=16,
        sequence=8,
        micro_batch_size=2,
        depth=world.size,
        vocabulary=40,
    )
    found = peer.compare(world, case, pairs=0)
    return None if found is None else found.worst_gradient_difference
