"""One rank's part in one job: builds its chunks, runs iterations, agrees with the others."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TextIO

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from bitpipe.data import TokenSource
from bitpipe.job import Job
from bitpipe.models.compiling import compile_layers
from bitpipe.models.config import partition
from bitpipe.models.memory import DTYPES
from bitpipe.models.micro_batch import IGNORE, MicroBatch
from bitpipe.models.transformer import Chunk, build_chunk
from bitpipe.runtime.clocks.clock import (
    Clock,
    CountedClock,
    DeadlineClock,
    Issue,
    VirtualClock,
    WallClock,
    resolve,
)
from bitpipe.runtime.clocks.event_clock import EventClock
from bitpipe.runtime.clocks.operations import operations_of
from bitpipe.runtime.device import Peak
from bitpipe.runtime.interpreter import Emulator, Interpreter, Trainer
from bitpipe.runtime.plan import Group, Plan, release_points
from bitpipe.runtime.processes.world import BUSY, IDLE, WAITING, World
from bitpipe.runtime.result import RankReport
from bitpipe.runtime.run import Run, describe
from bitpipe.runtime.training.gradients import Gradients, flat_bytes, flat_of
from bitpipe.runtime.training.precision import LossScale
from bitpipe.runtime.transport.transport import device_of, open_transport
from bitpipe.schedule.action import Action, Kind
from bitpipe.schedule.effects import COLLECTS, Item

STEP = Action(Kind.STEP)
_START_MARGIN = 0.02  # seconds that a deadline run gives its ranks to get ready
_KEPT = 256  # iterations whose spans are kept: a long training would fill the memory with them
_NOTHING = (float("nan"), float("nan"))


class Member:
    """One rank's part of one run."""

    def __init__(self, run: Run, world: World) -> None:
        self.run = run
        self.world = world
        self.plan = Plan(program=run.program, layout=run.links.layout, rank=world.rank)
        self.iteration = 0
        self.seconds: list[float] = []
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.lag: list[float] = []
        self.late: list[float] = []
        self._spans: deque[NDArray[np.float64]] = deque(maxlen=_KEPT)
        self._peak: Peak | None = None
        self._log: TextIO | None = None
        if run.out is not None:
            run.out.mkdir(parents=True, exist_ok=True)
            self._log = (run.out / f"rank{world.rank}.jsonl").open("a", buffering=1)
        self.device = device_of(run.target, world)
        self.log(
            "start",
            pid=os.getpid(),
            host=world.host,
            device=self.plan.device,
            hardware=self.device.name,
        )
        self.clock = self._clock()
        self.chunks: dict[tuple[int, int], Chunk] = {}
        self.gradients: Gradients | None = None
        self.interpreter = self._interpreter()
        rows = [Plan(program=run.program, layout=run.links.layout, rank=r).issues for r in range(world.size)]
        self._issues = [[group for group in row.values() if group[0] is not Kind.GATHER] for row in rows]
        self._gathers = [[group for group in row.values() if group[0] is Kind.GATHER] for row in rows]
        self._sizes = self._sync_sizes()
        self._source: TokenSource | None = None
        if run.data is not None and run.clock != "deadline":
            samples = len(self.plan.sample_index) * run.job.width
            self._source = run.data.source(
                run.job.model,
                micro_batch_size=run.job.micro_batch_size,
                micro_batches=samples,
                seed=run.job.seed,
            )
        self._check("initial weights")

    def log(self, event: str, **values: Any) -> None:
        """Append a line to this rank's log."""
        if self._log is not None:
            line = {"event": event, "time": time.time(), "rank": self.world.rank, **values}
            self._log.write(json.dumps(line) + "\n")

    def _clock(self) -> Clock:
        if self.run.clock == "wall":
            return WallClock() if self.run.target.transport == "gloo" else EventClock(self.device)
        if self.run.clock == "deadline":
            return DeadlineClock(self.run.links)
        if self.run.costs is None:
            return VirtualClock(self.run.links)
        costs = self.run.costs
        mine = operations_of(self.plan, self.run.job)
        return CountedClock(self.run.links, {at: costs[operation] for at, operation in mine.items()})

    def _interpreter(self) -> Interpreter:
        run, plan, world = self.run, self.plan, self.world
        dtype = DTYPES[run.job.precision]
        model = run.job.model
        emulated = isinstance(self.clock, DeadlineClock)
        shape = (0,) if emulated else (run.job.micro_batch_size, model.sequence, model.hidden)
        transport = open_transport(
            run.target,
            plan,
            world,
            self.device,
            shape=shape,
            dtype=torch.float64 if emulated else dtype,
            stamped=self.clock.stamped,
        )
        settings: dict[str, Any] = {
            "releases": release_points(run.program)[plan.device],
            "mailbox": transport.mailbox,
            "links": run.links,
            "boundary_bytes": run.message_bytes,
            "board": world.board,
        }
        self.mailbox = transport.mailbox
        if isinstance(self.clock, DeadlineClock):
            assert run.nominal is not None
            layers = dict(enumerate(partition(model.layers, plan.stages)))
            return Emulator(plan, run.nominal, self.clock, layers, **settings)
        self.chunks = build_chunks(plan, run.job, dtype, self.device.place)
        if run.target.compile != "none":
            compile_layers(self.chunks.values(), run.target.compile)
        self.gradients = Gradients(
            plan,
            self.chunks,
            transport.groups,
            learning_rate=run.job.learning_rate,
            clip_norm=run.job.clip_norm,
            scale=LossScale.of(run.job.precision, self.device.place),
            all_reduce=transport.all_reduce,
        )
        return Trainer(plan, self.chunks, self.gradients, clock=self.clock, **settings)

    def iterate(self) -> None:
        """One training step: ``passes`` runs of the program, then all ranks agree on the time."""
        run, board = self.run, self.world.board
        board[1], board[2] = self.iteration, BUSY
        feeds = [self._batches(self.iteration * run.passes + k) for k in range(run.passes)]
        if len(feeds) > 1:
            feeds = _joined(feeds)
        board[2] = WAITING
        self._restart()
        board[2] = BUSY
        loss = 0.0
        if self.gradients is not None:
            self.gradients.zero()
        with self._meter(feeds):
            for k, batches in enumerate(feeds):
                if isinstance(self.interpreter, Trainer):
                    self.interpreter.feed(batches)
                self.interpreter.run(last=k == run.passes - 1)
                if isinstance(self.interpreter, Trainer):
                    loss += self.interpreter.loss()
        board[2] = WAITING
        self._agree(loss)  # and so every rank's loss was finite
        if self.gradients is not None:
            self.gradients.check_finite(self.iteration)
        scale = None if self.gradients is None else self.gradients.scale
        extra = {} if scale is None else {"loss_scale": scale.value, "skipped": scale.skipped}
        self.log(
            "iteration",
            iteration=self.iteration,
            seconds=self.seconds[-1],
            loss=self.losses[-1],
            **extra,
        )
        self.iteration += 1
        if self.iteration % run.check_every == 0 or self.iteration == run.job.iterations:
            self._check(f"after iteration {self.iteration}")
        board[2] = IDLE

    def _batches(self, step: int) -> Mapping[int, MicroBatch]:
        """Every micro-batch that passes through this rank's chunks."""
        if self._source is None:
            return {}
        index = self.plan.sample_index
        found = {m: self._source.micro_batch(step, index[m]).to(self.device.place) for m in index}
        for m in self.run.program.schedule.empty:
            like = next(iter(found.values()))
            nothing: dict[str, Any] = {
                name: torch.full_like(labels, IGNORE)
                for name in ("labels", "follows")
                if (labels := getattr(like, name)) is not None
            }
            found[m] = replace(like, **nothing, index=-1 - m)
        return found

    @contextlib.contextmanager
    def _meter(self, feeds: Sequence[Mapping[int, MicroBatch]]) -> Iterator[None]:
        """Measure peak activations in the first iteration; later ones run at full speed."""
        if self.iteration or not self.run.meter or not self.chunks:
            yield
            return
        weights = [p for chunk in self.chunks.values() for p in chunk.parameters()]
        data = [tensor for feed in feeds for b in feed.values() for tensor in (b.tokens, b.labels)]
        with self.device.meter([*weights, *data]) as peak:
            yield
        self._peak = peak

    def _restart(self) -> None:
        """Start the clock; under real time, together with all other ranks."""
        if isinstance(self.clock, DeadlineClock):
            begin = torch.tensor([time.monotonic() + _START_MARGIN], dtype=torch.float64)
            dist.all_reduce(begin, op=dist.ReduceOp.MAX)
            self.clock.restart(begin.item())
        elif isinstance(self.clock, VirtualClock):
            self.clock.restart()
        else:
            dist.barrier()
            self.clock.restart(time.perf_counter())

    def _agree(self, loss: float) -> None:
        """Find out when all-reduces and steps really ran, and how long the iteration took."""
        plan, clock = self.plan, self.clock
        spans = self.interpreter.spans
        if isinstance(clock, EventClock):
            clock.settle(spans)
        at_step = plan.actions.index(STEP)
        step = spans[at_step]
        assert step is not None
        width = max((len(row) for row in self._issues), default=0)
        mine = [loss, step[0], step[1], *(x for issue in clock.issues for x in (issue.issued, issue.drained))]
        mine += [0.0] * (3 + 2 * width - len(mine))
        gathered = [torch.empty(len(mine), dtype=torch.float64) for _ in range(self.world.size)]
        dist.all_gather(gathered, torch.tensor(mine, dtype=torch.float64))
        table = [row.tolist() for row in gathered]
        ends = [row[2] for row in table]
        if isinstance(clock, VirtualClock):
            issues = [
                [
                    Issue(group=group, issued=row[3 + 2 * k], drained=row[4 + 2 * k])
                    for k, group in enumerate(groups)
                ]
                for row, groups in zip(table, self._issues, strict=True)
            ]
            reduced = resolve(issues, plan.groups, self._all_reduce_seconds)
            done = [max((reduced[g][1] for g in groups), default=0.0) for groups in self._issues]
            starts = [max(row[1], end) for row, end in zip(table, done, strict=True)]
            ends = [start + row[2] - row[1] for start, row in zip(starts, table, strict=True)]
            sums = [(at, group) for at, group in plan.issues.items() if group[0] is not Kind.GATHER]
            for (at, group), issue in zip(sums, clock.issues, strict=True):
                spans[at] = issue.issued, reduced[group][1]
            spans[at_step] = starts[plan.rank], ends[plan.rank]
            ends = self._gathered(ends)
        if isinstance(clock, DeadlineClock):
            # A rank that was late at the end of its row ends its all-reduces and its step as late.
            end = ends[plan.rank] + clock.finished - clock.now
            real = torch.tensor([end, clock.lag], dtype=torch.float64)
            dist.all_reduce(real, op=dist.ReduceOp.MAX)
            self.late.append(real[0].item() - max(ends))
            ends = [real[0].item()]
            self.lag.append(real[1].item())
        self.seconds.append(max(ends))
        self.losses.append(sum(row[0] for row in table))
        if self.gradients is not None and self.gradients.norm is not None:
            self.norms.append(self.gradients.norm)
        self._spans.append(np.array([span or _NOTHING for span in spans]))

    def _gathered(self, ends: list[float]) -> list[float]:
        """When every rank has the weights that others stepped for it, from when its own step ended."""
        issues = [
            [Issue(group=group, issued=end, drained=end) for group in groups]
            for end, groups in zip(ends, self._gathers, strict=True)
        ]
        gathered = resolve(issues, self.plan.groups, self._all_reduce_seconds)
        for at, group in self.plan.issues.items():
            if group in gathered:
                self.interpreter.spans[at] = ends[self.plan.rank], gathered[group][1]
        return [
            max((gathered[group][1] for group in groups), default=end)
            for end, groups in zip(ends, self._gathers, strict=True)
        ]

    def _all_reduce_seconds(self, group: Group) -> float:
        op = COLLECTS[group[0]].op
        return self.run.links.collective(op, self.plan.groups[group], self._sizes[group])

    def _sync_sizes(self) -> dict[Group, int]:
        """Bytes of every all-reduce of the program, also of those that this rank is not in."""
        if self.gradients is not None:
            mine = {
                group: (flat.sum.nbytes, flat.values.nbytes) for group, flat in self.gradients.flats.items()
            }
        else:
            chunks = build_chunks(self.plan, self.run.job, torch.float32, "meta")
            mine = {group: (size, size) for group, size in flat_bytes(self.plan, chunks).items()}
        everyone: list[dict[Group, tuple[int, int]]] = [{} for _ in range(self.world.size)]
        dist.all_gather_object(everyone, mine)
        known = {flat: size for sizes in everyone for flat, size in sizes.items()}
        return {
            group: known[flat_of(group)][COLLECTS[group[0]].item is Item.WEIGHTS]
            for group in self.plan.groups
        }

    def _check(self, when: str) -> None:
        """Replicas must be equal, unless the job does not sync them."""
        if self.gradients is not None and self.run.job.sync != "none":
            self.gradients.check_replicas(when)

    def where(self) -> str:
        """What this rank is doing, for error messages."""
        return describe(self.run, self.world.rank, self.world.board[1], self.world.board[2])

    def report(self) -> RankReport:
        """All that this rank knows, at the end."""
        held = dict(self.gradients.bytes) if self.gradients is not None else {}
        held["buffer_bytes"] = self.mailbox.bytes
        if self._peak is not None and self._peak.activations is not None:
            held["peak_activation_bytes"] = self._peak.activations
        if self._peak is not None and self._peak.total is not None:  # what is not resident, then
            held["peak_activation_bytes"] = self._peak.total - sum(held.values())
        scale = None if self.gradients is None else self.gradients.scale
        self.log("end", iterations=self.iteration, **held)
        if self._log is not None:
            self._log.close()
        return RankReport(
            rank=self.world.rank,
            spans=np.array(self._spans),
            seconds=tuple(self.seconds),
            losses=tuple(self.losses),
            norms=tuple(self.norms),
            lag=tuple(self.lag),
            late=tuple(self.late),
            bytes=held,
            activation_layers=self.interpreter.stash.peak,
            weight_layers=self.interpreter.weight_layers,
            sync_bytes=self._sizes,
            host=self.world.host,
            device=self.device.name,
            skipped=0 if scale is None else scale.skipped,
        )


