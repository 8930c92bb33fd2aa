"""Claims about throughput, each checked per origin on cells that may be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pandas as pd

from analysis.claims.cells import (
    DP,
    PP,
    TABLE6,
    Pair,
    ahead,
    alike,
    all_hold,
    at_least,
    gains_of,
    in_grid,
    judged,
    ok,
    pairs_of,
    per_origin,
    percent,
    records,
    uncalibrated,
)
from analysis.claims.claim import Claim, Finding, Verdict
from analysis.claims.speedup_means import CLAIM as MEAN_SPEEDUPS
from analysis.claims.speedup_means import SETTINGS
from analysis.comparing.compare_rows import refusal
from analysis.comparing.ratio import Ratio, ratio_of
from analysis.comparing.verdict import EQUAL_WITHIN
from analysis.drawing.labels import method
from analysis.load.paper import ablation
from analysis.load.results import Results
from analysis.speedups import speedups
from bitpipe.origin import Origin

DEPTHS = (4, 8, 16)  # of Table 6
METHODS = 4  # of each panel of Fig. 9c, d
ROW = ["depth", "micro_batches"]
UNSURE = "; cannot be told: the cost model is uncalibrated at this size, so its rows count for nothing"


ASSUMED = "; cannot be told: the model assumes it ({})"


def eager_helps_more_at_n_is_d(results: Results) -> Iterator[Finding]:
    """C8: full over w/o E, at N = D and at N = 4D."""
    paper = ablation().assign(origin="paper")
    said = "; ".join(percent(key, gain) for key, gain in gains_of(paper, "without_e").items())

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        known = ok(rows)
        gains = gains_of(known, "without_e")
        both = [d for d, n in gains if n == d and (d, 4 * d) in gains]
        careful = gains_of(known, "without_e", len(both) or 1)
        unsure = uncalibrated(known) & set(both)
        for depths in (set(both) - unsure, unsure):
            verdict = all_hold([_more(d, gains, careful) for d in sorted(depths)])
            verdict, part = in_grid(verdict, len(both), len(DEPTHS), "depths of Table 6")
            if depths:
                yield Finding(
                    origin=origin,
                    verdict=Verdict.OPEN if depths == unsure else verdict,
                    paper=said,
                    ours="; ".join(percent(key, gain) for key, gain in gains.items() if key[0] in depths),
                    note="gain of eager sync over w/o E" + part + (UNSURE if depths == unsure else ""),
                )

    yield from per_origin(results, TABLE6, said, check)


def _more(depth: int, gains: dict[tuple[int, int], Ratio], careful: dict[tuple[int, int], Ratio]) -> Verdict:
    """Whether a gain is larger at N = D than at N = 4D; refuted by the ``careful`` intervals."""
    verdicts = [ahead(of[depth, depth].over(of[depth, 4 * depth])) for of in (gains, careful)]
    return Verdict.OPEN if verdicts[0] is Verdict.NO and verdicts[1] is not Verdict.NO else verdicts[0]


def mapping_matters_across_nodes(results: Results) -> Iterator[Finding]:
    """C9: full over w/o M, inside one node and across two."""
    gains = gains_of(ablation().assign(origin="paper"), "without_m")
    said = "; ".join(percent(key, gain) for key, gain in gains.items())

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        known = ok(rows)
        ours = pairs_of(known, "without_m")
        per_node = int(known["devices_per_node"].to_numpy().min())
        unsure = uncalibrated(known)
        for where, wanted, inside in (
            (
                f"no change inside one (within {100 * EQUAL_WITHIN:g}%)",
                [d for d in DEPTHS if d <= per_node],
                True,
            ),
            ("a gain across", [d for d in DEPTHS if d > per_node], False),
        ):
            pairs = {key: pair for key, pair in ours.items() if (key[0] <= per_node) == inside}
            if not pairs:
                continue
            holds = alike if inside else ahead
            verdict = all_hold([judged(*pair, holds, len(pairs)) for pair in pairs.values()])
            verdict, part = in_grid(verdict, len(pairs), 2 * len(wanted), "rows of Table 6")
            open_ = bool(unsure & {depth for depth, _ in pairs})
            assumed = inside and origin != Origin.MEASURED.value
            yield Finding(
                origin=origin,
                verdict=Verdict.OPEN if open_ or assumed else verdict,
                paper=said,
                ours="; ".join(percent(key, ratio_of(*pair)) for key, pair in pairs.items()),
                note=f"gain over w/o M; nodes of {per_node}: {where}{part}"
                + (UNSURE if open_ else "")
                + (ASSUMED.format("all links inside a node are alike") if assumed else ""),
            )

    yield from per_origin(results, TABLE6, said, check)


def full_is_best(results: Results) -> Iterator[Finding]:
    """C15: the full method best in every row; w/o V at least w/o E below D = 16.

    Where the paper's own two values differ by more than the margin of equality, so must ours; where they
    do not (w/o M inside a node), not being behind by more than that margin is enough.
    """
    said = "full is best in all 6 rows; w/o V ≥ w/o E at D = 4 and 8"
    table = ablation()
    printed = {key: {row["variant"]: row for row in records(rows)} for key, rows in table.groupby(ROW)}

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        found: dict[tuple[int, int], dict[str, dict[str, Any]]] = {}
        for (depth, count), group in ok(rows).groupby(ROW):
            by = {row["variant"]: row for row in records(group)}
            if not refusal(group) and set(by) >= {"full", "without_v", "without_e", "without_m"}:
                found[int(str(depth)), int(str(count))] = by
        have = len(set(found) & set(printed))
        unsure = {key for key in found if key[0] in uncalibrated(ok(rows))}
        for keys in (sorted(set(found) - unsure), sorted(unsure)):
            if keys:
                yield _full_in(origin, {key: found[key] for key in keys}, bool(unsure & set(keys)), have)

    def _full_in(
        origin: str, found: dict[tuple[int, int], dict[str, dict[str, Any]]], unsure: bool, have: int
    ) -> Finding:
        others = [(key, (by["full"], by[name])) for key, by in found.items() for name in by if name != "full"]
        lower = [(key, (by["without_v"], by["without_e"])) for key, by in found.items() if key[0] < 16]
        tests = len(others) + len(lower)
        best = [judged(*pair, _as_printed(key, pair), tests) for key, pair in others]
        order = [judged(*pair, at_least, tests) for _, pair in lower]
        leads = [ratio_of(*pair) for _, pair in others]
        words = [lead.verdict for lead in leads]
        verdict, part = in_grid(all_hold([*best, *order]), have, len(printed), "rows of Table 6")
        told = ", ".join(
            f"{words.count(word)} {word}"
            for word in ("faster", "equal", "slower", "undecided")
            if word in words
        )
        return Finding(
            origin=origin,
            verdict=Verdict.OPEN if unsure else verdict,
            paper=said,
            ours=f"D = {', '.join(map(str, sorted({d for d, _ in found})))}: full against {len(words)} "
            f"variants: {told}; {best.count(Verdict.YES)} as the paper prints them"
            + (f"; w/o V ≥ w/o E in {order.count(Verdict.YES)} of {len(order)} rows" if order else ""),
            note=f"smallest lead of full {min(leads, key=lambda one: one.value)}; equal: within "
            f"{100 * EQUAL_WITHIN:g}%, which reproduces a lead only where the paper's own is as small"
            + part
            + (UNSURE if unsure else ""),
        )

    def _as_printed(key: tuple[int, int], pair: Pair) -> Callable[[Ratio], Verdict]:
        one, other = (printed.get(key, {}).get(row["variant"]) for row in pair)
        return ahead if one and other and ahead(ratio_of(one, other)) is Verdict.YES else at_least

    yield from per_origin(results, TABLE6, said, check)


def shrinks_with_batch(results: Results) -> Iterator[Finding]:
    """C12: BitPipe's speedup over B̂."""
    said = "the advantage shrinks as B̂ grows"

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        each = speedups(ok(rows), ["model", "global_batch"]).dropna(subset=["speedup"])
        for (name, other), group in each.groupby(["model", "compared_with"]):
            ratios = group.sort_values("global_batch")["ratio"].tolist()
            if len(ratios) > 1:
                batches = ", ".join(map(str, sorted(group["global_batch"])))
                falls = all_hold([ahead(a.over(b)) for a, b in pairwise(ratios)])
                verdict, part = in_grid(falls, len(ratios), SETTINGS, "mini-batches of Fig. 9a, b")
                yield Finding(
                    origin=origin,
                    verdict=verdict,
                    paper=said,
                    ours=f"{name} over {method(str(other)).name}: "
                    + " → ".join(f"{one.value:.3f}×" for one in ratios),
                    note=f"B̂ = {batches}{part}",
                )

    yield from per_origin(results, PP, said, check)


