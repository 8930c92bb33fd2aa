"""The event engine: when every action of a program happens on all W·D ranks.

It follows the rules written in :mod:`bitpipe.cluster.links`. Because P2P has priority over
all-reduces and only STEP waits for an all-reduce, an iteration falls into three parts that need
no event queue: compute and P2P of every replica (a Kahn network: rows that block only on
messages), the all-reduces of all ranks (the same, blocking on groups), and the optimizer step.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from bitpipe.cluster import LinkClass, Links
from bitpipe.errors import InputError
from bitpipe.origin import Origin
from bitpipe.schedule.action import COLLECTIVES, COMPUTE, Action, Kind
from bitpipe.schedule.costs import ActionCosts
from bitpipe.schedule.effects import COLLECTS, SENDS, WAITS, Item
from bitpipe.schedule.program import Program
from bitpipe.schedule.timeline import Event, Timeline

Span = tuple[float, float]

STEP = Action(Kind.STEP)
_ONCE = (Item.INPUT, Item.GRAD)
_CLASSES = tuple(LinkClass)


def simulate(
    program: Program,
    costs: ActionCosts,
    links: Links,
    *,
    iterations: int = 1,
    barrier: bool = True,
    alike: bool = False,
    unit: str = "s",
) -> Timeline:
    """Simulate ``links.layout.width`` replicas of ``program``.

    Args:
        program: what every pipeline group runs.
        costs: seconds of compute actions and STEP on every global rank, and bytes of the rest.
        links: transfer costs, and which global rank runs which device of which replica.
        iterations: how many follow one another; the last one is told.
        barrier: whether an iteration begins everywhere once the last STEP before it has ended, else
            on every rank after its own.
        alike: promise that costs do not depend on the replica; replicas that also have
            the same links are then worked out once.
        unit: the unit of ``costs`` and of the timeline.

    Returns:
        Compute and STEP events, SEND events from issue to arrival, SYNC and TIE events of every
        member from issue to end. ``device`` is the global rank.

    Raises:
        InputError: the program deadlocks, or its depth is not the layout's.
    """
    return trace(
        program, costs, links, iterations=iterations, barrier=barrier, alike=alike, unit=unit
    ).timeline


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One all-reduce: which, among whom, from when to when."""

    action: Action
    members: tuple[int, ...]
    start: float
    end: float
    link: LinkClass
    size: float


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What the engine found; :attr:`timeline` lays it out, which costs more than finding it.

    Attributes:
        program: what was simulated.
        links: between whom.
        spans: ``spans[replica][device][i]`` is (start, end) of the device's i-th instruction;
            a SEND ends at arrival, a SYNC or TIE is only issued. Replicas that are alike share
            one table.
        collectives: every all-reduce.
        steps: ``steps[rank]`` is (start, end) of the optimizer step (empty if it has none).
        ends: when every iteration's last rank had finished its step; the other attributes tell
            of the last iteration.
        unit: of all times.
    """

    program: Program
    links: Links
    spans: tuple[tuple[tuple[Span, ...], ...], ...] = field(repr=False)
    collectives: tuple[Collective, ...]
    steps: tuple[Span, ...]
    ends: tuple[float, ...]
    unit: str

    @property
    def makespan(self) -> float:
        """When the last rank has finished its step."""
        return self.ends[-1]

    @property
    def period(self) -> float:
        """Time from the end of the last iteration but one (or from 0) to the end of the last."""
        return self.ends[-1] - (self.ends[-2] if len(self.ends) > 1 else 0.0)

    @cached_property
    def timeline(self) -> Timeline:
        """All events of all ranks."""
        ends = {(c.action.kind, c.action.stage): c.end for c in self.collectives}
        events: list[Event] = []
        for rank, (replica, device) in enumerate(self.links.layout.places):
            for instruction, (start, end) in zip(
                self.program.rows[device], self.spans[replica][device], strict=True
            ):
                action = instruction.action
                if action.is_compute or action.kind in SENDS:
                    events.append(Event(rank, action, start, end))
                elif action.kind in COLLECTIVES:
                    issued = self.steps[rank][1] if action.kind is Kind.GATHER else start
                    events.append(Event(rank, action, issued, ends[action.kind, action.stage]))
                elif action.kind is Kind.STEP:
                    events.append(Event(rank, action, *self.steps[rank]))
        return Timeline(
            devices=self.links.layout.size, events=tuple(events), unit=self.unit, origin=Origin.SIMULATED
        )


def trace(
    program: Program,
    costs: ActionCosts,
    links: Links,
    *,
    iterations: int = 1,
    barrier: bool = True,
    alike: bool = False,
    unit: str = "s",
) -> Trace:
    """As :func:`simulate`, without laying out the timeline."""
    layout = links.layout
    if layout.depth != program.schedule.depth:
        raise InputError("layout.depth", layout.depth, f"the program has {program.schedule.depth} devices")
    if iterations < 1:
        raise InputError("iterations", iterations, "at least one", "nearest: 1")
    wiring = _Wiring(program)
    ends: list[float] = []
    begin = [0.0] * layout.size  # of the next iteration, per global rank
    free = [0.0] * layout.size  # of all-reduces
    ports = [(0.0,) * len(_CLASSES)] * layout.size
    for _ in range(iterations):
        known: dict[Hashable, _Replica] = {}
        replicas: list[_Replica] = []
        for replica in range(layout.width):
            ranks = [layout.rank(replica, device) for device in range(layout.depth)]
            classes = {(a, b): _CLASSES.index(links.between(ranks[a], ranks[b])) for a, b in wiring.pairs}
            state = tuple((begin[rank], ports[rank]) for rank in ranks)
            key: Hashable = (tuple(classes.values()), state) if alike else replica
            if key not in known:
                known[key] = _run_replica(wiring, ranks, state, classes, costs, links)
            replicas.append(known[key])
        before = [replicas[replica].issues[device] for replica, device in layout.places]
        collectives = _collect(links, costs, program.groups, before, free)
        steps = []
        for rank, (replica, device) in enumerate(layout.places):
            done, ports[rank] = replicas[replica].finish[device]
            if device in wiring.stepping:
                start = max(done, free[rank])
                steps.append((start, start + costs.seconds(rank, STEP)))
            else:
                steps.append((done, done))
        after = [
            [(action, end, ports[rank]) for action in wiring.gathers[device]]
            for rank, ((_, end), (_, device)) in enumerate(zip(steps, layout.places, strict=True))
        ]
        collectives += _collect(links, costs, program.groups, after, free)
        done_ = [max(end, free[rank]) for rank, (_, end) in enumerate(steps)]
        ends.append(max(done_))
        begin = [ends[-1] if barrier else end for end in done_]
    return Trace(
        program=program,
        links=links,
        spans=tuple(replica.spans for replica in replicas),
        collectives=tuple(collectives),
        steps=tuple(steps),
        ends=tuple(ends),
        unit=unit,
    )


_COMPUTE, _SEND, _WAIT, _ISSUE, _NOTHING = range(5)
_COMPUTED, _ISSUED, _IGNORED = (_COMPUTE, -1), (_ISSUE, -1), (_NOTHING, -1)


class _Wiring:
    """A program with its messages and groups numbered, so that the inner loop is arithmetic.

    ``rows[device]`` is (what, message number of a SEND or WAIT) per instruction. Kinds are told
    apart by identity and messages by integers: hashing an enum costs more than all the rest.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.targets: dict[int, tuple[int, int]] = {}  # message → (source device, target device)
        self.rows: list[list[tuple[int, int]]] = []
        self.gathers: list[list[Action]] = [[] for _ in program.rows]  # of weights, after the step
        self.stepping: set[int] = set()
        stages, targets = program.schedule.placement.stages, self.targets
        chunks = program.schedule.micro_batches * stages
        further = _Further(len(_ONCE) * chunks)
        for device, row in enumerate(program.rows):
            wired: list[tuple[int, int]] = []
            for (kind, micro_batch, stage, pipe), peer, *_ in row:
                if kind in COMPUTE:
                    wired.append(_COMPUTED)
                elif kind in WAITS:
                    message = WAITS[kind] * chunks + micro_batch * stages + stage
                    if WAITS[kind] not in _ONCE:
                        message = further.number(message, peer, device, sends=False)
                    wired.append((_WAIT, message))
                elif kind in SENDS:
                    message = SENDS[kind] * chunks + micro_batch * stages + stage
                    if SENDS[kind] not in _ONCE:
                        message = further.number(message, device, peer, sends=True)
                    targets[message] = (device, peer)
                    wired.append((_SEND, message))
                elif kind in COLLECTIVES:
                    if kind is Kind.GATHER:
                        self.gathers[device].append(Action(kind, micro_batch, stage, pipe))
                    wired.append(_IGNORED if kind is Kind.GATHER else _ISSUED)
                else:
                    if kind is Kind.STEP:
                        self.stepping.add(device)
                    wired.append(_IGNORED)
            self.rows.append(wired)
        self.messages = further.end
        self.pairs = sorted(set(targets.values()))


