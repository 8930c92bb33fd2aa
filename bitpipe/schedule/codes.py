"""Actions as integers: what generators, checks and lowering work on, for speed.

A micro-batch m passes the S stages of its pipe forward and then backward, one chain of 2S steps;
``code = m·length + step``. Step p < S is F at stage p, step S ≤ p < 2S is B (or I) at stage
2S−1−p. With a split backward a third block of S steps holds W, step 2S ≤ p < 3S at stage 3S−1−p,
so that W is always S codes behind its I. What a step waits for is read off the effects of actions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from bitpipe.schedule.action import Action, Kind
from bitpipe.schedule.effects import EFFECTS, Item, keeps
from bitpipe.schedule.placement import Placement
from bitpipe.schedule.schedule import Schedule, even_pipes

Rows = list[list[int]]
"""Per device, the codes of its compute actions, first to last."""


@dataclass(frozen=True, kw_only=True)
class Codes:
    """The numbering for one placement and the micro-batches of its pipes (``pipes[m]``)."""

    placement: Placement
    pipes: tuple[int, ...]
    split_backward: bool = False

    @classmethod
    def of(cls, schedule: Schedule) -> Codes:
        return cls(placement=schedule.placement, pipes=schedule.pipes, split_backward=schedule.split_backward)

    @classmethod
    def even(cls, placement: Placement, micro_batches: int, *, split_backward: bool = False) -> Codes:
        """With N micro-batches spread evenly over the pipes."""
        pipes = even_pipes(micro_batches, len(placement.routes))
        return cls(placement=placement, pipes=pipes, split_backward=split_backward)

    @property
    def micro_batches(self) -> int:
        return len(self.pipes)

    @cached_property
    def stages(self) -> int:
        return self.placement.stages

    @cached_property
    def length(self) -> int:
        """Actions per micro-batch."""
        return (3 if self.split_backward else 2) * self.stages

    @property
    def total(self) -> int:
        return self.micro_batches * self.length

    @cached_property
    def locals(self) -> list[int]:
        """Each micro-batch's number within its pipe."""
        counts = [0] * len(self.placement.routes)
        locals_ = []
        for pipe in self.pipes:
            locals_.append(counts[pipe])
            counts[pipe] += 1
        return locals_

    @cached_property
    def step_devices(self) -> list[list[int]]:
        """``step_devices[pipe][step]``: the device that does the step."""
        tables = []
        for route in self.placement.routes:
            forward = list(route)
            backward = forward[::-1]
            tables.append(forward + backward + (backward if self.split_backward else []))
        return tables

    @cached_property
    def devices(self) -> list[int]:
        """``devices[code]``."""
        return [device for pipe in self.pipes for device in self.step_devices[pipe]]

    @cached_property
    def step_names(self) -> list[tuple[Kind, int]]:
        """``step_names[step]``: kind and stage."""
        stages = self.stages
        backward = Kind.I if self.split_backward else Kind.B
        names = [(Kind.F, stage) for stage in range(stages)]
        names += [(backward, stage) for stage in reversed(range(stages))]
        if self.split_backward:
            names += [(Kind.W, stage) for stage in reversed(range(stages))]
        return names

    @cached_property
    def before(self) -> list[int]:
        """``before[step]``: the step that a step waits for, -1 if none.

        It makes the last of what the step reads; whatever else the step reads was made on the way there.
        """
        makers: dict[tuple[Item, int], int] = {}
        for step, (kind, stage) in enumerate(self.step_names):
            makers |= {(item, stage + shift): step for item, shift in EFFECTS[kind].makes}
        return [
            max(makers.get((item, stage + shift), -1) for item, shift in EFFECTS[kind].reads)
            for kind, stage in self.step_names
        ]

    @cached_property
    def needs(self) -> list[tuple[int, ...]]:
        """``needs[code]``: the code that must have ended before, for :func:`evaluation.start_times`."""
        length, before = self.length, self.before
        return [
            (micro_batch * length + other,) if other >= 0 else ()
            for micro_batch in range(self.micro_batches)
            for other in before
        ]

    @cached_property
    def keeps(self) -> list[int]:
        """``keeps[step]``: by how many chunks of activations it changes what its device holds."""
        return [keeps(kind) for kind, _ in self.step_names]

    def forward(self, micro_batch: int, stage: int) -> int:
        return micro_batch * self.length + stage

    def backward(self, micro_batch: int, stage: int) -> int:
        """B, or I with a split backward."""
        return micro_batch * self.length + 2 * self.stages - 1 - stage

    def weight(self, micro_batch: int, stage: int) -> int:
        """W."""
        return micro_batch * self.length + 3 * self.stages - 1 - stage

    def finish(self, micro_batch: int, stage: int) -> int:
        """The last step at a stage: B, or W with a split backward."""
        return (micro_batch + 1) * self.length - 1 - stage

    def actions(self, row: Iterable[int]) -> tuple[Action, ...]:
        """The actions of a row of codes."""
        length, names, pipes, new = self.length, self.step_names, self.pipes, tuple.__new__
        out = []
        for code in row:
            micro_batch, step = divmod(code, length)
            kind, stage = names[step]
            out.append(new(Action, (kind, micro_batch, stage, pipes[micro_batch])))
        return tuple(out)

    def orders(self, rows: Rows) -> tuple[tuple[Action, ...], ...]:
        """The actions of all rows; an I whose W is in none of them is a whole backward, B."""
        done = tuple(self.actions(row) for row in rows)
        if not self.split_backward:
            return done
        weights = {(a.micro_batch, a.stage) for order in done for a in order if a.kind is Kind.W}

        def whole(a: Action) -> bool:
            return a.kind is Kind.I and (a.micro_batch, a.stage) not in weights

        return tuple(tuple(a._replace(kind=Kind.B) if whole(a) else a for a in order) for order in done)

    def action(self, code: int) -> Action:
        return self.actions((code,))[0]

    def encode(self, row: Iterable[Action]) -> list[int]:
        """The codes of compute actions that this numbering knows (see ``checks.complete``)."""
        length, last, last_weight = self.length, 2 * self.stages - 1, 3 * self.stages - 1
        out = []
        for kind, micro_batch, stage, _ in row:
            if kind is Kind.F:
                step = stage
            elif kind is Kind.W:
                step = last_weight - stage
            else:
                step = last - stage
            out.append(micro_batch * length + step)
        return out
