"""Submits a planned sweep: snapshot, canaries, arrays; every id is on disk before the next sbatch."""

from __future__ import annotations

import getpass
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bitpipe.errors import InputError
from experiments.records.revision import Revision
from experiments.records.store import NotWritten, short
from experiments.running.block import Block
from slurm import client, job, plan
from slurm.environment import scrubbed_here
from slurm.folder import Submitted, SweepFolder
from slurm.site import Site


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a sweep is submitted; top-level keys of the configuration.

    Attributes:
        site: path of the site file; None is ``$BITPIPE_SITE``, then ``site.yaml``.
        wait: follow the jobs to their end; else return after submission.
        pack: a block is one job, so that its cells run on the same nodes and start up once.
        canary: per shape, a short run of one cell that must pass before the rest starts;
            None does so for ``cuda``.
        preflight: look at every allocation before it is used; None does so for ``cuda``.
        max_gpu_hours: refuse a sweep whose time limits sum to more.
        allow_dirty: submit uncommitted code too.
    """

    site: str | None = None
    wait: bool = True
    pack: bool = True
    canary: bool | None = None
    preflight: bool | None = None
    max_gpu_hours: float | None = None
    allow_dirty: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Options:
        """From a composed configuration."""
        return cls(**{name: config[name] for name in cls.__dataclass_fields__ if name in config})


def arrange(blocks: Sequence[Block], options: Options) -> list[Block]:
    """Blocks as they become jobs: whole, or one cell each where packing is off."""
    arranged: list[Block] = []
    for block in blocks:
        arranged += [block] if options.pack else [replace(block, cells=(cell,)) for cell in block.cells]
    return arranged


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What would be submitted."""

    blocks: tuple[Block, ...]
    canaries: tuple[plan.Array, ...]
    arrays: tuple[plan.Array, ...]
    preflight: bool | None = None

    @property
    def every(self) -> tuple[plan.Array, ...]:
        return self.canaries + self.arrays

    @property
    def cost(self) -> str:
        """At most so much, for people."""
        return plan.cost(self.every)


def planned(blocks: Sequence[Block], site: Site, options: Options, *, max_array_size: int) -> Planned:
    """Arrange, request, group and split. Pure.

    Raises:
        InputError: the sweep may take more GPU-hours than allowed.
    """
    arranged = arrange(blocks, options)
    arrays = plan.arrays([plan.request(b, site) for b in arranged], max_array_size=max_array_size)
    canaries: dict[tuple[int, int], plan.Array] = {}
    for array in arrays:
        block = arranged[array.members[0]]
        wanted = block.backend == "cuda" if options.canary is None else options.canary
        if wanted:
            one = plan.request(job.canary_of(block), site)
            shape = (one.nodes, one.tasks_per_node)
            canaries.setdefault(shape, plan.Array(request=one, members=array.members[:1]))
    result = Planned(
        blocks=tuple(arranged),
        canaries=tuple(canaries.values()),
        arrays=tuple(arrays),
        preflight=options.preflight,
    )
    plan.check_budget(result.every, options.max_gpu_hours)
    return result


def check(wanted: Planned, site: Site) -> None:
    """Everything that the cluster can tell before it is given a job.

    Raises:
        InputError: no sbatch, no answer, or a request that it cannot meet.
    """
    offered = client.partitions()
    plan.fit(wanted.every, site, offered)
    for request in dict.fromkeys(array.request for array in wanted.every):
        one = plan.Array(request=request, members=(0,))
        values = plan.parameters(one, site, name="test", code=Path("/"))
        text = plan.render(values, count=1, folder=Path("/tmp"), python="true")
        try:
            client.call("sbatch", "--test-only", stdin=text)
        except client.NoAnswer:
            raise
        except InputError as error:
            # It looks at the nodes that are up; a real submission waits for the others.
            if plan.usable(site, offered) >= request.nodes or _NOT_NOW not in error.allowed:
                raise


_NOT_NOW = "allocation failure: Requested node configuration is not available"


