"""Claims about the best settings, equal losses and equal cells, each checked per origin."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pandas as pd

from analysis.claims.cells import (
    DP,
    PP,
    TABLE6,
    ahead,
    all_hold,
    in_grid,
    ok,
    per_origin,
    records,
)
from analysis.claims.claim import Claim, Finding, Verdict, verdict_of
from analysis.comparing.compare_rows import refusal
from analysis.comparing.ratio import ratio_of
from analysis.drawing.labels import canonical_method
from analysis.load.paper import printed
from analysis.load.results import NoResults, Results
from bitpipe.origin import Origin

METHODS = {"dapple", "1f1b_int", "mixpipe", "bitpipe"}  # what the paper trains (Fig. 8 to 10)
# What the cost model cannot show (assumptions.csv, compute_rate).
RATE = (
    "; the model's compute rate does not depend on B: a larger B only saves overhead per action, "
    "where real kernels also get faster"
)


def choices_win(results: Results) -> Iterator[Finding]:
    """C13: Table 5's choices in their grids."""
    best = printed("table5_best")
    best["method"] = best["method"].map(canonical_method)
    best["model"] = best["model"].str.replace("-", "_")
    said = f"{len(best)} choices"

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        for reading, group in rows.groupby("reading"):
            hits, near, told_of = 0, 0, 0
            known = ok(group)
            for choice in records(best):
                same = known[
                    (known["model"] == choice["model"])
                    & (known["ranks"] == choice["gpus"])
                    & (known["method"] == choice["method"])
                ]
                mine = same[
                    (same["width"] == choice["data_parallel"])
                    & (same["depth"] == choice["depth"])
                    & (same["micro_batch_size"] == choice["micro_batch"])
                ]
                if same.empty:
                    continue
                told_of += 1
                if not mine.empty:
                    lead = float(mine["samples_per_s"].max() / same["samples_per_s"].max())
                    hits += int(lead >= 1 - 1e-9)
                    near += int(lead >= 0.97)
            if told_of:
                verdict, part = in_grid(verdict_of(hits == told_of), told_of, len(best), "grids of Table 5")
                yield Finding(
                    origin=origin,
                    verdict=verdict,
                    paper=said,
                    ours=f"{hits} of {told_of} win their grid, {near} come within 3% of the winner",
                    note=f"reading {reading}{part}{RATE if origin == 'simulated' else ''}",
                )

    yield from per_origin(results, "table5_search", said, check)


def extremes_hurt(results: Results) -> Iterator[Finding]:
    """C16: throughput over D and over B."""
    said = "D too small or too large hurts; a larger B helps"

    def check(origin: str, rows: pd.DataFrame) -> Iterator[Finding]:
        wide = ok(rows).pivot_table(index="depth", columns="micro_batch_size", values="samples_per_s")
        if wide.shape[0] < 3 or wide.shape[1] < 2:
            return
        known = {(row["depth"], row["micro_batch_size"]): row for row in records(ok(rows))}
        top = {depth: known[depth, size] for depth, size in wide.idxmax(axis="columns").items()}
        best = wide.max(axis="columns")
        inner = max(best.index[1:-1], key=best.__getitem__)
        ends = [ahead(ratio_of(top[inner], top[depth])) for depth in (best.index[0], best.index[-1])]
        yield Finding(
            origin=origin,
            verdict=all_hold(ends),
            paper="D too small or too large hurts",
            ours=", ".join(f"D={depth}: {value:.1f}" for depth, value in best.items()) + " samples/s",
            note="best over B",
        )
        steps = [
            ratio_of(known[depth, large], known[depth, small])
            for depth in wide.index
            for small, large in pairwise(wide.columns)
            if {(depth, small), (depth, large)} <= set(known)
        ]
        faster = sum(step.verdict == "faster" for step in steps)
        assumed = origin == Origin.SIMULATED.value
        yield Finding(
            origin=origin,
            verdict=Verdict.OPEN if assumed else all_hold([ahead(step) for step in steps]),
            paper="a larger B helps",
            ours=f"{faster} of {len(steps)} steps to twice the B are faster; "
            + ", ".join(f"best B={size} at D={depth}" for depth, size in wide.idxmax(axis="columns").items()),
            note="at equal B̂ a larger B means a smaller N"
            + (f"{RATE}; cannot be told: the model assumes it" if assumed else ""),
        )

    yield from per_origin(results, "fig11_hyperparameters", said, check)


