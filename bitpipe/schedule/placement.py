"""Placements: which device of a pipeline group holds which stage of which pipe.

A placement is routes, nothing else: a micro-batch of pipe p passes ``routes[p]``, device by device.
The names are constructors. Any number of pipes is possible; ``.mirrored()`` adds to each its mirror
image, which runs on the same devices in the opposite direction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from bitpipe.errors import InputError

Routes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Stages 0 … S−1 of every pipe on devices 0 … D−1.

    Attributes:
        name: of the constructor, or ``own`` where it was read off a user's schedule.
        depth: D.
        routes: ``routes[pipe][stage]`` is the device.

    Raises:
        InputError: no device, no stage, or a device that does not exist.
    """

    name: str
    depth: int
    routes: Routes

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise InputError("depth", self.depth, "a pipeline needs at least one device")
        if not self.routes or not self.stages or any(len(route) != self.stages for route in self.routes):
            raise InputError("routes", self.routes, "at least one pipe, each with the same number of stages")
        if self.stages % self.depth:
            down = self.stages // self.depth * self.depth
            raise InputError(
                "stages",
                self.stages,
                f"expected a multiple of the {self.depth} devices (rows)",
                f"nearest: {down or self.depth} and {down + self.depth}",
            )
        if any(not 0 <= device < self.depth for route in self.routes for device in route):
            raise InputError("routes", self.routes, f"devices are numbered from 0 to {self.depth - 1}")

    @property
    def stages(self) -> int:
        return len(self.routes[0])

    @property
    def chunks(self) -> int:
        """v: a stage is 1/v of 1/D of the model."""
        return self.stages // self.depth

    @property
    def pipes(self) -> range:
        return range(len(self.routes))

    @property
    def bidirectional(self) -> bool:
        """Whether more than one pipe runs on the devices."""
        return len(self.routes) > 1

    def device(self, pipe: int, stage: int) -> int:
        """The device that holds ``stage`` of ``pipe``."""
        return self.routes[pipe][stage]

    @cached_property
    def held(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Per device, every (pipe, stage) that it holds, pipe by pipe, by stage."""
        held: list[list[tuple[int, int]]] = [[] for _ in range(self.depth)]
        for pipe, route in enumerate(self.routes):
            for stage, device in enumerate(route):
                held[device].append((pipe, stage))
        return tuple(tuple(chunks) for chunks in held)

    def replicas(self, *stages: int) -> tuple[int, ...]:
        """The devices that hold one of these stages in any pipe, in ascending order.

        Whoever shares weights is a replica: gradient groups, the tied embedding's group (first and
        last stage), rank layouts and drawings all follow from this.
        """
        return tuple(sorted({route[stage] for route in self.routes for stage in stages}))

    def mirrored(self) -> Placement:
        """With the mirror image of every pipe: device d becomes D−1−d."""
        mirror = tuple(tuple(self.depth - 1 - device for device in route) for route in self.routes)
        return replace(self, routes=self.routes + mirror)


def sequential(depth: int, chunks: int = 1) -> Placement:
    """Stage s on device s.

    Raises:
        InputError: more than one chunk.
    """
    if chunks != 1:
        raise InputError("chunks", chunks, "the sequential placement has one chunk per direction")
    return Placement(name="sequential", depth=depth, routes=(tuple(range(depth)),))


def cyclic(depth: int, chunks: int = 1) -> Placement:
    """Every round of D stages starts at device 0 again."""
    return _wound("cyclic", depth, chunks, lambda _: False)


def vee(depth: int, chunks: int = 1) -> Placement:
    """Every other round comes back the way it went, so that a turn stays on one device (section 1.2)."""
    return _wound("v", depth, chunks, lambda round_: round_ % 2 == 1)


def ring(depth: int, chunks: int = 1) -> Placement:
    """D pipes, each with all its stages on one device: weights travel, activations stay."""
    routes = tuple((device,) * (depth * chunks) for device in range(depth))
    return Placement(name="ring", depth=depth, routes=routes)


def _wound(name: str, depth: int, chunks: int, back: Callable[[int], bool]) -> Placement:
    if chunks < 1:
        raise InputError("chunks", chunks, "a device needs at least one chunk per direction")
    down = range(depth)
    route = [device for round_ in range(chunks) for device in (reversed(down) if back(round_) else down)]
    return Placement(name=name, depth=depth, routes=(tuple(route),))


PLACEMENTS: Mapping[str, Callable[[int, int], Placement]] = MappingProxyType(
    {"sequential": sequential, "cyclic": cyclic, "v": vee}
)
"""What a configuration may name."""


def placement_from_routes(routes: Routes, depth: int) -> Placement:
    """The placement with these routes, under its usual name if it has one.

    Raises:
        InputError: the routes are none.
    """
    found = Placement(name="own", depth=depth, routes=routes)
    for make in (*PLACEMENTS.values(), ring):
        if make is sequential and found.chunks != 1:
            continue
        plain = make(depth, found.chunks)
        for placement in (plain, plain.mirrored()):
            if placement.routes == routes:
                return placement
    return found
