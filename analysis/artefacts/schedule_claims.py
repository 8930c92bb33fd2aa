"""The paper's claims about schedules alone, computed from the generated schedules.

Numbers are exact at unit costs (a stage's forward 1, backward 2, transfers free): origin simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import pandas as pd

from analysis.drawing.output import Rendered, Table
from analysis.load.results import Results
from analysis.registry import artefact
from bitpipe.origin import Origin
from bitpipe.schedule import Description, ScheduleSpec, describe, generate

DEPTHS = (4, 8, 16)
YES, NO = "reproduced", "not reproduced"
Finding = tuple[str, str, float, float | None, str]  # setting, quantity, value, claimed, verdict


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim: what the paper says, and how to find out."""

    id: str
    section: str
    text: str
    find: Callable[[], Iterator[Finding]]


@artefact(
    "schedule_claims", title="Claims about schedules alone (C2, C3, C7, C10, C18, C21)", needs_records=False
)
def schedule_claims(results: Results) -> Rendered:
    """One row per claim, setting and number, with a verdict each."""
    rows = [
        {
            "claim": claim.id,
            "section": claim.section,
            "says": claim.text,
            "setting": setting,
            "quantity": quantity,
            "value": value,
            "paper_value": claimed,
            "origin": Origin.SIMULATED.value,
            "verdict": verdict,
        }
        for claim in CLAIMS
        for setting, quantity, value, claimed, verdict in claim.find()
    ]
    title = "Claims about schedules alone, at unit costs"
    return Rendered(tables=(Table(name="schedule_claims", title=title, frame=pd.DataFrame(rows)),))


@cache
def figures(
    method: str,
    depth: int,
    micro_batches: int,
    chunks: int | None = None,
    placement: str | None = None,
    early_forward: bool = False,
    cap: int | None = None,
) -> Description:
    """The figures of one generated schedule."""
    spec = ScheduleSpec(
        method=method,
        depth=depth,
        micro_batches=micro_batches,
        chunks=chunks,
        placement=placement,
        early_forward=early_forward,
        cap=cap,
    )
    return describe(generate(spec))


def partition_saves_transfers() -> Iterator[Finding]:
    """C2: cross-device transfers of V and cyclic placement."""
    for depth in (2, *DEPTHS):
        v, cyclic = (figures("bitpipe", depth, depth, placement=name).transfers for name in ("v", "cyclic"))
        setting = f"D={depth}, N={depth}, v=2"
        yield setting, "transfers, cyclic", cyclic, None, ""
        yield setting, "transfers, V", v, None, YES if v < cyclic else NO


def idles_least_and_ends_first() -> Iterator[Finding]:
    """C3: bubble and makespan of the four methods of Fig. 3."""
    found = {name: figures(name, 4, 4) for name in ("dapple", "1f1b_int", "chimera", "bitpipe")}
    for quantity, values in (
        ("bubble ratio", {name: one.bubble_ratio for name, one in found.items()}),
        ("makespan", {name: one.makespan for name, one in found.items()}),
    ):
        least = min(values.values())
        for name, value in values.items():
            alone = sum(abs(other - least) < 1e-9 for other in values.values()) == 1
            verdict = (YES if value == least and alone else NO) if name == "bitpipe" else ""
            yield "D=4, N=4", f"{quantity}, {name}", value, None, verdict


