"""What the launcher does with a sweep: check, submit, follow."""

from __future__ import annotations

from pathlib import Path

from bitpipe.errors import InputError
from bitpipe.words import counted
from experiments.composing.sweep import Sweep
from experiments.records.manifest import write_manifest
from experiments.running.dry_run import describe
from experiments.running.execute import record_refusals
from experiments.running.local import say
from experiments.running.outcome import report
from experiments.running.skip import pending
from slurm import client, plan, site, snapshot, submit
from slurm.folder import SweepFolder
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
    limit = client.max_array_size()
    blocks = pending(sweep, say)
    if not blocks:
        write_manifest(sweep)
        record_refusals(sweep)
        report(sweep, {})
        return
    wanted = submit.planned(blocks, where, options, max_array_size=limit)
    revision = snapshot.revision()
    snapshot.require_clean(revision, allow_dirty=options.allow_dirty)
    submit.check(wanted, where)
    folder = SweepFolder.create(sweep.settings.results, sweep.experiment, sweep.stamp)
    snapshot.take(folder.code)
    folder.describe(wanted.blocks, submit.facts(where, file, revision, sweep.experiment, options))
    write_manifest(sweep)
    record_refusals(sweep)
    try:
        submit.submit(folder, wanted, where, revision, say)
    except KeyboardInterrupt:
        say(f"interrupted while submitting; {still_running(folder)}")
        raise
    cells = counted(sum(len(block.cells) for block in blocks), "cell")
    say(f"{cells} in {counted(len(wanted.blocks), 'job')}, at most {wanted.cost}: {folder.name}")
    if not options.wait:
        name = folder.arguments
        say(f"follow with: python -m slurm status {name}; bring home with: python -m slurm collect {name}")
        return
    try:
        states = follow(folder, say)
    except KeyboardInterrupt:
        say(f"stopped waiting; {still_running(folder)}")
        raise
    report(sweep, {state.cell: state.attempt or f"{state.state}: {state.note}" for state in states})


def still_running(folder: SweepFolder) -> str:
    """What to tell someone who walks away."""
    name = folder.arguments
    return (
        f"the jobs keep running. See: python -m slurm status {name}; "
        f"python -m slurm collect {name}; end them: python -m slurm cancel {name}"
    )


def describe_arrays(sweep: Sweep, where: site.Site, options: submit.Options) -> str:
    """Arrays, GPU-hours and the sbatch text of each; asks Slurm for its limit where there is one."""
    try:
        limit = client.max_array_size()
        source = "this cluster's MaxArraySize"
    except InputError:
        limit, source = SLURM_DEFAULT_MAX_ARRAY_SIZE, "Slurm's default MaxArraySize; no Slurm here"
    left = pending(sweep, lambda line: None)  # the description has said what is finished
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
