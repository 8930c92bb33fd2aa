"""Faults of ranks, from outside: what trains a block is replaced by what also breaks a rank."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bitpipe.runtime import train
from bitpipe.runtime.interpreter import Interpreter
from bitpipe.runtime.member import Member
from bitpipe.runtime.processes.world import World
from bitpipe.runtime.result import RankReport
from bitpipe.runtime.run import Run

if TYPE_CHECKING:  # ranks import this file while a watchdog looks
    import pytest

train_block = train.train_block


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault to inject.

    Attributes:
        kind: ``raise``, ``kill``, ``stop`` (SIGSTOP), ``hang``, ``exit``, ``memory`` (the host's),
            ``device_memory`` or ``nan``.
        rank, iteration: where and when.
        position: before which action of the row.
        method, seed: only in jobs that have it.
    """

    kind: str
    rank: int
    iteration: int = 0
    position: int = 0
    method: str | None = None
    seed: int | None = None

    def hits(self, member: Member) -> bool:
        job = member.run.job
        return (
            (self.rank, self.iteration) == (member.world.rank, member.iteration)
            and self.method in (None, job.schedule.method)
            and self.seed in (None, job.seed)
        )

    def strike(self, member: Member) -> None:
        """Do it."""
        member.log("fault", kind=self.kind)
        match self.kind:
            case "raise":
                raise RuntimeError("injected fault")
            case "memory":
                raise MemoryError("injected fault")
            case "device_memory":
                raise RuntimeError("CUDA error: out of memory (injected fault)")
            case "exit":
                os._exit(7)
            case "hang":
                time.sleep(3600)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "nan":
                assert member.gradients is not None
                for flat in member.gradients.flats.values():
                    flat.values.fill_(float("nan"))
            case other:
                raise ValueError(other)


def insert(interpreter: Interpreter, position: int, act: Callable[[], None]) -> Callable[[], None]:
    """Run ``act`` before the action at ``position``, until the returned function is called."""
    whole = interpreter._whole
    mark = whole[position][2] & ~1  # not waiting for communication
    interpreter._whole = [*whole[:position], (lambda _: act(), None, mark), *whole[position:]]

    def undo() -> None:
        interpreter._whole = whole

    return undo


def train_and_break(
    faults: Sequence[Fault], world: World, runs: Sequence[Run]
) -> list[list[RankReport]] | None:
    """``train_block`` with faults, on a rank."""
    iterate = Member.iterate

    def struck(member: Member) -> None:
        mine = [fault for fault in faults if fault.hits(member)]
        undo = [insert(member.interpreter, one.position, partial(one.strike, member)) for one in mine]
        iterate(member)
        for back in reversed(undo):
            back()

    Member.iterate = struck  # type: ignore[method-assign]
    try:
        return train_block(world, runs)
    finally:
        Member.iterate = iterate  # type: ignore[method-assign]


def break_ranks(monkeypatch: pytest.MonkeyPatch, *faults: Fault) -> None:
    """Whatever this process lets ranks train from here on breaks so; without faults nothing does."""
    monkeypatch.setattr(train, "train_block", partial(train_and_break, faults) if faults else train_block)