def early_forward_holds_less() -> Iterator[Finding]:
    """C7: peak activations (Ma) of early forward, Chimera's doubled forwards, MixPipe's largest K."""
    for depth in DEPTHS:
        setting = f"D={depth}, N={2 * depth}"
        early = max(figures("bitpipe", depth, 2 * depth, early_forward=True).peak_activation_per_device)
        doubled = max(figures("chimera_doubled", depth, 2 * depth).peak_activation_per_device)
        mixed = max(figures("mixpipe", depth, 2 * depth, cap=(3 * depth - 2) // 2).peak_activation_per_device)
        printed = (3 * depth - 3) / 2
        exact = "" if abs(early - printed) < 1e-9 else " as a bound: (5D−2)/4 Ma is enough"
        yield setting, "peak Ma, early forward", early, printed, YES + exact if early <= printed else NO
        yield setting, "peak Ma, Chimera doubled", doubled, 2.0 * depth, YES if doubled == 2 * depth else NO
        yield (
            setting,
            "peak Ma, MixPipe (as modelled)",
            mixed,
            (3 * depth - 2) / 2,
            YES if mixed > early else NO,
        )


def more_chunks_end_earlier() -> Iterator[Finding]:
    """C10: makespan over v."""
    for depth in DEPTHS:
        before = float("inf")
        for chunks in (1, 2, 4, 8):
            makespan = figures("bitpipe", depth, depth, chunks=chunks).makespan
            verdict = (YES if makespan < before else NO) if chunks > 2 else ""
            yield f"D={depth}, N={depth}, v={chunks}", "makespan", makespan, None, verdict
            before = makespan


def bubble_splits() -> Iterator[Finding]:
    """C18: idle time before and after the first backward, middle and outer devices."""
    for depth in DEPTHS:
        one = figures("bitpipe", depth, depth)
        claimed = (depth - 2) / 2
        for where, device in (("middle device", depth // 2 - 1), ("outer device", 0)):
            for part, idle in (
                ("before its first backward", one.forward_idle_per_device[device]),
                ("from then on", one.backward_idle_per_device[device]),
            ):
                # (D−2)/4 backwards are (D−2)/2 units: both halves are equally long.
                verdict = YES if abs(idle - claimed) < 1e-9 else NO
                yield f"D={depth}, N={depth}, {where}", f"idle {part}", idle, claimed, verdict
        total = one.makespan - 3 * depth
        claimed = depth - 2
        yield f"D={depth}, N={depth}", "idle per device", total, claimed, YES if total == claimed else NO


def transfers_grow_with_chunks() -> Iterator[Finding]:
    """C21: number of transfers over v; every message has the same size, so volume grows alike."""
    for depth in DEPTHS:
        before = 0
        for chunks in (1, 2, 4, 8):
            count = figures("bitpipe", depth, depth, chunks=chunks).transfers
            verdict = (YES if count > before else NO) if before else ""
            yield f"D={depth}, N={depth}, v={chunks}", "transfers", count, None, verdict
            before = count
        # Against it, section 1.6: more pipelines. A device then holds one more copy of a stage for
        # each, and a ring all-reduce over n copies moves 2(n−1)/n of what it holds.
        for pipelines in (2, 4):
            setting = f"D={depth}, v=2, {pipelines} pipelines"
            moved = 2 * (pipelines - 1) / pipelines * pipelines
            worse = YES if pipelines > 2 else ""
            yield setting, "weights on a device, Mθ (arithmetic)", pipelines, None, worse
            yield setting, "all-reduce volume of a device, Mθ (arithmetic)", moved, None, worse


CLAIMS = (
    Claim(
        id="C2",
        section="1.2",
        text="the V partition needs fewer cross-device transfers than the cyclic one",
        find=partition_saves_transfers,
    ),
    Claim(
        id="C3",
        section="1.3.1",
        text="at D=4 N=4 BitPipe idles least and ends first of four methods",
        find=idles_least_and_ends_first,
    ),
    Claim(
        id="C7",
        section="1.5",
        text="early forward peaks at (3D−3)/2 Ma, below Chimera's 2D and MixPipe's (3D−2)/2",
        find=early_forward_holds_less,
    ),
    Claim(
        id="C10",
        section="1.6",
        text="v > 2 ends earlier at the same mini-batch",
        find=more_chunks_end_earlier,
    ),
    Claim(
        id="C18",
        section="1.3.2",
        text="of the bubble, (D−2)/2 is forward and (D−2)/4 (in backwards) backward idle time",
        find=bubble_splits,
    ),
    Claim(
        id="C21",
        section="1.6",
        text="the number of P2P transfers and their volume grow with v",
        find=transfers_grow_with_chunks,
    ),
)
