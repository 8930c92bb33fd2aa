"""The loop that follows a plan: one call per action, everything else worked out before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from bitpipe.cluster import Links
from bitpipe.models.micro_batch import MicroBatch
from bitpipe.models.transformer import Chunk
from bitpipe.runtime.clocks.clock import Clock, DeadlineClock, Nominal
from bitpipe.runtime.clocks.operations import fuses
from bitpipe.runtime.plan import Message, Plan, message_of
from bitpipe.runtime.processes.world import Board
from bitpipe.runtime.training.backward import DeferredWeights, backward, backward_input
from bitpipe.runtime.training.fused_gradient import fuse
from bitpipe.runtime.training.gradients import Gradients
from bitpipe.runtime.training.stash import Stash
from bitpipe.runtime.transport.mailbox import Mailbox, Sent
from bitpipe.schedule.action import COLLECTIVES, Action, Kind
from bitpipe.schedule.costs import WORTH
from bitpipe.schedule.effects import EFFECTS, RECEIVES, WAITS, Item, keeps
from bitpipe.schedule.program import Instruction

_BLOCKING = (*WAITS, Kind.STEP)
Step = tuple[Callable[[Any], None], Any, int]


class NonFiniteLoss(RuntimeError):
    """A micro-batch's loss is NaN or infinite."""