def build_chunks(
    plan: Plan, job: Job, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> dict[tuple[int, int], Chunk]:
    """The chunks of a rank by (pipe, stage).

    One module serves both pipes where they meet on one device. The last stage borrows the token
    embedding where the first stage, or with TIE any user of the embedding, is on this device.
    """
    placement = plan.program.schedule.placement
    parts = partition(job.model.layers, placement.stages)
    chunks: dict[tuple[int, int], Chunk] = {}
    for pipe, stage in sorted(placement.held[plan.device], key=lambda chunk: chunk[1]):
        same = next((chunk for (_, s), chunk in chunks.items() if s == stage), None)
        embedding = None
        if job.model.tied_embeddings and stage == placement.stages - 1:
            embedding = next((chunk.tied for (_, s), chunk in chunks.items() if s == 0), None)
        chunks[pipe, stage] = same or build_chunk(
            job.model, parts, stage, seed=job.seed, dtype=dtype, device=device, embedding=embedding
        )
    return chunks


def _joined(feeds: Sequence[Mapping[int, MicroBatch]]) -> list[Mapping[int, MicroBatch]]:
    """Passes of one optimizer step: their losses are means over all of them."""
    normaliser = sum(next(iter(feed.values())).normaliser for feed in feeds)
    samples = sum(next(iter(feed.values())).samples for feed in feeds)
    return [
        {m: replace(batch, normaliser=normaliser, samples=samples) for m, batch in feed.items()}
        for feed in feeds
    ]
