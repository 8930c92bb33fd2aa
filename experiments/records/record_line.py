"""A finished cell in one line: as it is printed when it ran, and when it is skipped."""

from __future__ import annotations

from experiments.records.record import Record, Status
from experiments.running.repeats import count


def line_of(record: Record, name: str, *, number: int, of: int) -> str:
    """``[number/of] status name: outcome``."""
    return f"[{number:>{len(str(of))}}/{of}] {record.status:<6} {name}: {outcome_of(record)}"


def outcome_of(record: Record) -> str:
    """A record in a few words."""
    if record.status is Status.OK:
        if record.metrics["samples_per_s"] is None:  # a schedule alone has no seconds
            span = record.metrics["makespan_units"]
            return f"makespan {span:g} forwards of 1/D of the model ({record.origin})"
        rate, repeats = f"{record.metrics['samples_per_s']:.2f} samples/s", count(record.metrics)
        if repeats == 1:
            return f"{rate} ({record.origin})"
        low, high = record.metrics["samples_per_s_low"], record.metrics["samples_per_s_high"]
        return f"{rate} [{low:.2f}, {high:.2f}] ({record.origin}, {repeats} repeats)"
    assert record.cause is not None
    cause = record.cause
    said = cause.rank is None or cause.message.startswith("rank")
    return cause.message if said else f"rank {cause.rank}: {cause.message}"
