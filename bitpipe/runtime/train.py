"""The jobs of a block on one rank: iteration by iteration, in rotation."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from bitpipe.runtime.member import Member
from bitpipe.runtime.processes.world import BUSY, IDLE, World, settle
from bitpipe.runtime.result import RankReport
from bitpipe.runtime.run import Run


def train_block(world: World, runs: Sequence[Run]) -> list[list[RankReport]] | None:
    """Run every job of a block; returns all ranks' reports per job on rank 0, None elsewhere.

    Jobs take turns, one iteration each, and every second round in reverse, so that what slows
    the machine down for a while slows all of them.
    """
    settle()  # before anything is built, so that what an earlier block has left is let go of
    members: list[Member] = []
    for number, run in enumerate(runs):
        world.board[0], world.board[1], world.board[2] = number, -1, BUSY
        members.append(Member(run, world))
    for iteration in range(max(run.job.iterations for run in runs)):
        order = [m for m in enumerate(members) if iteration < m[1].run.job.iterations]
        for number, member in order if iteration % 2 == 0 else reversed(order):
            world.board[0] = number
            _iterate(member)
    world.board[2] = IDLE
    reports = [member.report() for member in members]
    everyone: list[list[RankReport]] | None = [[] for _ in range(world.size)] if world.rank == 0 else None
    dist.gather_object(reports, everyone)
    return None if everyone is None else [list(row) for row in zip(*everyone, strict=True)]


def _iterate(member: Member) -> None:
    """One iteration; an error says where it happened."""
    try:
        member.iterate()
    except Exception as error:
        error.add_note(member.where())
        member.log("error", error=f"{type(error).__name__}: {error}", where=member.where())
        raise
