"""What comes back from a run: how it ended, when everything happened, what it held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitpipe.cluster import RankLayout
from bitpipe.job import Job
from bitpipe.origin import Origin
from bitpipe.runtime.plan import Group, Plan, group_of
from bitpipe.schedule.action import Action, Kind
from bitpipe.schedule.program import Program
from bitpipe.schedule.timeline import Event, Timeline
from bitpipe.traffic import Collective, Traffic, traffic

STATUSES = ("ok", "failed", "timeout", "oom")


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why a run did not end well: the first cause; what followed from it is left out.

    Attributes:
        kind: ``exception``, ``signal``, ``watchdog``, ``timeout`` or ``memory``.
        message: one line, with the rank and what it was doing.
        rank: global rank, None if nobody is to blame.
        traceback: its Python traceback, if it raised.
        signal: name of the signal that ended it.
        time: seconds of ``time.monotonic`` on the culprit's machine.
    """

    kind: str
    message: str
    rank: int | None = None
    traceback: str | None = None
    signal: str | None = None
    time: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """What one rank knows at the end of a job.

    Attributes:
        rank: global rank.
        spans: (last iterations, actions of the row, 2) start and end in seconds since the start of
            the iteration, NaN for what has no duration.
        seconds: of every iteration, the same on every rank.
        losses: mean over the global mini-batch, per iteration, the same on every rank.
        norms: gradient norm before clipping, per iteration that was not skipped; empty without
            clipping.
        lag: deadline clock: largest delay of an operation behind its nominal end, per iteration.
        late: deadline clock: how far behind its nominal end the iteration ended.
        bytes: parameters, gradients, optimizer state, receive buffers and peak activations.
        activation_layers: most layers × micro-batches whose activations it kept at once, counted
            while it ran; under the deadline clock, of those it would have kept.
        weight_layers: layers whose weights it holds; under the deadline clock, of the stages it ran.
        sync_bytes: of every all-reduce that this rank takes part in.
        host: name of the machine.
        device: name of the GPU, or ``cpu``.
        skipped: steps that every rank skipped because gradients overflowed.
    """

    rank: int
    spans: NDArray[np.float64]
    seconds: tuple[float, ...]
    losses: tuple[float, ...]
    norms: tuple[float, ...]
    lag: tuple[float, ...]
    late: tuple[float, ...]
    bytes: Mapping[str, int]
    activation_layers: int
    weight_layers: int
    sync_bytes: Mapping[Group, int]
    host: str
    device: str = "cpu"
    skipped: int = 0


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One job's run.

    Attributes:
        job, program, layout: what ran where.
        status: one of :data:`STATUSES`.
        origin: what kind of numbers these are.
        cause: why, unless ``ok``.
        message_bytes: of one boundary activation.
        reports: one per rank; empty unless ``ok``.
        started, finished: seconds since the epoch.
        extra: what else the run has to say (``world``, ``clock``, ``repeats``).
    """

    job: Job
    program: Program
    layout: RankLayout
    status: str
    origin: Origin
    cause: Cause | None = None
    message_bytes: int = 0
    reports: tuple[RankReport, ...] = ()
    started: float = 0.0
    finished: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> tuple[float, ...]:
        """Of every iteration."""
        return self.reports[0].seconds if self.reports else ()

    @property
    def losses(self) -> tuple[float, ...]:
        """Mean loss over the global mini-batch, per iteration."""
        return self.reports[0].losses if self.reports else ()

    @property
    def norms(self) -> tuple[float, ...]:
        """Gradient norm before clipping, per iteration; empty unless the job clips."""
        return self.reports[0].norms if self.reports else ()

    @property
    def lag(self) -> float:
        """Deadline clock: the largest delay of any operation of any rank, in seconds."""
        return max((max(report.lag, default=0.0) for report in self.reports), default=0.0)

    @property
    def late_share(self) -> float:
        """Deadline clock: by which share of its time an iteration ended late, at most, of those that
        count; else 0. Delays of operations that something else waits out do not show here."""
        if not self.reports or not self.reports[0].late:
            return 0.0
        counted = slice(-self.job.measured, None)
        late = self.reports[0].late[counted]  # the same on every rank, as the seconds are
        return max(behind / seconds for behind, seconds in zip(late, self.seconds[counted], strict=True))

    @property
    def mean_seconds(self) -> float:
        """Mean of the iterations that count, as in the paper the last ones."""
        counted = self.seconds[-self.job.measured :]
        return sum(counted) / len(counted)

    @property
    def samples_per_s(self) -> float:
        """Throughput over the iterations that count."""
        return self.job.global_batch / self.mean_seconds

    def timeline(self, iteration: int = -1) -> Timeline:
        """One iteration of all ranks."""
        events = [
            Event(report.rank, action, float(start), float(end))
            for report in self.reports
            for action, (start, end) in zip(
                self._actions(report.rank), report.spans[iteration].tolist(), strict=True
            )
            if end == end
        ]
        return Timeline(devices=self.layout.size, events=tuple(events), unit="s", origin=self.origin)

    def durations(self, iterations: Sequence[int] = (-1,)) -> dict[tuple[int, Action], float]:
        """Seconds of (rank, compute action or STEP), the mean over ``iterations``."""
        found: dict[tuple[int, Action], float] = {}
        for report in self.reports:
            spans = report.spans[list(iterations)]
            lengths = (spans[:, :, 1] - spans[:, :, 0]).mean(axis=0).tolist()
            for action, length in zip(self._actions(report.rank), lengths, strict=True):
                if action.is_compute or action.kind is Kind.STEP:
                    found[report.rank, action] = length
        return found

    def size(self, action: Action) -> float:
        """Bytes of a SEND, SYNC or TIE, as the run's own clocks counted them."""
        if action.kind in (Kind.SEND_F, Kind.SEND_B):
            return self.message_bytes
        group = group_of(action)
        return next((r.sync_bytes[group] for r in self.reports if group in r.sync_bytes), 0)

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """Bytes by kind and link class of one iteration; a SEND counts what the clocks count."""
        plan = Plan(program=self.program, layout=self.layout, rank=0)
        sizes = {group: size for report in self.reports for group, size in report.sync_bytes.items()}
        collectives = (Collective(group[0], plan.groups[group], size) for group, size in sizes.items())
        return traffic(self.program, self.layout, self.size, collectives)

    @property
    def vectors(self) -> dict[str, tuple[float, ...]]:
        """One value per rank and name: bytes by kind, seconds busy in the last iteration, and as in
        Table 3 the peak of activations, in those of one micro-batch on 1/D of the model (Ma), and
        the weights, in those of 1/D of the model (Mθ)."""
        names = sorted({name for report in self.reports for name in report.bytes})
        values = {name: tuple(r.bytes.get(name, 0) for r in self.reports) for name in names}
        busy = []
        for report in self.reports:
            compute = np.array([action.is_compute for action in self._actions(report.rank)])
            last = report.spans[-1][compute]
            busy.append(float((last[:, 1] - last[:, 0]).sum()))
        share = self.job.model.layers / self.layout.depth
        return {
            **values,
            "busy_seconds": tuple(busy),
            "peak_activation_ma": tuple(report.activation_layers / share for report in self.reports),
            "weights_m_theta": tuple(report.weight_layers / share for report in self.reports),
        }

    def _actions(self, rank: int) -> tuple[Action, ...]:
        return Plan(program=self.program, layout=self.layout, rank=rank).actions
