"""Lower bounds on the makespan, in units of one stage forward (F 1, B 2, I 1, W 1 per stage).

Work with ticks of 1/v unit: a chunk's F takes 1 tick, its B takes 2. Let S = v·D stages, C the
most chunks of activations that a device may hold, and look at one device r that holds stages
between a (nearest to the input, over both pipes) and z (nearest to the output):

- nothing can reach r before a forward ticks have passed, and after its last backward at least a
  further backwards follow elsewhere, 2a ticks;
- its own work is 3 ticks for each micro-batch and chunk: 3vN in all;
- its first backward cannot start before a micro-batch has gone through all S forwards and then
  S−1−z backwards: at S + 2(S−1−z). Until then r can only do forwards, at most min(vN, C) of
  them, starting at a. What is missing is idle time.

So T ≥ max over r of  3a + 3vN + max(0, S + 2(S−1−z) − a − min(vN, C)).
For two pipes and even D the two middle devices decide, with a = S−1−z = D/2 − 1:

    T ≥ 3N + (1/v)·[3(D/2−1) + max(0, vD + D/2 − 1 − min(vN, C))]      (units)

which is 3N + 2(D−2)/v at C = vD, that is the bubble ratio (D−2)/(3N+D−2) of section 1.3 at v = 2,
and 3N + 1.5(D−2)/v once C ≥ vD + D/2 − 1: (D−2)/(4N+D−2), section 1.5. For one pipe the last
device decides: 3N + 3(D−1)/v.

With a split backward W can follow when the pipe has drained, so only a ticks are lost at r, and
the first I comes S + (S−1−z) ticks in: T ≥ 3N + (D−2)/(2v) at C ≥ vD.

The second bound is the chain of one pipe with n micro-batches: its last stage works 3n ticks, not
before S−1 forwards and not after the last S−1 backwards: T ≥ 3(S−1) + 3n.
"""

from __future__ import annotations

from collections.abc import Sequence

from bitpipe.schedule.action import Kind
from bitpipe.schedule.costs import WORTH
from bitpipe.schedule.placement import Placement
from bitpipe.schedule.schedule import Schedule, even_pipes


def lower_bound(
    placement: Placement,
    micro_batches: int,
    *,
    cap: int | None = None,
    split_backward: bool = False,
    pipes: Sequence[int] | None = None,
) -> float:
    """No order of these actions on these devices finishes earlier (derivation: module docstring).

    Args:
        placement: where the stages are.
        micro_batches: N, all pipes together.
        cap: C, most chunks of activations that a device may hold; None for no limit.
        split_backward: backward as I and W (of any of them), an activation held until its W.
        pipes: the pipe of every micro-batch, if they are not spread evenly.

    Returns:
        The bound in units of one stage forward.
    """
    stages = placement.stages
    pipes = even_pipes(micro_batches, len(placement.routes)) if pipes is None else pipes
    counts = [pipes.count(pipe) for pipe in placement.pipes]
    back = WORTH[Kind.I if split_backward else Kind.B]
    whole = WORTH[Kind.F] + WORTH[Kind.B]
    best = 0
    for device in range(placement.depth):
        held = [(pipe, stage) for pipe, stage in placement.held[device] if counts[pipe]]
        if not held:
            continue
        nearest = min(stage for _, stage in held)
        deepest = max(stage for _, stage in held)
        forwards = sum(counts[pipe] for pipe, _ in held)
        possible = forwards if cap is None else min(forwards, cap)
        wait = max(0, stages + back * (stages - 1 - deepest) - nearest - possible)
        drain = 0 if split_backward else back * nearest
        best = max(best, nearest + whole * forwards + wait + drain)
    for count in counts:
        if count:
            chain = (1 + back) * (stages - 1 + count) + (WORTH[Kind.W] if split_backward else 0)
            best = max(best, chain)
    return best / placement.chunks


def early_forward_cap(depth: int, chunks: int) -> int:
    """The smallest cap, in chunks, at which the middle bubbles vanish: vD + ⌈D/2⌉ − 1.

    At v = 2 these are (5D−2)/2 chunks, (5D−2)/4 Ma; at v = 1 MixPipe's (3D−2)/2 Ma.
    """
    return chunks * depth + (depth + 1) // 2 - 1


def schedule_bound(schedule: Schedule, cap: int | None = None) -> float:
    """The bound for a schedule, under ``cap`` (default: the schedule's own)."""
    return lower_bound(
        schedule.placement,
        schedule.micro_batches,
        cap=schedule.cap if cap is None else cap,
        split_backward=schedule.split_backward,
        pipes=schedule.pipes,
    )
