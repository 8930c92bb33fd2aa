"""Claims about throughput, each checked per origin on cells that may be compared."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pandas as pd

from analysis.claims.cells import (
    DP,
    NOISE,
    PP,
    TABLE6,
    Gain,
    above,
    at_least,
    gains_of,
    in_grid,
    none,
    ok,
    ordered,
    per_origin,
    percent,
    records,
    together,
    uncalibrated,
)
from analysis.claims.claim import Claim, Finding, Verdict, told
from analysis.comparing.compare_rows import refusal
from analysis.drawing.labels import method
from analysis.load.paper import ablation
from analysis.load.results import Results
from analysis.speedups import against_paper, speedups

DEPTHS = (4, 8, 16)  # of Table 6
SETTINGS, METHODS = 3, 4  # of each panel of Fig. 9: mini-batches or numbers of GPUs; methods
ROW = ["depth", "micro_batches"]
UNSURE = "; cannot be told: the cost model is uncalibrated at this size, so its rows count for nothing"


def mean_speedups(results: Results) -> Iterator[Finding]:
    """C1: the twelve means of ``speedups.csv``."""
    for experiment, figures, extra, held in (
        (PP, {"bert_64": "fig9a", "gpt_96": "fig9b"}, [], ["gpus", "global_batch"]),
        (DP, {"bert_64": "fig9c", "gpt_96": "fig9d"}, ["reading"], ["gpus"]),
    ):
        paper = f"1.05× to 1.28× ({', '.join(figures.values())})"
        check = partial(_speedups, figures=figures, extra=extra, held=held)
        yield from per_origin(results, experiment, paper, check)


def _speedups(
    origin: str, rows: pd.DataFrame, figures: dict[str, str], extra: list[str], held: list[str]
) -> Iterator[Finding]:
    rows = ok(rows).rename(columns={"ranks": "gpus"})
    keys = ["model", *extra, *held]
    # At N = D the paper's choices of B and W give the methods unequal mini-batches.
    declared = {"global_batch"} if "reading" in extra else set()
    for key, pair in rows.groupby(keys):
        refused = refusal(pair, declared)
        if refused:
            yield Finding(origin=origin, verdict=Verdict.OPEN, paper="", ours=str(key), note=refused)
            return
    each = speedups(rows, keys)
    means = against_paper(each, ["model", *extra], figures)
    groups = each.dropna(subset=["speedup"]).groupby(["model", *extra, "compared_with"])["speedup"]
    behind = (groups.agg(lambda values: int((values < 1).sum()))).to_dict()
    for one in records(means.dropna(subset=["paper_mean_speedup", "mean_speedup"])):
        close = abs(one["error_percent"]) <= 10 and one["mean_speedup"] > 1
        slower = behind[(one["model"], *(one[name] for name in extra), one["compared_with"])]
        reading = f", reading {one['reading']}" if "reading" in extra else ""
        verdict, part = in_grid(told(close), one["settings"], SETTINGS, "settings of the figure")
        yield Finding(
            origin=origin,
            verdict=verdict,
            paper=f"{one['figure']} against {method(one['compared_with']).name}: "
            f"{one['paper_mean_speedup']:.2f}×",
            ours=f"{one['mean_speedup']:.3f}× over {one['settings']} settings{reading}"
            + (f", BitPipe slower in {slower} of them" if slower else ""),
            note=f"{one['error_percent']:+.1f}%; within 10% and above 1 counts{part}",
        )


def eager_helps_more_at_n_is_d(results: Results) -> Iterator[Finding]:
    """C8: full over w/o E, at N = D and at N = 4D."""
    paper = ablation().assign(origin="paper")
    said = "; ".join(percent(key, gain) for key, gain in gains_of(paper, "without_e").items())

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        gains = gains_of(ok(rows), "without_e")
        pairs = {d: (gains[d, d], gains[d, 4 * d]) for d, n in gains if n == d and (d, 4 * d) in gains}
        unsure = uncalibrated(ok(rows)) & set(pairs)
        for depths in (set(pairs) - unsure, unsure):
            verdict = together([above(*pairs[d]) for d in depths])
            verdict, part = in_grid(verdict, len(pairs), len(DEPTHS), "depths of Table 6")
            if depths:
                yield Finding(
                    origin=origin,
                    verdict=Verdict.OPEN if depths == unsure else verdict,
                    paper=said,
                    ours="; ".join(percent(key, gain) for key, gain in gains.items() if key[0] in depths),
                    note="gain of eager sync over w/o E" + part + (UNSURE if depths == unsure else ""),
                )

    yield from per_origin(results, TABLE6, said, check)


def mapping_matters_across_nodes(results: Results) -> Iterator[Finding]:
    """C9: full over w/o M, inside one node and across two."""
    gains = gains_of(ablation().assign(origin="paper"), "without_m")
    said = "; ".join(percent(key, gain) for key, gain in gains.items())

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        known = ok(rows)
        ours = gains_of(known, "without_m")
        per_node = int(known["devices_per_node"].to_numpy().min())
        zero, unsure = Gain(0.0, 0.0, 0.0), uncalibrated(known)
        for where, wanted, inside in (
            (f"no change inside one (below {100 * NOISE:g}%)", [d for d in DEPTHS if d <= per_node], True),
            ("a gain across", [d for d in DEPTHS if d > per_node], False),
        ):
            gains = {key: gain for key, gain in ours.items() if (key[0] <= per_node) == inside}
            if not gains:
                continue
            verdict = together([none(gain) if inside else above(gain, zero) for gain in gains.values()])
            verdict, part = in_grid(verdict, len(gains), 2 * len(wanted), "rows of Table 6")
            open_ = bool(unsure & {depth for depth, _ in gains})
            yield Finding(
                origin=origin,
                verdict=Verdict.OPEN if open_ else verdict,
                paper=said,
                ours="; ".join(percent(key, gain) for key, gain in gains.items()),
                note=f"gain over w/o M; nodes of {per_node}: {where}{part}" + (UNSURE if open_ else ""),
            )

    yield from per_origin(results, TABLE6, said, check)


def full_is_best(results: Results) -> Iterator[Finding]:
    """C15: the full method best in every row; w/o V at least w/o E below D = 16."""
    said = "full is best in all 6 rows; w/o V ≥ w/o E at D = 4 and 8"

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        found: dict[tuple[int, int], dict[str, dict[str, Any]]] = {}
        for (depth, count), group in ok(rows).groupby(["depth", "micro_batches"]):
            by = {row["variant"]: row for row in records(group)}
            if not refusal(group) and set(by) >= {"full", "without_v", "without_e", "without_m"}:
                found[int(str(depth)), int(str(count))] = by
        have = len(set(found) & set(grid))
        unsure = {key for key in found if key[0] in uncalibrated(ok(rows))}
        for keys in (sorted(set(found) - unsure), sorted(unsure)):
            if keys:
                yield _full_in(origin, {key: found[key] for key in keys}, bool(unsure & set(keys)), have)

    grid = list(ablation().groupby(ROW).groups)

    def _full_in(
        origin: str, found: dict[tuple[int, int], dict[str, dict[str, Any]]], unsure: bool, have: int
    ) -> Finding:
        others = [(by["full"], row) for by in found.values() for name, row in by.items() if name != "full"]
        best = [at_least(full, row) for full, row in others]
        order = [at_least(by["without_v"], by["without_e"]) for (d, _), by in found.items() if d < 16]
        lead = min(full["samples_per_s"] / row["samples_per_s"] - 1 for full, row in others)
        verdict, part = in_grid(together([*best, *order]), have, len(grid), "rows of Table 6")
        return Finding(
            origin=origin,
            verdict=Verdict.OPEN if unsure else verdict,
            paper=said,
            ours=f"D = {', '.join(map(str, sorted({d for d, _ in found})))}: full ahead of or equal to "
            f"{best.count(Verdict.YES)} of {len(best)} variants"
            + (f"; w/o V ≥ w/o E in {order.count(Verdict.YES)} of {len(order)} rows" if order else ""),
            note=f"smallest lead of full {100 * lead:+.2f}%; equal (w/o M inside one node) is not behind; "
            "overlapping intervals leave it open" + part + (UNSURE if unsure else ""),
        )

    yield from per_origin(results, TABLE6, said, check)


def shrinks_with_batch(results: Results) -> Iterator[Finding]:
    """C12: BitPipe's speedup over B̂."""
    said = "the advantage shrinks as B̂ grows"

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        each = speedups(ok(rows), ["model", "global_batch"]).dropna(subset=["speedup"])
        for (name, other), group in each.groupby(["model", "compared_with"]):
            values = group.sort_values("global_batch")["speedup"].astype(float).tolist()
            if len(values) > 1:
                batches = ", ".join(map(str, sorted(group["global_batch"])))
                falls = ordered([a - b for a, b in pairwise(values)], NOISE / 5)
                verdict, part = in_grid(falls, len(values), SETTINGS, "mini-batches of Fig. 9a, b")
                yield Finding(
                    origin=origin,
                    verdict=verdict,
                    paper=said,
                    ours=f"{name} over {method(str(other)).name}: "
                    + " → ".join(f"{value:.3f}×" for value in values),
                    note=f"B̂ = {batches}{part}",
                )

    yield from per_origin(results, PP, said, check)


def growth_falls_off(results: Results) -> Iterator[Finding]:
    """C14: weak-scaling efficiency."""
    from analysis.artefacts.throughput import scaling

    said = "at 32 GPUs the growth of throughput falls off"

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        table = scaling(ok(rows).rename(columns={"ranks": "gpus"}))
        for (name, reading), group in table.groupby(["model", "reading"]):
            wide = group.pivot_table(index="method", columns="gpus", values="weak_scaling_efficiency")
            if not {16, 32} <= set(wide.columns):
                continue
            both = wide[[16, 32]].dropna()
            falls = told(bool((both[32] < both[16]).all()))
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
    Claim(
        id="C1",
        section="2.2",
        text="BitPipe gains 1.05× to 1.28× over the other synchronous methods",
        find=mean_speedups,
        experiment=PP,
    ),
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
