"""Unit costs: programs simulated in the paper's unit, for schedule figures.

Actions cost what :mod:`bitpipe.schedule.costs` says, unless the caller has others;
transfers and all-reduces what the caller states.
"""

from __future__ import annotations

from math import inf

from bitpipe.cluster import Link, Links, RankLayout
from bitpipe.schedule.costs import UNIT as UNIT_COSTS
from bitpipe.schedule.costs import Costs
from bitpipe.schedule.program import Program
from bitpipe.schedule.timeline import Timeline
from bitpipe.simulate.engine import simulate

UNIT = "stage forward"


def simulate_units(
    program: Program,
    *,
    all_reduce: float = 0.0,
    transfer: float = 0.0,
    width: int = 1,
    costs: Costs = UNIT_COSTS,
) -> Timeline:
    """Simulate ``program`` in units of one stage forward.

    Args:
        program: what every pipeline group runs.
        all_reduce: time of one stage's gradient all-reduce (of 1/v of a device's parameters).
        transfer: time of one message to another device, on top of the compute.
        width: W, replicas of the pipeline group.
        costs: of compute actions; its ``transfer`` is not read.
    """
    schedule = program.schedule
    hop = Link(bandwidth=inf, latency=transfer)
    ring = Link(bandwidth=inf, latency=all_reduce)
    layout = RankLayout(
        name="sequential", width=width, depth=schedule.depth, devices_per_node=width * schedule.depth
    )
    links = Links(layout=layout, p2p_intra=hop, p2p_inter=hop, all_reduce_intra=ring, all_reduce_inter=ring)

    return simulate(program, costs.on(schedule.placement), links, alike=True, unit=UNIT)
