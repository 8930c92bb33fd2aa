"""A program: what every device does, communication included, ready to simulate or run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from bitpipe.schedule.action import COLLECTIVES, Action, Kind
from bitpipe.schedule.schedule import Schedule


class Instruction(NamedTuple):
    """An action with what its executor needs to know.

    Attributes:
        action: what to do.
        peer: for SEND, RECV and WAIT the device at the other end, else -1.
        slot: for RECV and WAIT (and the compute action that consumes it) the receive buffer,
            else -1. A slot is free again after its consumer's last use of the buffer.
        sequence: a total order over all instructions of all devices that respects every
            dependency: the order in which NCCL-like channels may issue them.
    """

    action: Action
    peer: int = -1
    slot: int = -1
    sequence: int = -1


@dataclass(frozen=True, kw_only=True)
class Program:
    """One pipeline group's instructions. Every data-parallel replica runs the same program.

    Attributes:
        schedule: what it was lowered from.
        rows: ``rows[device]`` is the device's instructions, first to last.
        slots: ``slots[device]`` is how many receive buffers the device needs.
        sync_order: the stages in the order in which every rank issues their all-reduces
            (restricted to the stages that it holds).
        tied: whether first and last stage share the embedding.
    """

    schedule: Schedule
    rows: tuple[tuple[Instruction, ...], ...]
    slots: tuple[int, ...]
    sync_order: tuple[int, ...]
    tied: bool = False

    @cached_property
    def groups(self) -> dict[tuple[Kind, int], tuple[int, ...]]:
        """The devices of every collective, by kind and stage: those that start it."""
        members: dict[tuple[Kind, int], set[int]] = {}
        for device, row in enumerate(self.rows):
            for (kind, _, stage, _), _, _, _ in row:
                if kind in COLLECTIVES:
                    members.setdefault((kind, stage), set()).add(device)
        return {group: tuple(sorted(devices)) for group, devices in members.items()}