def submit(
    folder: SweepFolder,
    wanted: Planned,
    site: Site,
    say: Callable[[str], None],
    *,
    numbers: Sequence[int] | None = None,
) -> list[Submitted]:
    """Submit all arrays, canaries first.

    Args:
        folder: where ids are noted.
        wanted: what to submit.
        site: the cluster's settings.
        say: told of every array.
        numbers: index of each block in the sweep; None if these are all of its blocks.

    Raises:
        InputError: Slurm refused one; the message says what is already submitted and how to
            cancel it.
    """
    done: list[Submitted] = []
    gates: dict[tuple[int, int], str] = {}
    for array, kind in [(a, "canary") for a in wanted.canaries] + [(a, "block") for a in wanted.arrays]:
        shape = (array.request.nodes, array.request.tasks_per_node)
        gate = gates.get(shape) if kind == "block" else None
        try:
            jobs = _submit_array(folder, wanted, array, kind, site, gate, numbers)
        except InputError as error:
            if not done:
                raise
            cancel = f"python -m slurm cancel {folder.arguments}"
            hint = f"{len(done)} jobs are already submitted; cancel them: {cancel}"
            raise InputError(error.key, error.value, error.allowed, hint) from error
        except NotWritten:
            if done:
                say(f"{len(done)} jobs are already submitted; see: python -m slurm status {folder.arguments}")
            raise
        if kind == "canary":
            gates[shape] = jobs[0].job
        done += jobs
        base = jobs[0].job.split("_")[0]
        after = f", after canary {gate}" if gate else ""
        say(f"submitted {kind} {base}: {len(jobs)} x ({array.request}){after}")
    return done


def _submit_array(
    folder: SweepFolder,
    wanted: Planned,
    array: plan.Array,
    kind: str,
    site: Site,
    gate: str | None,
    numbers: Sequence[int] | None,
) -> list[Submitted]:
    import submitit

    blocks = wanted.blocks
    python = plan.interpreter(site, sys.executable)
    executor = submitit.SlurmExecutor(folder=folder.jobs_folder, max_num_timeout=0, python=python)
    dependency = f"afterok:{gate}" if gate else None
    values = values_of(array, site, blocks[array.members[0]].experiment, folder.code, dependency)
    executor.update_parameters(**values)
    calls = []
    for member in array.members:
        block = blocks[member] if kind == "block" else job.canary_of(blocks[member])
        look = block.backend == "cuda" if wanted.preflight is None else wanted.preflight
        calls.append(
            job.Call(block=block, folder=folder.path, request=array.request, site=site, preflight=look)
        )
    with _undisturbed():
        with refusals(folder), scrubbed_here():
            jobs = executor.submit_array(calls)
        ids = [one.job_id for one in jobs]
        try:
            return _note(folder, array, kind, calls, ids, numbers)
        except NotWritten as error:  # nobody would know of them
            client.call("scancel", *sorted({id.split("_")[0] for id in ids}))
            raise NotWritten(error.path, f"{error.reason}; the jobs just submitted are cancelled") from error


def _note(
    folder: SweepFolder,
    array: plan.Array,
    kind: str,
    calls: Sequence[job.Call],
    ids: Sequence[str],
    numbers: Sequence[int] | None,
) -> list[Submitted]:
    """Put the jobs' ids on disk."""
    submitted = [
        Submitted(
            job=id,
            block=numbers[member] if numbers else member,
            kind=kind,
            cells=tuple(cell.id for cell in call.block.cells),
            request=array.request,
            submitted=time.time(),
        )
        for id, member, call in zip(ids, array.members, calls, strict=True)
    ]
    folder.append(submitted)
    return submitted


def values_of(
    array: plan.Array, site: Site, experiment: str, code: Path, dependency: str | None
) -> dict[str, Any]:
    """An array's settings as submitit takes them."""
    return plan.parameters(array, site, name=short(experiment, 40), code=code, dependency=dependency)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold Ctrl-C back until what was submitted is also written down."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def refusals(folder: SweepFolder) -> Iterator[None]:
    """Slurm's refusal, as submitit passes it on, in one line; and the file system's.

    Raises:
        InputError: instead of submitit's error.
        NotWritten: submitit cannot write its files.
    """
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        yield
    except (FailedJobError, FailedSubmissionError) as error:
        raise InputError("slurm", "sbatch", client.first_error(str(error))) from error
    except OSError as error:
        raise NotWritten(folder.jobs_folder, error.strerror or str(error)) from error


def facts(
    site: Site, site_file: Path | None, revision: Revision, experiment: str, options: Options
) -> dict[str, Any]:
    """What ``sweep.json`` says besides the cells. Values of the environment stay out."""
    shown = {**asdict(site), "environment": sorted(site.environment)}
    return {
        "experiment": experiment,
        "cluster": client.configuration().get("ClusterName"),
        "user": getpass.getuser(),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "revision": revision.revision,
        "dirty": revision.dirty,
        "site_file": str(site_file.resolve()) if site_file else None,
        "site": shown,
        "canary": options.canary,
        "preflight": options.preflight,
    }