class _Further:
    """Numbers for messages of items that may travel more than once: the k-th sent is the k-th waited for."""

    def __init__(self, begin: int) -> None:
        self.end = begin
        self._numbers: dict[tuple[int, ...], int] = {}
        self._turns: Counter[tuple[int, ...]] = Counter()

    def number(self, item: int, source: int, target: int, *, sends: bool) -> int:
        turn = item, source, target, sends
        self._turns[turn] += 1
        key = item, source, target, self._turns[turn]
        if key not in self._numbers:
            self._numbers[key] = self.end
            self.end += 1
        return self._numbers[key]


@dataclass(frozen=True, kw_only=True)
class _Replica:
    """Compute and P2P of one replica.

    ``finish[device]`` is when the device is done and when its port is free, per link class;
    ``issues[device]`` lists (instruction, time, port free per link class) of SYNC and TIE.
    """

    spans: tuple[tuple[Span, ...], ...]
    finish: tuple[tuple[float, tuple[float, ...]], ...]
    issues: tuple[tuple[tuple[Action, float, tuple[float, ...]], ...], ...]


def _run_replica(
    wiring: _Wiring,
    ranks: Sequence[int],
    state: Sequence[tuple[float, tuple[float, ...]]],
    classes: Mapping[tuple[int, int], int],
    costs: ActionCosts,
    links: Links,
) -> _Replica:
    """From the ``state`` of every device: when it is free, and its port per link class."""
    program, depth = wiring.program, len(ranks)
    seconds, sizes = costs.seconds, costs.size
    latencies = [links.latency(link) for link in _CLASSES]
    ports = [list(port) for _, port in state]
    spans: list[list[Span]] = [[] for _ in ranks]
    issues: list[list[tuple[Action, float, tuple[float, ...]]]] = [[] for _ in ranks]
    clock = [begin for begin, _ in state]
    arrival: list[float | None] = [None] * wiring.messages
    blocked: dict[int, int] = {}
    ready = deque(range(depth))
    while ready:
        device = ready.popleft()
        now, done = clock[device], spans[device]
        row, wired, rank, port = program.rows[device], wiring.rows[device], ranks[device], ports[device]
        for index in range(len(done), len(wired)):
            what, message = wired[index]
            if what == _COMPUTE:
                start = now
                now += seconds(rank, row[index].action)
                done.append((start, now))
            elif what == _WAIT:
                arrived = arrival[message]
                if arrived is None:
                    blocked[message] = device
                    break
                now = max(now, arrived)
                done.append((now, now))
            elif what == _SEND:
                link = classes[wiring.targets[message]]
                port[link] = max(now, port[link]) + links.occupancy(_CLASSES[link], sizes(row[index].action))
                arrival[message] = arrived = port[link] + latencies[link]
                done.append((now, arrived))
                if message in blocked:
                    ready.append(blocked.pop(message))
            else:
                if what == _ISSUE:
                    issues[device].append((row[index].action, now, tuple(port)))
                done.append((now, now))
        clock[device] = now
    if blocked:
        message, device = next(iter(blocked.items()))
        action = program.rows[device][len(spans[device])].action
        raise InputError("program", action, f"deadlock: device {device} waits for it for ever")
    return _Replica(
        spans=tuple(tuple(done) for done in spans),
        finish=tuple((now, tuple(port)) for now, port in zip(clock, ports, strict=True)),
        issues=tuple(tuple(row) for row in issues),
    )


