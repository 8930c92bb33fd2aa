"""Claims about schedules, from the generated schedules themselves and from Table 3's runs."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.artefacts import bubble_memory, schedule_claims
from analysis.claims.claim import Claim, Finding, Verdict, verdict_of
from analysis.load.results import NoResults, Results
from analysis.table3_formulas import ROWS
from bitpipe.errors import InputError
from bitpipe.origin import Origin
from bitpipe.schedule import ScheduleSpec, check_schedule, describe, evaluate, generate

EXACT = Origin.SIMULATED.value
UNIT_NOTE = "generated schedules at unit costs"
DEPTHS = (4, 8, 16, 32)
SHOWN = 4  # settings in a finding; schedule_claims.csv has all


def _from_schedules(claim: schedule_claims.Claim) -> Claim:
    def find(_: Results) -> Iterator[Finding]:
        rows = list(claim.find())
        judged = [row for row in rows if row[4]]
        failed = [row for row in judged if not row[4].startswith(schedule_claims.YES)]
        # With a row that is judged belong those of its setting that it is compared with.
        about = dict.fromkeys(row[0] for row in failed or judged)
        ours = "; ".join(_values(setting, rows) for setting in list(about)[:SHOWN])
        more = f" (and {len(about) - SHOWN} more settings)" if len(about) > SHOWN else ""
        note = (
            f"{len(judged) - len(failed)} of {len(judged)} checks hold"
            f"{', the others are shown' if failed else ''}; {UNIT_NOTE}; see schedule_claims.csv"
        )
        yield Finding(
            origin=EXACT, verdict=verdict_of(not failed), paper=claim.text, ours=ours + more, note=note
        )

    return Claim(id=claim.id, section=claim.section, text=claim.text, find=find)


def _values(setting: str, rows: list[schedule_claims.Finding]) -> str:
    return f"{setting}: " + ", ".join(f"{row[1]} {row[2]:g}" for row in rows if row[0] == setting)


def bubble_formulas(results: Results) -> Iterator[Finding]:
    """C4: the unit's bubble, and the one with the middle filled."""
    where = {
        1: "exact in one unit (N=D)",
        2: "not met where units are concatenated: each seam costs (D−3)/2 beyond the formula, which at peak "
        "D·Ma is a lower bound that searched orders mostly meet",
    }
    early = {
        1: "cannot hold at N=D, which has no further forwards to fill the middle (printed_paper.csv, P2)",
        2: "exact from N=2D on",
    }
    for variant, notes, paper in (
        ("bitpipe", where, "(D−2)/(3N+D−2)"),
        ("early_forward", early, "(D−2)/(4N+D−2) with the middle bubbles removed"),
    ):
        for factor in (1, 2, 4):
            found = {
                d: _bubble("bitpipe", d, factor * d, early_forward=variant == "early_forward") for d in DEPTHS
            }
            printed = {d: ROWS[variant].bubble(d, factor * d) for d in DEPTHS}
            yield Finding(
                origin=EXACT,
                verdict=verdict_of(all(abs(found[d] - printed[d]) < 1e-12 for d in DEPTHS)),
                paper=paper,
                ours=f"N={factor if factor > 1 else ''}D: "
                + "; ".join(f"D={d} {100 * found[d]:.2f}% ({100 * printed[d]:.2f}% printed)" for d in DEPTHS),
                note=f"{notes[min(factor, 2)]}; {UNIT_NOTE}",
            )
    yield from _runs(results, ("bitpipe", "early_forward"), ("bubble_ratio",))


def table_3_bubbles(results: Results) -> Iterator[Finding]:
    """C5: the other rows of Table 3."""
    for method in ("gpipe", "dapple", "1f1b_int", "chimera"):
        row = ROWS[method]
        found = {d: _bubble(method, d, d) for d in DEPTHS}
        off = [d for d, value in found.items() if abs(value - row.bubble(d, d)) > 1e-12]
        yield Finding(
            origin=EXACT,
            verdict=verdict_of(not off),
            paper=f"{row.title}: {row.bubble_text}, {100 * row.bubble(8, 8):.2f}% at D=N=8",
            ours=f"{100 * found[8]:.2f}% at D=N=8",
            note=f"{UNIT_NOTE}" + ("; see printed_paper.csv, P1" if off else ""),
        )
    yield from _runs(results, ("gpipe", "dapple", "1f1b_int", "chimera"), ("bubble_ratio",))


def table_3_memory(results: Results) -> Iterator[Finding]:
    """C6: weights and activation ranges of Table 3."""
    names = ("activation_least", "activation_most", "weights")
    yield from _runs(results, ("gpipe", "dapple", "1f1b_int", "chimera", "bitpipe"), names)


