"""Which network interface gloo is to use, where a machine's own name does not say so."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping

VARIABLE = "GLOO_SOCKET_IFNAME"


def choose_interface(peer: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set gloo's interface to the one on the way to ``peer``, unless it is set or not needed.

    Gloo listens at the address that the host's name has. On Debian that is 127.0.1.1 and on some
    machines nothing at all; other machines then cannot connect, and wait until their limits pass.

    Args:
        peer: name or address of a machine of the group, as rank 0's.
    """
    if environment.get(VARIABLE) or not _local_only(socket.gethostname()):
        return
    name = interface_of(_way_to(peer), _interfaces())
    if name is not None:
        environment[VARIABLE] = name


def interface_of(address: str | None, interfaces: Mapping[str, list[str]]) -> str | None:
    """The interface with ``address``; if that is a loopback or unknown, the first that is none."""
    for name, addresses in interfaces.items():
        if address is not None and not address.startswith("127.") and address in addresses:
            return name
    outward = (name for name, found in interfaces.items() if any(not a.startswith("127.") for a in found))
    return next(outward, next(iter(interfaces), None))


def _local_only(host: str) -> bool:
    """Whether a name has no address, or only one that other machines cannot reach."""
    try:
        return socket.gethostbyname(host).startswith("127.")
    except OSError:
        return True


def _way_to(peer: str) -> str | None:
    """This machine's address on the way to ``peer``; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((peer, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _interfaces() -> dict[str, list[str]]:
    import psutil

    return {
        name: found
        for name, addresses in psutil.net_if_addrs().items()
        if (found := [a.address for a in addresses if a.family == socket.AF_INET])
    }
