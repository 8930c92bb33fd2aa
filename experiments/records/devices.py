"""Which devices a record was made on, and whether they are those that were asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from experiments.cell import Cell
from experiments.records.record import Record, Status

# What vendors add to a product's name: form factor and kind of memory, which not every name says.
_FORM = re.compile(r"(sxm\d?|pcie?|nvl\d*|hbm\d\w?|oam|gen\d)", re.IGNORECASE)
_SIZE = re.compile(r"(\d+)\s*gi?b\b", re.IGNORECASE)


def ran_on(provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the devices that the ranks of a measured record computed on; empty if it says none."""
    told = provenance.get("devices")
    return tuple(sorted({str(name) for name in told})) if isinstance(told, (list, tuple)) else ()


def computing_devices(provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """What computed: the ranks' devices, and the processor where that is what they were, or no rank was."""
    ran = tuple(name for name in ran_on(provenance) if name != "cpu")
    return ran or (str(provenance["hardware"].get("cpu", "unknown")),)


def same_device(ran: str, asked: str) -> bool:
    """Whether two names are of one product: ``NVIDIA A800-SXM4-80GB`` is an ``NVIDIA A800 80GB SXM``.

    Products are the words that hold a digit; memory and form factor must be equal where both say them.
    Where ``asked`` holds no such word (a cluster file of one's own), nothing can be compared, and any is.
    """
    (product, *details), (wanted, *others) = _parts(ran), _parts(asked)
    if not wanted:
        return True
    return product == wanted and all(not a or not b or a == b for a, b in zip(details, others, strict=True))


def _parts(name: str) -> tuple[frozenset[str], str, str]:
    """Product words, memory in GB and form factor of a device's name."""
    size = _SIZE.search(name)
    words = re.split(r"[\s,_/()-]+", _SIZE.sub(" ", name.lower()))
    products = frozenset(word for word in words if re.search(r"\d", word) and not _FORM.fullmatch(word))
    form = next((word.rstrip("0123456789") for word in words if word.startswith(("sxm", "pci", "nvl"))), "")
    return products, size[1] if size else "", form[:3]


def made_elsewhere(record: Record, cell: Cell) -> tuple[str, ...]:
    """The devices of a measured record of ``cell`` where they are not those that its cluster names."""
    if cell.backend != "cuda" or record.status is not Status.OK:
        return ()
    return tuple(
        name for name in ran_on(record.provenance) if not same_device(name, cell.cluster.device.name)
    )