class Interpreter(ABC):
    """Runs one rank's row, iteration after iteration.

    Attributes:
        spans: ``spans[position]`` is (start, end) of the last run of the row's action there, in
            seconds of the clock; None for RECV, WAIT and what only other clocks know.
        stash: what forwards have left for backwards.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        layers: Mapping[int, int],
        releases: Mapping[int, list[int]],
        mailbox: Mailbox,
        clock: Clock,
        links: Links,
        boundary_bytes: int,
        board: Board,
    ) -> None:
        self.plan = plan
        self.clock = clock
        self.stash = Stash(layers)
        self.spans: list[tuple[float, float] | None] = [None] * len(plan.actions)
        self._mailbox = mailbox
        self._links = links
        self._boundary_bytes = boundary_bytes
        self._board = board
        self._releases = releases
        self._sent: dict[int, Sent] = {}
        self._held: dict[Message, Tensor] = {}
        row = plan.program.rows[plan.device]
        self._whole = [self._compile(at, instruction) for at, instruction in enumerate(row)]
        self._pass = [
            step
            for step, action in zip(self._whole, plan.actions, strict=True)
            if action.kind not in (*COLLECTIVES, Kind.STEP)
        ]

    def run(self, *, last: bool = True) -> None:
        """Run the row once; ``last`` is False for a pass that only accumulates gradients."""
        board = self._board
        for act, argument, mark in self._whole if last else self._pass:
            board[2] = mark
            act(argument)
        if not last:
            self._release(list(self._sent))

    def _compile(self, at: int, instruction: Instruction) -> Step:
        action, peer, slot, _ = instruction
        plan, kind = self.plan, action.kind
        mark = 2 * at + (kind in _BLOCKING)
        message = message_of(action)
        if message is None:
            return self._work(at, action), (at, action), mark
        tag, rank = plan.tag(message), plan.peer(peer)
        if kind in RECEIVES:
            return self._recv, (slot, rank, tag), mark
        if kind in WAITS:
            return self._wait, (slot, tag, message, self._releases.get(at, ())), mark
        return self._send, (at, message, rank, tag, self._links.between(plan.rank, rank)), mark

    @property
    @abstractmethod
    def weight_layers(self) -> int:
        """Layers whose weights this rank holds; a layer that serves both pipes counts once."""

    @abstractmethod
    def _work(self, at: int, action: Action) -> Callable[[Any], None]:
        """The method that performs a compute action, collective or STEP; takes (position, action)."""

    def _recv(self, argument: tuple[int, int, int]) -> None:
        self._mailbox.post(*argument)

    def _wait(self, argument: tuple[int, int, Message, list[int]]) -> None:
        slot, tag, message, releases = argument
        self._held[message], stamp = self._mailbox.wait(slot, tag)
        self.clock.receive(stamp)
        if releases:
            self._release(releases)

    def _send(self, argument: tuple[int, Message, int, int, Any]) -> None:
        at, message, rank, tag, link = argument
        issued = self.clock.now
        arrival = self.clock.send(link, self._boundary_bytes)
        self.spans[at] = issued, arrival
        self._sent[at] = self._mailbox.send(self._held.pop(message), rank, tag, arrival)

    def _release(self, positions: list[int]) -> None:
        for at in positions:
            self._mailbox.release(self._sent.pop(at))


class Trainer(Interpreter):
    """Computes: chunks, autograd, gradient sync, optimizer."""

    def __init__(
        self,
        plan: Plan,
        chunks: Mapping[tuple[int, int], Chunk],
        gradients: Gradients,
        *,
        fused: bool = True,
        **settings: Any,
    ) -> None:
        """``gradients``: of the same chunks; with ``fused``, layers add to them in place where they can."""
        if fused and fuses(plan):
            fuse(chunks.values())
        self._chunks = chunks
        self._gradients = gradients
        self._batches: Mapping[int, MicroBatch] = {}
        self._inputs: dict[tuple[int, int], Tensor | None] = {}  # of forwards to be recomputed
        self._issues = plan.issues
        self.losses: dict[int, Tensor] = {}
        scale = gradients.scale
        some = next(iter(chunks.values()))
        weight = next(some.parameters())
        self._one = torch.ones((), dtype=some.dtype, device=weight.device) if scale is None else scale.seed
        layers = {stage: len(chunk.layers) for (_, stage), chunk in chunks.items()}
        super().__init__(plan, layers=layers, **settings)

    @property
    def weight_layers(self) -> int:
        return len({id(layer) for chunk in self._chunks.values() for layer in chunk.layers})

    def feed(self, batches: Mapping[int, MicroBatch]) -> None:
        """Set the micro-batches of the next run; their normaliser covers all passes."""
        self._batches = batches
        self.losses = {}

    def loss(self) -> float:
        """This rank's share of the mean loss over the global mini-batch.

        Raises:
            NonFiniteLoss: names the micro-batch.
        """
        total = 0.0
        for micro_batch, value in self.losses.items():
            loss = value.item()
            if loss - loss != 0.0:
                batch = self._batches[micro_batch]
                raise NonFiniteLoss(
                    f"loss {loss} in step {batch.step}, micro-batch {micro_batch} (global {batch.index})"
                )
            total += loss
        return total

    def _work(self, at: int, action: Action) -> Callable[[Any], None]:
        return {
            Kind.F: self._forward,
            Kind.B: self._backward,
            Kind.I: self._input,
            Kind.W: self._weight,
            Kind.R: self._recompute,
            Kind.SYNC: self._sync,
            Kind.TIE: self._sync,
            Kind.SCATTER: self._sync,
            Kind.GATHER: self._gather,
            Kind.STEP: self._step,
        }[action.kind]

    def _forward(self, argument: tuple[int, Action]) -> None:
        at, (_, micro_batch, stage, pipe) = argument
        chunk, batch = self._chunks[pipe, stage], self._batches[micro_batch]
        x = None
        if stage:
            x = self._held.pop((Item.INPUT, micro_batch, stage, pipe)).detach().requires_grad_()
        forgets = (micro_batch, stage) in self.plan.recomputed
        begun = self.clock.begin(at)
        with torch.set_grad_enabled(not forgets):
            y = chunk.forward(x, batch)
        self.spans[at] = self.clock.end(begun)
        if forgets:
            self._inputs[micro_batch, stage] = x
        else:
            self.stash.put((micro_batch, stage, pipe), (x, get_gradient_edge(y)))
        if chunk.is_last:
            self.losses[micro_batch] = y.detach()
        else:
            self._held[Item.INPUT, micro_batch, stage + 1, pipe] = y.detach()

    def _recompute(self, argument: tuple[int, Action]) -> None:
        """The forward again, now keeping what the backward needs; its randomness is the same."""
        at, (_, micro_batch, stage, pipe) = argument
        x = self._inputs.pop((micro_batch, stage))
        begun = self.clock.begin(at)
        y = self._chunks[pipe, stage].forward(x, self._batches[micro_batch])
        self.spans[at] = self.clock.end(begun)
        self.stash.put((micro_batch, stage, pipe), (x, get_gradient_edge(y)))

    def _backward(self, argument: tuple[int, Action]) -> None:
        at, (_, micro_batch, stage, pipe) = argument
        x, edge = self._saved(micro_batch, stage, pipe)
        gradient = self._gradient(micro_batch, stage, pipe)
        begun = self.clock.begin(at)
        backward(edge, gradient)
        self.spans[at] = self.clock.end(begun)
        if x is not None:
            self._pass_on(x, micro_batch, stage, pipe)

    def _input(self, argument: tuple[int, Action]) -> None:
        at, (_, micro_batch, stage, pipe) = argument
        key = micro_batch, stage, pipe
        x, edge = self._saved(*key)
        gradient = self._gradient(*key)
        begun = self.clock.begin(at)
        deferred = backward_input(edge, gradient, x)
        self.spans[at] = self.clock.end(begun)
        self.stash.put(key, deferred)
        if x is not None:
            self._pass_on(x, *key)

    def _weight(self, argument: tuple[int, Action]) -> None:
        at, (_, micro_batch, stage, pipe) = argument
        deferred: DeferredWeights = self.stash.take((micro_batch, stage, pipe))
        begun = self.clock.begin(at)
        deferred.run()
        self.spans[at] = self.clock.end(begun)

    def _saved(self, micro_batch: int, stage: int, pipe: int) -> tuple[Tensor | None, GradientEdge]:
        saved: tuple[Tensor | None, GradientEdge] = self.stash.take((micro_batch, stage, pipe))
        return saved

    def _gradient(self, micro_batch: int, stage: int, pipe: int) -> Tensor:
        if stage == self.plan.stages - 1:
            return self._one
        return self._held.pop((Item.GRAD, micro_batch, stage, pipe))

    def _pass_on(self, x: Tensor, micro_batch: int, stage: int, pipe: int) -> None:
        assert x.grad is not None
        self._held[Item.GRAD, micro_batch, stage - 1, pipe] = x.grad
        x.grad = None

    def _sync(self, argument: tuple[int, Action]) -> None:
        at, _ = argument
        group = self._issues.get(at)
        if group is not None:
            self.clock.issue(group, self._links.among(self.plan.groups[group]))
            self._gradients.issue(group)

    def _gather(self, argument: tuple[int, Action]) -> None:
        """Bring stepped weights together; virtual clocks work out afterwards when that was."""
        group = self._issues.get(argument[0])
        if group is not None:
            self._gradients.issue(group)

    def _step(self, argument: tuple[int, Action]) -> None:
        at, _ = argument
        self._release(list(self._sent))
        self._gradients.wait()
        begun = self.clock.begin(at)
        self._gradients.step()
        self.spans[at] = self.clock.end(begun)


class Emulator(Interpreter):
    """Sleeps instead of computing; messages consist of their header, and the stash of names."""

    def __init__(
        self,
        plan: Plan,
        nominal: Nominal,
        clock: DeadlineClock,
        layers: Mapping[int, int],
        **settings: Any,
    ) -> None:
        self._seconds = {Kind.F: nominal.forward, Kind.STEP: nominal.step}
        for kind in (Kind.B, Kind.I, Kind.W):
            self._seconds[kind] = nominal.backward * WORTH[kind] / WORTH[Kind.B]
        self._seconds[Kind.R] = nominal.forward * WORTH[Kind.R] / WORTH[Kind.F]
        self._deadline = clock
        self._issues = plan.issues
        self._nothing = torch.empty(0, dtype=torch.float64)
        self._layers = layers
        self._stages: set[int] = set()
        super().__init__(plan, clock=clock, layers=layers, **settings)

    @property
    def weight_layers(self) -> int:
        """Of the stages whose forwards it was asked for: it has no weights."""
        return sum(self._layers[stage] for stage in self._stages)

    def _work(self, at: int, action: Action) -> Callable[[Any], None]:
        if action.kind in COLLECTIVES:
            return self._sync
        return self._finish if action.kind is Kind.STEP else self._sleep

    def _sleep(self, argument: tuple[int, Action]) -> None:
        at, (kind, micro_batch, stage, pipe) = argument
        effect = EFFECTS[kind]
        for item, shift in effect.reads:
            self._held.pop((item, micro_batch, stage + shift, pipe), None)
        self.spans[at] = self._deadline.spend(self._seconds[kind])
        self._stages.add(stage)
        change = keeps(kind, recomputed=(micro_batch, stage) in self.plan.recomputed)
        if change > 0:
            self.stash.put((micro_batch, stage, pipe))
        elif change < 0:
            self.stash.take((micro_batch, stage, pipe))
        for item, shift in effect.makes:
            if item in (Item.INPUT, Item.GRAD) and 0 <= stage + shift < self.plan.stages:
                self._held[item, micro_batch, stage + shift, pipe] = self._nothing

    def _sync(self, argument: tuple[int, Action]) -> None:
        group = self._issues.get(argument[0])
        if group is not None and group[0] is not Kind.GATHER:
            self._deadline.issue(group, self._links.among(self.plan.groups[group]))

    def _finish(self, argument: tuple[int, Action]) -> None:
        at, _ = argument
        self._release(list(self._sent))
        # How late the row is, before ranks talk about it; the step itself follows the all-reduces.
        start, _ = self._deadline.spend(0.0)
        self.spans[at] = start, start + self._seconds[Kind.STEP]
