"""The command line of this package: one function per command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bitpipe.errors import InputError


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m slurm", description="Sweeps on Slurm.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for add in (_add_testcluster,):
        add(commands)
    options = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2


Commands = argparse._SubParsersAction  # the type of what add_subparsers returns has no public name


def _add_testcluster(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("testcluster", help="a real Slurm on this machine: 4 nodes of 8 fake GPUs")
    parser.add_argument("action", choices=["start", "stop", "status"])
    parser.add_argument("--folder", type=Path, help="state, logs and configuration")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--no-accounting", action="store_true", help="without database and sacct")
    parser.set_defaults(run=_testcluster)


def _testcluster(options: argparse.Namespace) -> int:
    from slurm.testcluster import TestCluster
    from slurm.testcluster.cluster import DEFAULT_FOLDER

    cluster = TestCluster(
        options.folder or DEFAULT_FOLDER, nodes=options.nodes, accounting=not options.no_accounting
    )
    if options.action == "stop":
        print("stopped" if cluster.stop() else "was not running")
        return 0
    if options.action == "start":
        print("started" if cluster.start() else "already running")
        print(f"use it with: export SLURM_CONF={cluster.configuration}")
        return 0
    if not cluster.running():
        print("not running")
        return 1
    print(cluster.client("sinfo", "-N", "-o", "%8N %10P %10T %20G %c").stdout, end="")
    print(f"use it with: export SLURM_CONF={cluster.configuration}")
    return 0
