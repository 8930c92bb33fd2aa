"""What the launcher does with a sweep: check, submit, follow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bitpipe.errors import InputError
from bitpipe.words import counted, part
from experiments.composing.sweep import Sweep
from experiments.records.manifest import write_manifest
from experiments.records.revision import revision_of
from experiments.running.block import Block
from experiments.running.dry_run import describe
from experiments.running.execute import record_refusals
from experiments.running.local import say
from experiments.running.outcome import report
from experiments.running.skip import pending
from slurm import client, own_schedules, plan, site, snapshot, submit
from slurm.folder import SweepFolder
from slurm.in_flight import alone, in_flight, without
from slurm.watch import follow

SLURM_DEFAULT_MAX_ARRAY_SIZE = 1001


def launch(sweep: Sweep, options: submit.Options) -> None:
    """Submit a sweep's unfinished cells and, unless told otherwise, follow them to the end.

    Raises:
        InputError: something can be known to be wrong; nothing, or what is listed, was submitted.
        SweepFailed: at the end, if a cell failed.
        KeyboardInterrupt: Ctrl-C while following; the jobs keep running, and that was said.
    """
    where, file = site.load(options.site)
    if sweep.dry_run:
        print(describe(sweep))
        print(describe_arrays(sweep, where, options))
        return
    client.max_array_size()  # no Slurm, no answer: said before anything else
    results = sweep.settings.results
    with alone(results, say):
        blocks = pending(sweep, say)
        flights = in_flight(results, blocks)
        for flight in flights:
            jobs = ", ".join(dict.fromkeys(flight.jobs.values()))
            few = part(len(flight.jobs), len(sweep.cells), "cell")
            say(f"{few} on the way and not submitted again: {flight.folder.name}, job {jobs}")
        left = without(blocks, flights)
        folder = _submit(sweep, left, where, file, options) if left else None
        if folder is None:
            write_manifest(sweep)
            record_refusals(sweep)
    following = [(flight.folder, set(flight.jobs)) for flight in flights]
    if folder:
        following.insert(0, (folder, {cell.id for block in left for cell in block.cells}))
    if not options.wait:
        for one, _ in following:
            say(f"follow with: python -m slurm status {one.arguments}; {bring_home(one)}")
        return
    made: dict[str, int | str] = {}
    for one, cells in following:
        try:
            states = follow(one, say, cells=cells)
        except KeyboardInterrupt:
            say(f"stopped waiting; {still_running(one)}")
            raise
        made |= {state.cell: state.attempt or f"{state.state}: {state.note}" for state in states}
    report(sweep, made)


def _submit(
    sweep: Sweep, blocks: Sequence[Block], where: site.Site, file: Path | None, options: submit.Options
) -> SweepFolder:
    """Check and submit; the sweep's folder.

    Raises:
        InputError: something can be known to be wrong; nothing, or what is listed, was submitted.
        NotWritten: results cannot be written to.
        KeyboardInterrupt: Ctrl-C; what was submitted keeps running, and that was said.
    """
    wanted = submit.planned(blocks, where, options, max_array_size=client.max_array_size())
    revision = revision_of()
    snapshot.require_clean(revision, allow_dirty=options.allow_dirty)
    submit.check(wanted, where)
    folder = SweepFolder.create(sweep.settings.results, sweep.experiment, sweep.stamp)
    snapshot.take(folder.code)
    own_schedules.take_along(folder.code, blocks)
    folder.describe(wanted.blocks, submit.facts(where, file, revision, sweep.experiment, options))
    write_manifest(sweep)
    record_refusals(sweep)
    try:
        submit.submit(folder, wanted, where, say)
    except KeyboardInterrupt:
        say(f"interrupted while submitting; {still_running(folder)}")
        raise
    cells = counted(sum(len(block.cells) for block in blocks), "cell")
    say(f"{cells} in {counted(len(wanted.blocks), 'job')}, at most {wanted.cost}: {folder.name}")
    return folder


def bring_home(folder: SweepFolder) -> str:
    return f"bring home with: python -m slurm collect {folder.arguments}"


def still_running(folder: SweepFolder) -> str:
    """What to tell someone who walks away."""
    name = folder.arguments
    return (
        f"the jobs keep running. See: python -m slurm status {name}; "
        f"python -m slurm collect {name}; end them: python -m slurm cancel {name}"
    )


def describe_arrays(sweep: Sweep, where: site.Site, options: submit.Options) -> str:
    """Arrays, GPU-hours and the sbatch text of each; asks Slurm for its limit where there is one."""
    left = pending(sweep, lambda line: None)  # the description has said what is finished
    try:
        limit = client.max_array_size()
        source = "this cluster's MaxArraySize"
        left = without(left, in_flight(sweep.settings.results, left))
    except InputError:
        limit, source = SLURM_DEFAULT_MAX_ARRAY_SIZE, "Slurm's default MaxArraySize; no Slurm here"
    wanted = submit.planned(left, where, options, max_array_size=limit)
    total = f"at most {wanted.cost}"
    if sweep.repeats > 1:
        total += f" for {sweep.repeats} repeats"
    lines = [
        f"{counted(len(wanted.every), 'array')}, {counted(len(wanted.blocks), 'job')}, {total} "
        f"(arrays up to {limit}: {source})"
    ]
    for array in wanted.every:
        kind = "canary" if array in wanted.canaries else "array"
        lines.append(f"  {kind}: {len(array.members)} x ({array.request}), {array.cost}")
    for array in wanted.every:
        lines += ["", text_of(array, wanted, where)]
    return "\n".join(lines)


def text_of(array: plan.Array, wanted: submit.Planned, where: site.Site) -> str:
    """An array's sbatch text with placeholders for what is known only at submission."""
    gated = array in wanted.arrays and any(
        (c.request.nodes, c.request.tasks_per_node) == (array.request.nodes, array.request.tasks_per_node)
        for c in wanted.canaries
    )
    name = wanted.blocks[array.members[0]].experiment
    values = submit.values_of(array, where, name, Path("/SWEEP/code"), "CANARY" if gated else None)
    return plan.render(values, count=len(array.members), folder=Path("/SWEEP/jobs"), python="exec python")