def same_losses(results: Results) -> Iterator[Finding]:
    """C17: losses of cells that train the same model on the same samples."""
    said = "training semantics are unchanged"
    cells = ok(results.cells)
    losses: list[Any] = [(metrics or {}).get("losses") for metrics in cells["metrics"]]
    cells = cells.assign(losses=pd.Series(losses, index=cells.index, dtype="object"))
    cells = cells[cells["losses"].notna()]
    if cells.empty:
        note = "no record holds losses; simulated cells train nothing"
        yield Finding(origin="–", verdict=Verdict.OPEN, paper=said, ours="", note=note)
    for origin, rows in cells.groupby("origin"):
        worst, groups, names = 0.0, 0, set[str]()
        for _, same in rows.groupby(["model", "global_batch", "data", "seed", "precision", "iterations"]):
            if len(same) < 2 or refusal(same, {"cluster"}):
                continue
            groups += 1
            # All methods in one group: a pair of variants says nothing about the other methods.
            names = max(names, set(same["method"]) & METHODS, key=len)
            curves = pd.DataFrame(same["losses"].tolist()).astype(float)
            worst = max(worst, float(((curves.max() - curves.min()) / curves.mean().abs()).max()))
        if groups:
            what = "of the paper's methods trained on the same samples"
            verdict, part = in_grid(verdict_of(worst <= 1e-4), len(names), len(METHODS), what)
            yield Finding(
                origin=str(origin),
                verdict=verdict,
                paper=said,
                ours=f"largest relative difference {worst:.1e} in {groups} groups of equal samples",
                note="compared with each other on the same samples: methods, variants and depths, fp32 "
                "rounding included; not with one process, which they equal to 1e-10 in fp64 by "
                f"tests/runtime{part}",
            )


def one_cell(results: Results) -> Iterator[Finding]:
    """C25: Table 6's full D = 8 rows, Fig. 9a's B̂ = 32 and 128, Fig. 9c's 8 GPUs."""
    said = "one cell with one value"
    found: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for experiment in (TABLE6, PP, DP):
        try:
            rows = results.experiment(experiment)
        except NoResults:
            continue
        same = rows[
            (rows["method"] == "bitpipe")
            & (rows["depth"] == 8)
            & (rows["width"] == 1)
            & (rows["micro_batch_size"] == 4)
            & (rows["layers"] == 64)
            & rows["global_batch"].isin([32, 128])
        ]
        if "variant" in same:
            same = same[same["variant"] == "full"]
        for row in records(ok(same)):
            found.setdefault((row["origin"], row["global_batch"]), {})[experiment] = row
    pairs = {key: rows for key, rows in found.items() if len(rows) > 1}
    if not pairs:
        note = "fewer than two of the three experiments have this setting"
        yield Finding(origin="–", verdict=Verdict.OPEN, paper=said, ours="", note=note)
    for (origin, batch), by in pairs.items():
        shown = "; ".join(f"{name} {row['samples_per_s']:.2f} ({row['cell']})" for name, row in by.items())
        differ = [
            f"{key} ({', '.join(sorted({str(row[key]) for row in by.values()}))})"
            for key in ("calibration", "precision", "iterations", "cluster", "seed", "layout")
            if len({str(row[key]) for row in by.values()}) > 1
        ]
        one = len({row["cell"] for row in by.values()}) == 1
        yield Finding(
            origin=origin,
            # Experiments that differ in a setting on purpose are different cells by design.
            verdict=Verdict.YES if one else Verdict.OPEN if differ else Verdict.NO,
            paper=said,
            ours=f"B̂={batch}: {shown}",
            note=f"the experiments' settings differ in {', '.join(differ)}" if differ else "",
        )


CLAIMS = (
    Claim(
        id="C13",
        section="2.2.2",
        text="Table 5's choices win their grids",
        find=choices_win,
        experiment="table5_search",
    ),
    Claim(
        id="C16",
        section="2.2.5",
        text="D too small or too large hurts; a larger B helps",
        find=extremes_hurt,
        experiment="fig11_hyperparameters",
    ),
    Claim(
        id="C17",
        section="1",
        text="training semantics are unchanged: the same loss as on one device",
        find=same_losses,
        experiment=TABLE6,
    ),
    Claim(
        id="C25",
        section="2.2",
        text="Table 6's full D = 8 rows, Fig. 9a's B̂ = 32 and 128 and Fig. 9c's 8 GPUs are one cell",
        find=one_cell,
        experiment=TABLE6,
    ),
)
