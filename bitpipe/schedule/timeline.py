"""A timeline: who did what from when to when, whoever told the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from bitpipe.errors import InputError
from bitpipe.origin import Origin
from bitpipe.schedule.action import Action, parse_action


class Event(NamedTuple):
    """``device`` was busy with ``action`` from ``start`` to ``end`` (the timeline's unit).

    Compute and STEP occupy the compute stream. SYNC, TIE, SEND_F and SEND_B events lie on the
    communication stream: from issue to arrival.
    """

    device: int
    action: Action
    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One iteration of ``devices`` devices, simulated, virtual or measured.

    Attributes:
        devices: how many rows; with data parallelism these are global ranks.
        events: in no particular order across devices; by start on one device and stream.
        unit: ``"stage forward"`` (the paper's: one forward of 1/D of the model) or ``"s"``.
        origin: who told the time.
        memory: ``memory[device]`` is (time, bytes in use) at every change; empty if not known.
    """

    devices: int
    events: tuple[Event, ...]
    unit: str
    origin: Origin
    memory: tuple[tuple[tuple[float, float], ...], ...] = ()

    @property
    def makespan(self) -> float:
        """Last end of any event, counted from 0."""
        return max((event.end for event in self.events), default=0.0)

    @property
    def span(self) -> float:
        """The longest that one device needs from its own first start to its own last end.

        What an iteration takes where the next one begins on every device as soon as it is done there.
        """
        rows = by_device(self.events, self.devices)
        return max((max(e.end for e in row) - row[0].start for row in rows if row), default=0.0)

    @property
    def compute(self) -> tuple[Event, ...]:
        return tuple(event for event in self.events if event.action.is_compute)

    def busy(self, device: int, which: Callable[[Action], bool] | None = None) -> float:
        """Time that ``device`` spent in compute actions (those that ``which`` accepts)."""
        return sum(
            event.end - event.start
            for event in self.compute
            if event.device == device and (which is None or which(event.action))
        )

    @property
    def bubble_ratio(self) -> float:
        """Idle share of all devices' time up to the end of the last compute action."""
        span = max((event.end for event in self.compute), default=0.0)
        if span == 0.0:
            return 0.0
        return 1.0 - sum(event.end - event.start for event in self.compute) / (span * self.devices)

    def reordered(self, rows: Sequence[int]) -> Timeline:
        """The same timeline with row ``rows[k]`` as its k-th row."""
        place = {row: k for k, row in enumerate(rows)}
        return replace(
            self,
            events=tuple(event._replace(device=place[event.device]) for event in self.events),
            memory=tuple(self.memory[row] for row in rows) if self.memory else (),
        )

    def document(self) -> dict[str, Any]:
        """The timeline as strict JSON data (``timeline.json`` beside a record)."""
        return {
            "devices": self.devices,
            "unit": self.unit,
            "origin": self.origin.value,
            "events": [[device, str(action), start, end] for device, action, start, end in self.events],
            "memory": [[list(change) for change in row] for row in self.memory],
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Timeline:
        """Read a document back.

        Raises:
            InputError: it is not a timeline.
        """
        try:
            return cls(
                devices=int(document["devices"]),
                events=tuple(
                    Event(int(device), parse_action(action), float(start), float(end))
                    for device, action, start, end in document["events"]
                ),
                unit=str(document["unit"]),
                origin=Origin(document["origin"]),
                memory=tuple(tuple((float(t), float(b)) for t, b in row) for row in document["memory"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError("timeline", type(error).__name__, f"not a timeline: {error}") from error


def by_device(events: Iterable[Event], devices: int) -> list[list[Event]]:
    """Split events into one list per device, each sorted by start."""
    rows: list[list[Event]] = [[] for _ in range(devices)]
    for event in events:
        rows[event.device].append(event)
    for row in rows:
        row.sort(key=lambda event: (event.start, event.end))
    return rows
