"""Clusters as data: devices, nodes and the links between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from bitpipe.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link or a collective path.

    Attributes:
        bandwidth: bytes per second in one direction; for all-reduce, bus bandwidth.
        latency: seconds.
    """

    bandwidth: float
    latency: float


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator.

    Attributes:
        name: as vendors call it.
        peak_flops: dense half-precision FLOP/s.
        memory_bytes: capacity.
        memory_bandwidth: bytes per second.
    """

    name: str
    peak_flops: float
    memory_bytes: float
    memory_bandwidth: float


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Equal nodes of equal devices.

    Attributes:
        name: the name of its file.
        nodes: how many.
        devices_per_node: how many on each.
        device: what they are.
        p2p_intra, p2p_inter: point to point inside a node, between nodes (per NIC).
        all_reduce_intra, all_reduce_inter: ring all-reduce inside a node, and across nodes where all
            devices of each take part; fewer are bound by their own NICs.
        nics_per_node: how many NICs the devices of a node share.
        sources: for every key above where its value comes from.
    """

    name: str
    nodes: int
    devices_per_node: int
    device: Device
    p2p_intra: Link
    p2p_inter: Link
    all_reduce_intra: Link
    all_reduce_inter: Link
    nics_per_node: int
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.nodes * self.devices_per_node

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Cluster:
        """Build a cluster from what a YAML file holds.

        Raises:
            InputError: a key is missing, unknown or not positive where it must be.
        """
        known = {f.name for f in fields(cls)}
        values = dict(data)
        for key in values:
            if key not in known:
                raise InputError(
                    f"cluster.{key}", values[key], f"allowed keys are {', '.join(sorted(known))}"
                )
        for key in known - set(values) - {"sources"}:
            raise InputError(f"cluster.{key}", "missing", "every cluster file must give it")
        values["device"] = _build(Device, "cluster.device", values["device"])
        for key in ("p2p_intra", "p2p_inter", "all_reduce_intra", "all_reduce_inter"):
            values[key] = _build(Link, f"cluster.{key}", values[key])
        for key in ("nodes", "devices_per_node", "nics_per_node"):
            if not isinstance(values[key], int) or values[key] < 1:
                raise InputError(f"cluster.{key}", values[key], "a whole number from 1")
        return cls(**values)


def _build(kind: type[Any], key: str, data: Any) -> Any:
    known = [f.name for f in fields(kind)]
    if not isinstance(data, Mapping) or set(data) != set(known):
        shown = dict(data) if isinstance(data, Mapping) else data
        raise InputError(key, shown, f"expected exactly the keys {', '.join(known)}")
    return kind(
        **{name: data[name] if name == "name" else _number(f"{key}.{name}", data[name]) for name in known}
    )


def _number(key: str, given: object) -> float:
    try:
        value = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InputError(key, given, "must be a number") from None
    if not math.isfinite(value):
        raise InputError(key, given, "must be finite")
    if value < 0 or (value == 0 and not key.endswith(".latency")):
        raise InputError(key, given, "must be positive")
    return value
