"""Writes a site file from what the cluster says about itself."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from bitpipe.checkout import ROOT
from bitpipe.errors import InputError, choose
from slurm import client
from slurm.site import Site, load

EXAMPLE = ROOT / "site.example.yaml"
PAPER_GPUS = 8
"""Per node of the paper's cluster."""


def write(path: Path, *, partition: str | None = None, force: bool = False) -> Site:
    """Write ``path`` and read it back.

    Raises:
        InputError: no Slurm, no such partition, or the file is there already.
    """
    if path.exists() and not force:
        raise InputError("site", path, "is there already", "--force replaces it")
    offered = client.partitions()
    if partition:
        choose("partition", partition, offered)
    path.write_text(text(offered, partition, _account()))
    return load(path)[0]


def text(offered: dict[str, client.Partition], wanted: str | None, account: str | None) -> str:
    """The file's text: the example with what was found filled in. Pure but for reading the example.

    Raises:
        InputError: the cluster has no partition.
    """
    there = [p for p in offered.values() if p.nodes]
    if not there:
        raise InputError("slurm", "sinfo", "no partition with a node")
    ranked = sorted(
        there, key=lambda p: (p.name != wanted, not p.gpus_per_node, not p.default, -p.gpus_per_node)
    )
    best = ranked[0]
    found = {"partition": best.name}
    if account:
        found["account"] = account
    kind = best.gres.split(":")
    if kind[0] == "gpu" and len(kind) > 2 and not kind[1].isdigit():
        found["gpu_type"] = kind[1]
    if best.gpus_per_node and best.cpus_per_node:
        found["cpus_per_task"] = str(max(1, best.cpus_per_node // best.gpus_per_node))
    lines = []
    for line in EXAMPLE.read_text().splitlines():
        key = line.removeprefix("# ").partition(":")[0]
        lines.append(f"{key}: {_quoted(found.pop(key))}" if key in found else line)
    limit = f"{best.minutes} minutes" if best.minutes else "no time limit"
    head = [
        f"# Partition {best.name}: {best.nodes} nodes, {best.gpus_per_node} GPUs and "
        f"{best.cpus_per_node} cores each, {limit}.",
        f"# Others: {', '.join(p.name for p in ranked[1:]) or 'none'}.",
    ]
    if best.gpus_per_node not in (0, PAPER_GPUS):
        most = best.gpus_per_node
        head.append(
            f"# The paper's nodes have {PAPER_GPUS} GPUs, these {most}: cluster.devices_per_node={most}"
        )
    return "\n".join([*head, *lines]) + "\n"


def _quoted(value: str) -> str:
    """A value that every reader of YAML takes for this text."""
    plain = re.fullmatch(r"[A-Za-z0-9_][\w.-]*", value) and yaml.safe_load(value) == value
    return value if plain else "'" + value.replace("'", "''") + "'"


def _account() -> str | None:
    """The user's default account, where accounting knows one."""
    if not client.accounting():
        return None
    import getpass

    try:
        query = ("sacctmgr", "-n", "-P", "show", "user", getpass.getuser(), "format=DefaultAccount")
        return client.call(*query).strip() or None
    except InputError:
        return None
