"""What every drawing starts from: a timeline, the placement behind it, and a title."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from bitpipe.errors import InputError
from bitpipe.schedule.action import Action, Kind
from bitpipe.schedule.placement import Placement
from bitpipe.schedule.timeline import Event, Timeline

GRADIENT_SYNC = frozenset({Kind.SYNC, Kind.TIE})


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One timeline to draw.

    Attributes:
        timeline: what happened; its rows are the D devices, or the W·D ranks, of a run.
        placement: tells the chunk of a stage.
        title: one line above the drawing.
        rows: a name per row; "device 0" … or, with more rows than D, "rank 0" … if empty.
    """

    timeline: Timeline
    placement: Placement
    title: str = ""
    rows: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rows and len(self.rows) != self.timeline.devices:
            raise InputError("rows", len(self.rows), f"one name for each of {self.timeline.devices} rows")

    @classmethod
    def of_ranks(
        cls,
        timeline: Timeline,
        placement: Placement,
        title: str,
        *,
        replicas: Sequence[int],
        devices: Sequence[int],
    ) -> Panel:
        """A run's timeline: its rows, global ranks, become device after device of each pipeline group.

        Args:
            timeline: of all ranks.
            placement: tells the chunk of a stage.
            title: of the run; who told the time, makespan and bubble are added.
            replicas: per rank, its pipeline group.
            devices: per rank, its device there.
        """
        places = list(zip(replicas, devices, strict=True))
        order = sorted(range(timeline.devices), key=places.__getitem__)
        one_group = len(set(replicas)) == 1
        unit = "" if timeline.unit == "stage forward" else f" {timeline.unit}"
        about = (
            f"{timeline.origin.value}, makespan {timeline.makespan:.4g}{unit}, "
            f"bubble {100 * timeline.bubble_ratio:.1f} %"
        )
        return cls(
            timeline=timeline.reordered(order),
            placement=placement,
            title=f"{title}: {about}",
            rows=tuple(f"device {d}" if one_group else f"w{w} device {d}" for w, d in sorted(places)),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """A name per row."""
        word = "device" if self.timeline.devices == self.placement.depth else "rank"
        return self.rows or tuple(f"{word} {row}" for row in range(self.timeline.devices))

    @property
    def span(self) -> float:
        """End of the last compute action or gradient sync, whichever is later."""
        return self.timeline.makespan

    def chunk(self, action: Action) -> int:
        """Which of its device's chunks (per pipe, from 0, by stage) the action works on."""
        pipe, stage = max(action.pipe, 0), max(action.stage, 0)
        held = self.placement.held[self.placement.device(pipe, stage)]
        return [s for p, s in held if p == pipe].index(stage)

    @property
    def boxes(self) -> tuple[Event, ...]:
        """What occupies devices: compute and optimizer steps that take time."""
        return tuple(
            event
            for event in self.timeline.events
            if event.end > event.start and (event.action.is_compute or event.action.kind is Kind.STEP)
        )

    @cached_property
    def sync_bars(self) -> tuple[tuple[tuple[Event, int], ...], ...]:
        """Per row, its gradient all-reduces that take time, each with a lane free of overlaps.

        Events count from issue. A bar starts where the rank's all-reduce before it ends, since
        a rank works through its all-reduces one after another; so one lane is usually enough.
        """
        rows = []
        for row in range(self.timeline.devices):
            free = 0.0
            bars = []
            syncs = (event for event in self.timeline.events if event.device == row and is_sync(event))
            for event in sorted(syncs, key=lambda event: (event.end, event.start, event.action)):
                begin = max(event.start, free)
                free = max(free, event.end)
                if event.end > begin:
                    bars.append(event._replace(start=begin))
            rows.append(tuple(lanes(bars)))
        return tuple(rows)

    @property
    def lanes(self) -> int:
        """How many lanes the bars of the fullest row need."""
        return max((lane + 1 for row in self.sync_bars for _, lane in row), default=0)

    @property
    def kinds(self) -> set[Kind]:
        """Kinds of all that is drawn."""
        bars = {event.action.kind for row in self.sync_bars for event, _ in row}
        return bars | {event.action.kind for event in self.boxes}


def is_sync(event: Event) -> bool:
    """Whether the event is a gradient all-reduce."""
    return event.action.kind in GRADIENT_SYNC


def lanes(events: Iterable[Event]) -> list[tuple[Event, int]]:
    """Give each event the lowest lane (from 0) that is free when it starts."""
    free: list[float] = []
    placed = []
    for event in sorted(events, key=lambda event: (event.start, event.end, str(event.action))):
        lane = next((k for k, end in enumerate(free) if end <= event.start), len(free))
        free[lane : lane + 1] = [event.end]
        placed.append((event, lane))
    return placed


UNIT = "1 = one forward of 1/D of the model"
"""What schedules count in: a device's forward pass over its share, whatever the number of chunks."""


def time_label(unit: str) -> str:
    """The time axis' label, with its unit."""
    if unit == "stage forward":
        return f"time ({UNIT})"
    return f"time ({unit})"
