"""Programs of jobs, made once: the same program serves every cluster and calibration."""

from __future__ import annotations

from functools import lru_cache

from bitpipe.job import Job
from bitpipe.schedule import generate, lower
from bitpipe.schedule.program import Program
from bitpipe.schedule.schedule import Schedule
from bitpipe.schedule.spec import ScheduleSpec


def program_of(job: Job) -> Program:
    """What every pipeline group of ``job`` does.

    Raises:
        InputError: the schedule's specification is impossible.
    """
    return _lowered(job.schedule, job.sync, job.width, job.model.tied_embeddings)


@lru_cache(maxsize=64)
def schedule_of(spec: ScheduleSpec) -> Schedule:
    """The schedule of ``spec``."""
    return generate(spec)


@lru_cache(maxsize=64)
def _lowered(spec: ScheduleSpec, sync: str, width: int, tied: bool) -> Program:
    return lower(schedule_of(spec), sync=sync, width=width, tied=tied)
