"""Searched orders by name: ``method.name=bitpipe.schedule.search.methods:bitpipe_searched``."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from bitpipe.schedule.schedule import Schedule
from bitpipe.schedule.search.searching import search
from bitpipe.schedule.spec import ScheduleSpec

_KEPT = 512
_EFFORT = 150_000


@lru_cache(maxsize=_KEPT)
def bitpipe_searched(spec: ScheduleSpec) -> Schedule:
    """BitPipe's placement within BitPipe's memory (D·Ma, or ``cap``), its order searched.

    The costs are the paper's unit, without transfers, so that one order serves every cluster; for
    costs of a run there is ``python -m bitpipe.schedule search --costs``.

    Raises:
        InputError: BitPipe has no schedule of that D, N, v or cap.
    """
    found = search(replace(spec, method="bitpipe"), effort=_EFFORT)
    return replace(found.schedule, method=spec.method)
