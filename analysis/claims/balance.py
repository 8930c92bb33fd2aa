"""Claims about memory and traffic, each checked per origin on cells that may be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from analysis.artefacts.tradeoff import stage_share
from analysis.claims.cells import (
    TABLE6,
    ok,
    per_method,
    per_origin,
    records,
)
from analysis.claims.claim import Claim, Finding, verdict_of
from analysis.load.results import Results
from analysis.memory import balance

SLIGHTLY = 0.25


def most_even(results: Results) -> Iterator[Finding]:
    """C11: spread of peak memory over devices, (max − min)/mean."""
    said = "DAPPLE and 1F1B-Int are the most uneven, BitPipe the most even"

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        table = balance(rows, results.loaded.devices, ["model", "global_batch", "method"]).summary
        for (name, batch), group in table.groupby(["model", "global_batch"]):
            spread = group.set_index("method")["spread_over_mean"].astype(float).to_dict()
            mean = group.set_index("method")["mean_gib"].astype(float).to_dict()
            if len(spread) < 4:
                continue
            even = min(spread, key=spread.__getitem__) == "bitpipe"
            uneven = {"dapple", "1f1b_int"} == set(sorted(spread, key=spread.__getitem__)[-2:])
            yield Finding(
                origin=origin,
                verdict=verdict_of(even and uneven),
                paper=said,
                ours=f"{name} B̂={batch}: " + per_method(spread, "{:.3f}"),
                note="(max − min)/mean"
                + ("" if uneven else "; at N = D 1F1B-Int is all warm-up, hence even (printed_paper.csv)"),
            )
            others = {other: mean["bitpipe"] / gib for other, gib in mean.items() if other != "bitpipe"}
            yield Finding(
                origin=origin,
                verdict=verdict_of(min(others.values()) >= 1 and max(others.values()) <= 1 + SLIGHTLY),
                paper="BitPipe's mean is slightly higher",
                ours=f"{name} B̂={batch}: mean GiB {per_method(mean, '{:.1f}')}",
                note=f"BitPipe's over {per_method(others, '{:.2f}×')}; "
                f"slightly: at most {SLIGHTLY:.0%} above each",
            )

    yield from per_origin(results, "fig8_memory_pp", said, check)


def peaks_at_32(results: Results) -> Iterator[Finding]:
    """C23: balance and peak at 32 GPUs."""
    said = "1F1B-Int more concentrated with a higher peak; BitPipe's peak on a par with MixPipe's"

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        table = balance(rows, results.loaded.devices, ["model", "reading", "method"]).summary
        for (name, reading), group in table.groupby(["model", "reading"]):
            peak = group.set_index("method")["max_gib"].astype(float).to_dict()
            vary = group.set_index("method")["coefficient_of_variation"].astype(float).to_dict()
            if not {"1f1b_int", "bitpipe", "mixpipe", "dapple"} <= set(peak):
                continue
            par = abs(peak["bitpipe"] / peak["mixpipe"] - 1) <= 0.05
            concentrated = vary["1f1b_int"] < vary["dapple"] and peak["1f1b_int"] > peak["dapple"]
            yield Finding(
                origin=origin,
                verdict=verdict_of(par and concentrated),
                paper=said,
                ours=f"{name}, {reading}: peak GiB {per_method(peak, '{:.1f}')}",
                note=f"coefficient of variation {per_method(vary, '{:.3f}')}; on a par: within 5%; "
                "1F1B-Int against DAPPLE",
            )

    yield from per_origin(results, "fig10_memory_dp", said, check)


def sync_is_heavier(results: Results) -> Iterator[Finding]:
    """C20: bytes per iteration by kind and link class."""
    said = "gradient sync is the heavier traffic, activations the lighter"

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        for row in records(rows[rows["variant"].isin(["full", "without_m"])]):
            traffic = (
                (row["metrics"] or {}).get("traffic_bytes") if isinstance(row["metrics"], dict) else None
            )
            if not traffic:
                continue
            sync = sum(v for key, v in traffic.items() if "sync" in key)
            rest = sum(v for key, v in traffic.items() if "activation" in key)
            unit, size = ("GiB", 2**30) if max(sync, rest) >= 2**30 else ("MiB", 2**20)
            links = ", ".join(f"{key} {v / size:.4g}" for key, v in sorted(traffic.items()))
            yield Finding(
                origin=origin,
                verdict=verdict_of(sync > rest),
                paper=said,
                ours=f"D={row['depth']} N={row['micro_batches']} {row['variant']}: "
                f"sync {sync / size:.4g} {unit}, activations {rest / size:.4g} {unit}",
                note=f"{unit} per iteration by kind and link: {links}",
            )

    yield from per_origin(results, TABLE6, said, check)


def break_even(results: Results) -> Iterator[Finding]:
    """C24: up to which stage weights the second copy pays."""
    said = "pays below some Mθ/memory, not above"

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        best = ok(rows).pivot_table(index="hidden", columns="method", values="samples_per_s", aggfunc="max")
        if "bitpipe" not in best or best.shape[1] < 2:
            return
        stage = rows.assign(share=list(map(stage_share, records(rows)))).groupby("hidden")["share"].first()
        others = best.drop(columns="bitpipe").max(axis="columns")
        lead = (best["bitpipe"] / others - 1).where(others.notna())
        gone = best.index[best["bitpipe"].isna() & others.notna()]
        pays = lead.index[lead > 0]
        stops = [*lead.index[lead <= 0], *gone]
        yield Finding(
            origin=origin,
            verdict=verdict_of(bool(len(pays)) and bool(len(stops)) and min(stops) > max(pays)),
            paper=said,
            ours=f"pays up to Mθ/memory {_at(stage, list(pays), max)}, not from {_at(stage, stops, min)}",
            note="Mθ: weights, gradients and optimizer state of one copy; every method at its best B, and "
            "the model's compute rate does not depend on B, which favours one-copy methods at small B; "
            "interpolated in tradeoff_memory_throughput_break_even.csv",
        )

    yield from per_origin(results, "tradeoff_memory_throughput", said, check, own_models=True)


def _at(shares: pd.Series, sizes: Sequence[int], which: Callable[..., int]) -> str:
    if not len(sizes):
        return "–"
    hidden = which(sizes)
    return f"{shares[hidden]:.3f} (hidden {hidden})"


CLAIMS = (
    Claim(
        id="C11",
        section="2.2.1",
        text="DAPPLE and 1F1B-Int load devices most unevenly, BitPipe most evenly at a slightly higher mean",
        find=most_even,
        experiment="fig8_memory_pp",
    ),
    Claim(
        id="C20",
        section="1.4.2",
        text="gradient sync is the heavier traffic, activations the lighter",
        find=sync_is_heavier,
        experiment=TABLE6,
    ),
    Claim(
        id="C23",
        section="2.2.2",
        text="at 32 GPUs 1F1B-Int is more concentrated with a higher peak; BitPipe's peak is on a par "
        "with MixPipe's",
        find=peaks_at_32,
        experiment="fig10_memory_dp",
    ),
    Claim(
        id="C24",
        section="2.2.3",
        text="the second copy of the weights pays below some Mθ/memory and not above",
        find=break_even,
        experiment="tradeoff_memory_throughput",
    ),
)
