"""Placements: which device of a pipeline group holds which stage of which pipe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bitpipe.errors import InputError, choose
from bitpipe.schedule.action import DOWN, UP

PLACEMENTS = ("sequential", "cyclic", "v")


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Stages 0 … v·D−1 of one or two pipes on devices 0 … D−1.

    ``sequential`` is v = 1; ``cyclic`` starts every round of D stages at device 0 again;
    ``v`` comes back the way it went, so that a turn stays on one device (section 1.2).
    The up pipe is the mirror image of the down pipe: device d becomes D−1−d.
    ``own`` is read off a user's own schedule: ``own[pipe][stage]`` is the device.
    """

    name: str
    depth: int
    chunks: int = 1
    bidirectional: bool = False
    own: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.own is None:
            choose("placement", self.name, PLACEMENTS)
        if self.depth < 1:
            raise InputError("depth", self.depth, "a pipeline needs at least one device")
        if self.chunks < 1:
            raise InputError("chunks", self.chunks, "a device needs at least one chunk per direction")
        if self.name == "sequential" and self.chunks != 1:
            raise InputError("chunks", self.chunks, "the sequential placement has one chunk per direction")

    @property
    def stages(self) -> int:
        return self.depth * self.chunks

    @property
    def pipes(self) -> tuple[int, ...]:
        return (DOWN, UP) if self.bidirectional else (DOWN,)

    def device(self, pipe: int, stage: int) -> int:
        """The device that holds ``stage`` of ``pipe``."""
        return self.table[pipe][stage]

    @cached_property
    def table(self) -> tuple[tuple[int, ...], ...]:
        """``table[pipe][stage]`` is the device."""
        if self.own is not None:
            return self.own
        down = []
        for stage in range(self.stages):
            round_, position = divmod(stage, self.depth)
            back = self.name == "v" and round_ % 2 == 1
            down.append(self.depth - 1 - position if back else position)
        if not self.bidirectional:
            return (tuple(down),)
        return tuple(down), tuple(self.depth - 1 - device for device in down)

    def chunks_of(self, device: int) -> tuple[tuple[int, int], ...]:
        """Every (pipe, stage) that ``device`` holds, down pipe first, by stage."""
        return tuple(
            (pipe, stage)
            for pipe in self.pipes
            for stage in range(self.stages)
            if self.table[pipe][stage] == device
        )
