"""What is asked of a rank: a job with its program, clock and data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bitpipe.cluster import Links
from bitpipe.data import Dataset
from bitpipe.errors import InputError, choose
from bitpipe.job import Job
from bitpipe.models.arithmetic import boundary_bytes
from bitpipe.models.precision import PRECISIONS
from bitpipe.runtime.clocks.clock import CLOCKS, Nominal
from bitpipe.runtime.clocks.operations import Operation, operations_of
from bitpipe.runtime.plan import Plan
from bitpipe.runtime.target import Target
from bitpipe.schedule.program import Program


@dataclass(frozen=True, kw_only=True)
class Run:
    """One job of a block, with all that a rank needs to run it.

    Attributes:
        job, program: what; the program has passed :func:`bitpipe.schedule.check`.
        links: transfer costs on the job's layout (zero costs under the wall clock).
        clock: ``virtual``, ``deadline`` or ``wall``.
        data: where micro-batches come from; None under the deadline clock.
        nominal: durations under the deadline clock.
        out: folder of the ranks' logs, or None.
        passes: program runs per optimizer step (gradient accumulation).
        check_every: iterations between comparisons of the replicas' weights.
        meter: measure peak activations in the first iteration.
        costs: under the virtual clock, what operations count; None: the processor time that they took.
        target: what the ranks compute on.
    """

    job: Job
    program: Program
    links: Links
    clock: str
    data: Dataset | None
    nominal: Nominal | None = None
    out: Path | None = None
    passes: int = 1
    check_every: int = 10
    meter: bool = True
    costs: Mapping[Operation, float] | None = None
    target: Target = field(default_factory=Target)

    def __post_init__(self) -> None:
        choose("clock", self.clock, CLOCKS)
        if self.target.transport != "gloo" and self.clock != "wall":
            raise InputError("clock", self.clock, f"transport={self.target.transport} runs in real time")
        if self.clock == "deadline" and self.nominal is None:
            raise InputError("nominal", None, "the deadline clock needs nominal durations")
        if self.clock != "deadline" and self.data is None:
            raise InputError("data", None, f"the {self.clock} clock trains, so it needs data")
        if self.costs is not None:
            if self.clock != "virtual":
                raise InputError("clock", self.clock, "costs are counted by the virtual clock")
            needed = {op for rank in range(self.job.ranks) for op in self._operations(rank)}
            for operation in needed - set(self.costs):
                raise InputError("costs", operation, "missing: the program performs it")
        choose("precision", self.job.precision, PRECISIONS)
        if self.target.compile != "none" and self.program.schedule.split_backward:
            raise InputError(
                "compile", self.target.compile, "a compiled backward cannot be split", "compile=none"
            )

    def _operations(self, rank: int) -> Iterable[Operation]:
        plan = Plan(program=self.program, layout=self.links.layout, rank=rank)
        return operations_of(plan, self.job).values()

    @property
    def message_bytes(self) -> int:
        """Bytes of a boundary activation, header not counted."""
        job = self.job
        return boundary_bytes(job.model, job.micro_batch_size, PRECISIONS[job.precision].element)


def describe(run: Run, rank: int, iteration: int, mark: int) -> str:
    """What a rank was doing when its board showed ``mark``: one phrase for error messages."""
    plan = Plan(program=run.program, layout=run.links.layout, rank=rank)
    where = f"rank {rank} (replica {plan.replica}, device {plan.device})"
    if iteration < 0:
        return f"{where}, setting up"
    where += f", iteration {iteration}"
    return f"{where}, at {plan.actions[mark >> 1]}" if mark >= 0 else f"{where}, between program runs"
