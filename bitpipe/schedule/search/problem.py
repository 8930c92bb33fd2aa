"""A schedule problem in whole ticks: placement, N, what everything costs, and a cap on activations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from bitpipe.schedule.codes import Codes, Rows
from bitpipe.schedule.costs import Costs
from bitpipe.schedule.evaluation import start_times
from bitpipe.schedule.list_scheduling import Graph, build_graph

# Ticks per 1/v unit that are tried in turn; the last one rounds.
_SCALES = (1, 2, 5, 10, 20, 50, 100, 1000)
_EXACT = 1e-9


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Order the actions of ``graph`` under ``cap`` chunks per device.

    Attributes:
        codes: which actions, on which devices.
        graph: what must precede what, durations and transfers in ticks.
        cap: most chunks of activations that a device may hold, or None.
        scale: ticks per 1/v unit.
        exact: whether every cost is a whole number of ticks; else it is rounded to one.
        free: steps of a micro-batch that cost nothing. They take a tick, so that starts tell their order,
            but none in :attr:`bound`.
    """

    codes: Codes
    graph: Graph
    cap: int | None
    scale: int
    exact: bool
    free: frozenset[int] = frozenset()

    @classmethod
    def of(cls, codes: Codes, costs: Costs, cap: int | None) -> Problem:
        """The problem of scheduling ``codes`` at ``costs``.

        Raises:
            InputError: the costs do not fit the stages.
        """
        steps = costs.steps(codes)
        values = [*steps, costs.transfer * codes.placement.chunks]
        for scale in _SCALES:
            ticks = [round(value * scale) for value in values]
            exact = all(abs(t - v * scale) < _EXACT * scale for t, v in zip(ticks, values, strict=True))
            if exact:
                break
        free = frozenset(step for step, t in enumerate(ticks[:-1]) if not t)
        durations = [max(1, t) for t in ticks[:-1]]
        graph = replace(build_graph(codes), ticks=durations * codes.micro_batches, transfer=ticks[-1])
        return cls(codes=codes, graph=graph, cap=cap, scale=scale, exact=exact and not free, free=free)

    @property
    def transfer(self) -> int:
        """Ticks that a message needs to another device."""
        return self.graph.transfer

    def units(self, ticks: float) -> float:
        """Ticks as the paper's unit, one stage forward."""
        return ticks / (self.scale * self.codes.placement.chunks)

    def delay(self, before: int, after: int) -> int:
        """Ticks between the end of one code and the earliest start of its successor."""
        devices = self.graph.devices
        return self.transfer if devices[before] != devices[after] else 0

    @cached_property
    def heads(self) -> list[list[int]]:
        """``heads[pipe][step]``: earliest start of a step of a micro-batch that is alone."""
        return [self._earliest(table) for table in self.codes.step_devices]

    @cached_property
    def tails(self) -> list[list[int]]:
        """``tails[pipe][step]``: ticks that must follow after the end of a step."""
        codes, ticks = self.codes, self.graph.ticks
        tables = []
        for table in codes.step_devices:
            tail = [0] * codes.length
            for step, before in reversed(list(enumerate(codes.before))):
                if before >= 0:
                    hop = self.transfer if table[step] != table[before] else 0
                    tail[before] = max(tail[before], hop + ticks[step] + tail[step])
            tables.append(tail)
        return tables

    def _earliest(self, table: list[int]) -> list[int]:
        ticks = self.graph.ticks
        head = [0] * self.codes.length
        for step, before in enumerate(self.codes.before):
            if before >= 0:
                hop = self.transfer if table[step] != table[before] else 0
                head[step] = head[before] + ticks[before] + hop
        return head

    def times(self, rows: Rows) -> tuple[list[float], list[float]]:
        """Start and end of every code if the devices follow ``rows``, in ticks.

        Raises:
            Deadlock: the rows wait for each other.
        """
        graph = self.graph
        return start_times(rows, self.codes.needs, graph.ticks, graph.devices, self.transfer)

    @cached_property
    def bound(self) -> int:
        """Ticks that no order can beat, whatever the cap.

        A device's work, after the least head and before the least tail of what it does; and the
        chain of the micro-batches of one pipe through its slowest step.
        """
        if self.free:
            length = self.codes.length
            ticks = [0 if code % length in self.free else t for code, t in enumerate(self.graph.ticks)]
            return replace(self, graph=replace(self.graph, ticks=ticks), free=frozenset()).bound
        codes, steps = self.codes, self.graph.ticks[: self.codes.length]
        counts = [codes.pipes.count(pipe) for pipe in codes.placement.pipes]
        best = 0
        for device in range(codes.placement.depth):
            mine = [
                (pipe, step)
                for pipe, table in enumerate(codes.step_devices)
                for step in range(codes.length)
                if counts[pipe] and table[step] == device
            ]
            if mine:
                work = sum(counts[pipe] * steps[step] for pipe, step in mine)
                head = min(self.heads[pipe][step] for pipe, step in mine)
                best = max(best, head + work + min(self.tails[pipe][step] for pipe, step in mine))
        for pipe, count in enumerate(counts):
            for step in range(codes.length if count else 0):
                alone = self.heads[pipe][step] + steps[step] + self.tails[pipe][step]
                best = max(best, alone + (count - 1) * steps[step])
        return best