def growth_falls_off(results: Results) -> Iterator[Finding]:
    """C14: weak-scaling efficiency."""
    from analysis.artefacts.throughput import scaling

    said = "at 32 GPUs the growth of throughput falls off"

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        known = {(r["model"], r["reading"], r["method"], r["ranks"]): r for r in records(ok(rows))}
        table = scaling(ok(rows).rename(columns={"ranks": "gpus"}))
        for (name, reading), group in table.groupby(["model", "reading"]):
            wide = group.pivot_table(index="method", columns="gpus", values="weak_scaling_efficiency")
            if not {16, 32} <= set(wide.columns):
                continue
            both = wide[[16, 32]].dropna()
            sizes = [[known[name, reading, method, gpus] for gpus in (16, 32)] for method in both.index]
            falls = all_hold([ahead(ratio_of(small, large).times(2)) for small, large in sizes])
            verdict, part = in_grid(falls, len(both), METHODS, "methods of Fig. 9c, d")
            yield Finding(
                origin=origin,
                verdict=verdict,
                paper=said,
                ours=f"{name}, {reading}: 16 → 32 GPUs "
                + ", ".join(
                    f"{method(str(m)).name} {row[16]:.2f} → {row[32]:.2f}" for m, row in wide.iterrows()
                ),
                note="throughput per GPU over that at 8 GPUs, each at the paper's W, D and B for that size"
                + part,
            )

    yield from per_origin(results, DP, said, check)


CLAIMS = (
    MEAN_SPEEDUPS,
    Claim(
        id="C8",
        section="2.2.4",
        text="eager sync helps more at N = D than at N = 4D",
        find=eager_helps_more_at_n_is_d,
        experiment=TABLE6,
    ),
    Claim(
        id="C9",
        section="2.2.4",
        text="the mapping changes nothing inside one node and matters across nodes",
        find=mapping_matters_across_nodes,
        experiment=TABLE6,
    ),
    Claim(
        id="C12",
        section="2.2.1",
        text="the advantage shrinks as B̂ grows",
        find=shrinks_with_batch,
        experiment=PP,
    ),
    Claim(
        id="C14",
        section="2.2.2",
        text="at 32 GPUs the growth of throughput falls off",
        find=growth_falls_off,
        experiment=DP,
    ),
    Claim(
        id="C15",
        section="2.2.4",
        text="the full method is best in every row of Table 6; w/o V ≥ w/o E for D < 16",
        find=full_is_best,
        experiment=TABLE6,
    ),
)