Issue = tuple[Action, float, tuple[float, ...]]
"""A collective that a rank starts, when, and when its port is free per link class."""


def _collect(
    links: Links,
    costs: ActionCosts,
    devices: Mapping[tuple[Kind, int], tuple[int, ...]],
    issues: Sequence[Sequence[Issue]],
    free: list[float],
) -> list[Collective]:
    """Run every rank's collectives in its program order; each waits for all its members.

    ``free[rank]``, the end of the rank's last one, is kept up to date.
    """
    layout = links.layout
    missing = Counter((action.kind, action.stage) for row in issues for action, *_ in row)
    groups = {
        key: tuple(sorted(layout.rank(w, device) for device in devices[key] for w in range(layout.width)))
        for key in missing
    }
    classes = {key: links.among(members) for key, members in groups.items()}
    queue = [0] * layout.size  # how many of its issues a rank has passed
    begin = dict.fromkeys(groups, 0.0)
    ready = deque(range(layout.size))
    waiting: dict[int, tuple[Kind, int]] = {}
    done: list[Collective] = []
    while ready:
        rank = ready.popleft()
        while queue[rank] < len(issues[rank]):
            action, issued, port = issues[rank][queue[rank]]
            queue[rank] += 1
            key = (action.kind, action.stage)
            link = classes[key]
            begin[key] = max(begin[key], issued, free[rank], port[_CLASSES.index(link)])
            missing[key] -= 1
            if missing[key] == 0:
                members = groups[key]
                size = costs.size(action)
                end = begin[key] + links.collective(COLLECTS[action.kind].op, members, size)
                done.append(
                    Collective(
                        action=action, members=members, start=begin[key], end=end, link=link, size=size
                    )
                )
                for member in members:
                    free[member] = end
                    if waiting.pop(member, None) is not None:
                        ready.append(member)
            elif not _issues_again(issues[rank], queue[rank], key):
                waiting[rank] = key
                break
    if waiting:
        rank, (kind, stage) = next(iter(waiting.items()))
        raise InputError("program", f"{kind.value}@{stage}", f"deadlock: rank {rank} waits for its group")
    return done


def _issues_again(issues: Sequence[Issue], position: int, key: tuple[Kind, int]) -> bool:
    """Whether a rank that holds a stage in both pipes has still to issue its other part."""
    return any((action.kind, action.stage) == key for action, _, _ in issues[position:])
