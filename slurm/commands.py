"""The command line of this package: one function per command."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bitpipe.errors import InputError
from experiments.records.store import NotWritten

EXAMPLES = """\
SWEEP is an experiment (its newest sweep), a stamp, or experiment/stamp; left out, the newest of all.

  python -m slurm status                      the newest sweep
  python -m slurm status -f                   … as a live table
  python -m slurm logs 3f2a                   a cell's log, by the start of its id
  python -m slurm requeue --only failed,oom   submit those cells again
"""


PATIENCE_S = 60.0
"""How long a command about a sweep asks again where Slurm does not answer."""


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit status: 0, 1 something failed, 2 bad input, 130 Ctrl-C."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    from slurm import client

    try:
        with client.patient(PATIENCE_S if "sweep" in options else 0.0, _warn):
            return run(options)
    except (InputError, NotWritten) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _warn(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m slurm",
        description="Sweeps on Slurm: look at them, end them, bring results home, run parts again.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for add in (_add_status, _add_logs, _add_cancel, _add_collect, _add_requeue):
        add(commands)
    for add in (_add_cluster, _add_init, _add_doctor, _add_testcluster):
        add(commands)
    return parser


Commands = argparse._SubParsersAction  # the type of what add_subparsers returns has no public name


def _of_sweep(
    commands: Commands[argparse.ArgumentParser],
    name: str,
    help: str,
    run: Callable[[argparse.Namespace], int],
    *,
    several: bool = False,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=help)
    which = "which sweeps" if several else "which sweep"
    parser.add_argument("sweep", nargs="*" if several else "?", help=f"{which}; the newest by default")
    parser.add_argument("--results", type=Path, default=Path("results"), help="results folder")
    parser.set_defaults(run=run)
    return parser


# ---- status


def _add_status(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _of_sweep(commands, "status", "where every cell of a sweep stands", _status)
    parser.add_argument("-f", "--follow", action="store_true", help="live, until all is done")


def _status(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.live import Live

    from slurm.folder import find
    from slurm.settle import look
    from slurm.show import table

    folder = find(options.results, options.sweep)
    states = look(folder)
    if not options.follow:
        Console().print(table(folder, states))
        return 0
    with Live(table(folder, states), refresh_per_second=2) as live:
        while any(state.waiting for state in states):
            time.sleep(2)
            states = look(folder)
            live.update(table(folder, states))
    return 0


# ---- logs


def _add_logs(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("logs", help="the log of one cell")
    parser.add_argument("cell", help="start of a cell's id")
    parser.add_argument("sweep", nargs="?", help="which sweep; the newest by default")
    parser.add_argument("--rank", type=int, help="only this rank; all by default")
    parser.add_argument("-f", "--follow", action="store_true", help="until the cell has ended")
    parser.add_argument("--results", type=Path, default=Path("results"), help="results folder")
    parser.set_defaults(run=_logs)


def _logs(options: argparse.Namespace) -> int:
    from slurm.folder import find
    from slurm.show import print_logs

    return print_logs(find(options.results, options.sweep), options.cell, options.rank, options.follow)


# ---- cancel


def _add_cancel(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _of_sweep(commands, "cancel", "end a sweep's jobs, or those of one cell", _cancel)
    parser.add_argument("--cell", help="only the job of this cell (start of its id)")


def _cancel(options: argparse.Namespace) -> int:
    from bitpipe.words import counted
    from slurm import client
    from slurm import jobs as slurm_jobs
    from slurm.folder import find
    from slurm.show import one_cell

    folder = find(options.results, options.sweep)
    jobs = folder.jobs()
    if options.cell:
        cell = one_cell(folder, options.cell)
        jobs = [job for job in jobs if cell in job.cells]
    states = slurm_jobs.states(job.job for job in jobs)
    active = [id for id, state in states.items() if state.active]
    if active:
        # A whole array by its own number: one short command, however many members it has.
        whole = not options.cell
        client.call("scancel", *(sorted({id.split("_")[0] for id in active}) if whole else active))
    print(f"cancelled {len(active)} of {counted(len(jobs), 'job')} of {folder.name}")
    return 0


# ---- collect


def _add_collect(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _of_sweep(
        commands,
        "collect",
        "write missing records, say what is there and what is not",
        _collect,
        several=True,
    )
    parser.add_argument("--wait", action="store_true", help="until all is done")


def _collect(options: argparse.Namespace) -> int:
    from slurm.folder import SweepFolder, find
    from slurm.settle import Collector
    from slurm.show import report
    from slurm.watch import follow

    folders: list[SweepFolder] = []
    for name in options.sweep:
        try:
            folders.append(find(options.results, name))
        except InputError:
            if len(options.sweep) == 1:
                raise
            print(f"{name}: no sweep of its own; its cells were finished, or are another sweep's")
    worst = 0
    for folder in folders or [find(options.results, None)]:
        if options.wait:
            states = follow(folder, lambda line: print(line, flush=True))
        else:
            states = Collector(folder).to_the_end()
        worst = max(worst, report(folder, states))
    return worst


# ---- requeue


def _add_requeue(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _of_sweep(commands, "requeue", "submit cells again, with the sweep's own code", _requeue)
    parser.add_argument(
        "--only", default="failed,missing,timeout", metavar="STATES",
        help="failed, oom, timeout, invalid, cancelled, preempted, missing (no result: the last two, too); "
        "several with commas",
    )  # fmt: skip
    parser.add_argument("--site", help="site file; the sweep's by default")
    parser.add_argument("--minutes-per-cell", type=float, help="instead of the site's")
    parser.add_argument("--no-wait", action="store_true", help="return after submission")


def _requeue(options: argparse.Namespace) -> int:
    from slurm.folder import find
    from slurm.requeue import requeue

    return requeue(
        find(options.results, options.sweep),
        only=options.only,
        site_file=options.site,
        minutes_per_cell=options.minutes_per_cell,
        wait=not options.no_wait,
    )


# ---- preflight as a cluster file


def _add_cluster(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _of_sweep(commands, "cluster", "what preflight measured, as a cluster file", _cluster)
    parser.add_argument("--output", type=Path, required=True, help="conf/cluster/NAME.yaml")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")


def _cluster(options: argparse.Namespace) -> int:
    from slurm.folder import find
    from slurm.measured import write

    write(find(options.results, options.sweep), options.output, force=options.force)
    print(f"wrote {options.output}; simulate on it with: cluster={options.output.stem}")
    return 0


# ---- init, doctor


def _add_init(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("init", help="write a site file from what sinfo and scontrol say")
    parser.add_argument("--output", type=Path, help="where; site.yaml by default")
    parser.add_argument("--partition", help="instead of the default partition")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.set_defaults(run=_init)


def _init(options: argparse.Namespace) -> int:
    from slurm.site import DEFAULT
    from slurm.site_setup import write

    path = options.output or DEFAULT
    write(path, partition=options.partition, force=options.force)
    print(f"wrote {path}; look it over, then: python -m slurm doctor")
    return 0


def _add_doctor(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("doctor", help="check this cluster with a one-task and a two-node job")
    parser.add_argument("--site", help="site file")
    parser.add_argument("--results", type=Path, default=Path("results"), help="results folder")
    parser.add_argument("--timeout", type=float, default=300, help="seconds to wait for the jobs")
    parser.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from slurm.doctor import examine

    return examine(options.results.resolve(), options.site, timeout=options.timeout)


# ---- test cluster


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

    folder = options.folder or DEFAULT_FOLDER
    cluster = TestCluster(folder, nodes=options.nodes, accounting=not options.no_accounting)
    if options.action == "stop":
        print("stopped" if cluster.stop() else "was not running")
        return 0
    if options.action == "start":
        print("started" if cluster.start() else "already running")
    elif not cluster.running():
        print("not running")
        return 1
    else:
        print(cluster.client("sinfo", "-N", "-o", "%8N %10P %10T %20G %c").stdout, end="")
    print(f"use it with: export SLURM_CONF={cluster.configuration}")
    return 0