def _runs(results: Results, variants: tuple[str, ...], quantities: tuple[str, ...]) -> Iterator[Finding]:
    """What Table 3's records say, per origin, variant and quantity."""
    id = bubble_memory.ID
    try:
        rows = results.experiment(id)
    except NoResults:
        yield Finding(origin="–", verdict=Verdict.OPEN, paper="Table 3", ours="", note=f"no records of {id}")
        return
    rows = rows[(rows["status"] == "ok") & rows["variant"].isin(variants)]
    frame = bubble_memory.tidy(rows, results.loaded.devices)
    frame = frame[frame["quantity"].isin(quantities)]
    for (origin, variant, quantity), group in frame.groupby(["origin", "variant", "quantity"]):
        known = group.dropna(subset=["paper_value"])
        if known.empty or (origin == EXACT and quantity == "bubble_ratio"):
            continue
        gap = (known["value"] - known["paper_value"]).astype(float).abs()
        tolerance = 1e-9 if origin == EXACT else 0.02 * known["paper_value"].astype(float).abs().clip(lower=1)
        near = gap <= tolerance
        worst = known.iloc[int(gap.to_numpy().argmax())]
        yield Finding(
            origin=str(origin),
            verdict=verdict_of(bool(near.all())),
            paper=f"{variant} {quantity}: {worst['paper_value']:.4g} at D={worst['depth']} "
            f"N={worst['micro_batches']}",
            ours=f"{worst['value']:.4g} there; {int(near.sum())} of {len(near)} settings agree",
            note="" if near.all() else str(worst["why"] or ""),
        )


def eager_sync(_: Results) -> Iterator[Finding]:
    """C19: whose gradient sync can start while its device still computes, and how long it can hide."""
    schedule = generate(ScheduleSpec(method="bitpipe", depth=4, micro_batches=4))
    timeline = evaluate(schedule)
    ends = [max(e.end for e in timeline.events if e.device == d) for d in range(schedule.depth)]
    slack: dict[int, float] = {}
    for stage in range(schedule.placement.stages):
        last = max(e.end for e in timeline.events if e.action.stage == stage and e.action.kind.value == "B")
        holders = schedule.placement.replicas(stage)
        slack[stage + 1] = min(ends[device] for device in holders) - last
    forward = [stage for stage, free in slack.items() if free > 0]
    yield Finding(
        origin=EXACT,
        verdict=verdict_of({5, 8} <= set(forward)),
        paper="s5 and s8 move forward at D=4",
        ours="; ".join(f"s{stage}: {free:g}" for stage, free in slack.items()) + " units of compute left",
        note=f"with compute left to hide behind: {', '.join(f's{stage}' for stage in forward)}; "
        f"D=4 N=4, {UNIT_NOTE}",
    )


def irregular(_: Results) -> Iterator[Finding]:
    """C22: odd D and empty micro-batches."""
    uneven, padded = (
        generate(ScheduleSpec(method="bitpipe", depth=4, micro_batches=5, pad=pad)) for pad in (False, True)
    )
    for schedule in (uneven, padded):
        check_schedule(schedule)
    yield Finding(
        origin=EXACT,
        verdict=verdict_of(len(padded.empty) == padded.micro_batches - 5),
        paper="empty micro-batches can be handled by the same mechanism",
        ours=f"D=4 N=5: makespan {describe(uneven).makespan:g} split unevenly, "
        f"{describe(padded).makespan:g} with {len(padded.empty)} empty micro-batches",
        note=f"an uneven split is better; {UNIT_NOTE}",
    )
    try:
        check_schedule(generate(ScheduleSpec(method="bitpipe", depth=5, micro_batches=10)))
        holds, ours = Verdict.YES, "D=5 N=10: generated and checked"
    except InputError as error:
        holds, ours = Verdict.OPEN, f"D=5 is refused: {error.allowed}"
    yield Finding(
        origin=EXACT,
        verdict=holds,
        paper="odd D can be handled by the same mechanism",
        ours=ours,
        note="the paper gives no rule for odd D" if holds is Verdict.OPEN else UNIT_NOTE,
    )


def _bubble(method: str, depth: int, micro_batches: int, early_forward: bool = False) -> float:
    return schedule_claims.figures(method, depth, micro_batches, early_forward=early_forward).bubble_ratio


CLAIMS = (
    *(_from_schedules(claim) for claim in schedule_claims.CLAIMS),
    Claim(
        id="C4",
        section="1.3.2",
        text="BitPipe's bubble ratio is (D−2)/(3N+D−2), with the middle bubbles removed (D−2)/(4N+D−2)",
        find=bubble_formulas,
        experiment=bubble_memory.ID,
    ),
    Claim(
        id="C5",
        section="1.3.2",
        text="bubble ratios of GPipe, DAPPLE, 1F1B-Int and Chimera as printed in Table 3",
        find=table_3_bubbles,
        experiment=bubble_memory.ID,
    ),
    Claim(
        id="C6",
        section="1.3.3",
        text="weights 2 Mθ for Chimera and BitPipe, else Mθ; activation ranges of Table 3",
        find=table_3_memory,
        experiment=bubble_memory.ID,
    ),
    Claim(
        id="C19",
        section="1.4.1",
        text="which stages' syncs move forward with eager sync",
        find=eager_sync,
    ),
    Claim(
        id="C22",
        section="1.1",
        text="odd D and empty micro-batches can be handled by the same mechanism",
        find=irregular,
    ),
)
