"""Chimera with doubled forwards: two micro-batches go forward as one, backwards one by one.

A doubled forward takes as long as a backward, so all slots are equal and the concatenated units
leave no bubbles between them: 3N + 2(D−2) at N a multiple of 2D, :func:`lattice`. It costs memory,
2D Ma at N = 2D (section 1.5). The schedule names both forwards of a pair, one after the other; a
runtime that sends the first on before the second is done gains a little at N = 2D (27 instead of
28 at D=4 N=8), so evaluate() is never above the lattice and at N ≥ 4D equal to it.
"""

from dataclasses import dataclass

from bitpipe.schedule.action import Kind
from bitpipe.schedule.codes import Codes, Rows
from bitpipe.schedule.costs import WORTH
from bitpipe.schedule.list_scheduling import Graph, Placed, list_pass
from bitpipe.schedule.methods.base import NEVER, TWO_DIRECTIONS, Method, Plan
from bitpipe.schedule.placement import Placement


@dataclass(frozen=True)
class _Pair:
    """One or two micro-batches of a pipe that go forward together."""

    number: int  # within its pipe
    pipe: int
    members: tuple[int, ...]


def order(plan: Plan) -> Rows:
    """Schedule pairs (F of 2 ticks, then two chains of B) and write the members out."""
    codes, depth = plan.codes, plan.placement.depth
    pairs = _pairs(codes)
    length = 3 * depth
    _, start = lattice(codes, plan.cap)
    rows: Rows = [[] for _ in range(depth)]
    for node in sorted(range(len(start)), key=start.__getitem__):
        pair, (chain, step) = pairs[node // length], divmod(node % length, depth)
        devices = codes.step_devices[pair.pipe]
        if chain == 0:
            rows[devices[step]] += [codes.forward(member, step) for member in pair.members]
        elif chain <= len(pair.members):
            member = pair.members[chain - 1]
            rows[devices[depth + step]].append(codes.backward(member, depth - 1 - step))
    return rows


def lattice(codes: Codes, cap: int | None) -> Placed:
    """Makespan and starts of the pairs' nodes (pair·3D + chain·D + step) with a pair's F as one."""
    depth = codes.placement.depth
    half = max(1, depth // 2)
    pairs = _pairs(codes)
    # Slots of two ticks; doubled, so that on a tie a backward (even) goes first.
    priority: list[int] = []
    for pair in pairs:
        unit, i = divmod(pair.number, half)
        first = 6 * half * unit
        priority += [2 * (first + 2 * i + step) + 1 for step in range(depth)]
        for second in (0, 1):
            priority += [2 * (first + depth + 4 * i + 2 * second + step) for step in range(depth)]
    found = list_pass(_graph(codes, pairs), priority, cap)
    assert found, "the lattice keeps its cap"
    return found


def _pairs(codes: Codes) -> list[_Pair]:
    pairs = []
    for pipe in codes.placement.pipes:
        members = [m for m, other in enumerate(codes.pipes) if other == pipe]
        pairs += [_Pair(at // 2, pipe, tuple(members[at : at + 2])) for at in range(0, len(members), 2)]
    return pairs


def _graph(codes: Codes, pairs: list[_Pair]) -> Graph:
    """Nodes: pair·3D + step. A lone last micro-batch has a second chain of no length."""
    depth = codes.placement.depth
    length = 3 * depth
    before: list[tuple[int, ...]] = []
    after: list[list[int]] = [[] for _ in range(len(pairs) * length)]
    ticks, devices = [], []
    opens, closes = bytearray(), bytearray()
    for index, pair in enumerate(pairs):
        table = codes.step_devices[pair.pipe]
        two = len(pair.members)
        for step in range(length):
            node = index * length + step
            chain, back = divmod(step, depth)
            previous = [node - 1] if back else ([index * length + depth - 1] if chain else [])
            if chain == 2:
                previous.append(node - depth)  # the first member's B at this stage
            elif pair.number:
                previous.append(node - length + (depth if chain else 0))
            before.append(tuple(previous))
            for other in previous:
                after[other].append(node)
            ticks.append(two * WORTH[Kind.F] if not chain else WORTH[Kind.B] * (chain <= two))
            devices.append(table[step] if step < 2 * depth else table[step - depth])
            opens.append(0 if chain else two)
            closes.append(1 if 1 <= chain <= two else 0)
    return Graph(
        after=[tuple(nodes) for nodes in after],
        before=before,
        devices=devices,
        ticks=ticks,
        opens=opens,
        closes=closes,
        depth=depth,
    )


def _cap(placement: Placement, micro_batches: int) -> int:
    """2D Ma for one unit of 2D micro-batches, D/2 − 1 more to fill the seams of several."""
    depth = placement.depth
    return min(micro_batches, 2 * depth + max(0, depth // 2 - 1) * (micro_batches > 2 * depth))


CHIMERA_DOUBLED = Method(
    name="chimera_doubled",
    title="Chimera (doubled forwards)",
    family=TWO_DIRECTIONS,
    description="Chimera whose forwards take two micro-batches at once",
    placements=("sequential",),
    chunks=1,
    any_chunks=False,
    bidirectional=True,
    needs="D even",
    layout="sequential",
    sync_mode="eager",
    order=order,
    default_cap=_cap,
    splits=NEVER,
)
