"""Where a number comes from. Origins never share a column."""

from __future__ import annotations

from enum import StrEnum


class Origin(StrEnum):
    """What kind of evidence a number is, strongest first."""

    MEASURED = "measured"  # wall clock or allocator of the devices named in the record
    VIRTUAL = "virtual"  # real ranks and real compute, timed by virtual clocks
    EMULATED = "emulated"  # real ranks, nominal durations kept by sleeping
    SIMULATED = "simulated"  # the cost model of a named cluster
    PAPER = "paper"  # printed in the paper
