"""Table 6: what the V partition, eager sync and the device mapping each contribute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.artefacts.table6_figures import memory_picture, throughput_picture
from analysis.artefacts.table6_searched import searched_tables
from analysis.artefacts.traffic import traffic_tables
from analysis.comparing.compare_rows import comparable_with_paper, model_names
from analysis.comparing.grid import Block, Entry, Grid, entries, rank
from analysis.comparing.ratio import decide, ratio_of, repeats_needed
from analysis.drawing.labels import VARIANTS, model, place
from analysis.drawing.output import Rendered, Table
from analysis.load.paper import ablation
from analysis.load.results import Results
from analysis.memory import balance
from analysis.registry import artefact
from analysis.remarks import remarks
from bitpipe.origin import Origin

ROW = ["depth", "micro_batches"]
BLOCK = ["origin", "model", "cluster"]
COLUMNS = [
    "depth",
    "global_batch",
    "variant",
    "origin",
    "samples_per_s",
    "paper_samples_per_s",
    "error_percent",
    "status",
    "ratio_to_full",
    "paper_ratio_to_full",
    "ratio_error_percent",
    "ratio_to_full_low",
    "ratio_to_full_high",
    "samples_per_s_low",
    "samples_per_s_high",
    "verdict",
    "micro_batches",
    "model",
    "cluster",
    "calibration",
    "calibrated",
    "cell",
    "revision",
    "dirty",
    "reason",
    "links",
]


@artefact("table6_ablation", title="Table 6: ablation of BitPipe on BERT-64")
def table6_ablation(results: Results) -> Rendered:
    """One block per origin and model, as in the paper, with bars beside it and memory per device."""
    ours = results.experiment("table6_ablation", every_model=True)
    ours = ours.assign(model=model_names(ours))
    frame = tidy(ours, ablation())
    memory = balance(ours, results.loaded.devices, keys=[*BLOCK, *ROW, "global_batch", "variant"])
    needed = repeats_needed(ours.to_dict("records"))  # type: ignore[arg-type]
    return Rendered(
        tables=(
            Table(
                name="table6_ablation",
                title="Table 6: throughput (samples/s) without one mechanism at a time",
                frame=frame,
                grid=layout(frame, *filter(None, (needed,))),
            ),
            Table(
                name="table6_ablation_memory",
                title="Table 6's runs: peak memory over devices",
                frame=memory.summary,
            ),
            *traffic_tables(ours),
            *searched_tables(results),
        ),
        pictures=tuple(throughput_picture(frame)) + tuple(memory_picture(memory)),
        notes=remarks(ours),
    )


def tidy(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """One row per cell and origin, the paper's included, with :data:`COLUMNS`.

    ``paper_samples_per_s`` and ``error_percent`` are only filled where a run trains the
    paper's model on its cluster; ``ratio_to_full`` compares within a row and always means
    the same. Its interval is formed from the ratios of the repeats or resamples that both were in, or else
    from the two ranges. ``verdict`` is what :func:`decide` says of the row.
    """
    paper = paper.assign(origin=Origin.PAPER.value, status="ok", calibrated=True)
    keep = ["variant", *ROW]
    compared = ours.merge(
        paper[[*keep, "samples_per_s"]].rename(columns={"samples_per_s": "paper"}), on=keep, how="left"
    )
    fits = comparable_with_paper(compared)
    compared["paper_samples_per_s"] = compared["paper"].where(fits)
    compared["error_percent"] = 100 * (compared["samples_per_s"] / compared["paper_samples_per_s"] - 1)
    both = pd.concat([_with_ratios(paper), _with_ratios(compared)], ignore_index=True)
    ratio = _with_ratios(paper).set_index(keep)["ratio_to_full"]
    both["paper_ratio_to_full"] = [ratio.get(key) for key in both[keep].itertuples(index=False, name=None)]
    both["ratio_error_percent"] = 100 * (both["ratio_to_full"] / both["paper_ratio_to_full"] - 1)
    both.loc[both["origin"] == Origin.PAPER.value, ["paper_ratio_to_full", "ratio_error_percent"]] = pd.NA
    order = {name: place for place, name in enumerate(VARIANTS)}
    origins = {origin.value: place for place, origin in enumerate(_ORIGIN_ORDER)}
    both = both.assign(_o=both["origin"].map(origins), _v=both["variant"].map(order))
    apart = ~both.groupby(BLOCK, dropna=False)["paper_samples_per_s"].transform(
        lambda found: found.notna().any()
    )
    both = both.assign(_m=apart).sort_values(["_o", "_m", *BLOCK[1:], *ROW, "_v"], ignore_index=True)
    both["verdict"] = _verdicts(both)
    return both.reindex(columns=COLUMNS)


_ORIGIN_ORDER = (Origin.PAPER, Origin.SIMULATED, Origin.EMULATED, Origin.VIRTUAL, Origin.MEASURED)


def _with_ratios(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows.assign(**{name: rows[name].fillna("") if name in rows else "" for name in BLOCK[1:]})
    full = rows[rows["variant"] == "full"].set_index([*BLOCK, *ROW])["samples_per_s"]
    keys = rows[[*BLOCK, *ROW]].itertuples(index=False, name=None)
    base = pd.Series([full.get(key) for key in keys], index=rows.index, dtype="Float64")
    rows = rows.assign(ratio_to_full=rows["samples_per_s"].astype("Float64") / base)
    ends = pd.DataFrame(index=rows.index, columns=["low", "high"], dtype="Float64")
    for _, group in rows.groupby([*BLOCK, *ROW]):
        records: list[Any] = group.to_dict("records")
        whole = next((row for row in records if row["variant"] == "full"), None)
        for index, row in zip(group.index, records, strict=True):
            if whole is None or row is whole or pd.isna([row["samples_per_s"], whole["samples_per_s"]]).any():
                continue
            ratio = ratio_of(row, whole)
            if not ratio.exact:
                ends.loc[index] = ratio.low, ratio.high
    return rows.assign(ratio_to_full_low=ends["low"], ratio_to_full_high=ends["high"])


def _verdicts(rows: pd.DataFrame) -> pd.Series:
    verdict = pd.Series(pd.NA, index=rows.index, dtype="string")
    for _, group in rows.groupby([*BLOCK, *ROW]):
        verdict.loc[group.index] = decide(group, "variant")
    return verdict


def layout(frame: pd.DataFrame, *more: str) -> Grid:
    """The paper's layout: rows D and B̂, columns variants, one block per origin and model; ``more``: notes."""
    blocks = []
    for (origin, *_), rows in frame.groupby(BLOCK, sort=False, dropna=False):
        lines = [_line(key, group) for key, group in rows.groupby(ROW, sort=True)]
        blocks.append(Block(title=_heading(str(origin), rows), rows=tuple(lines)))
    own = ", ".join(sorted(set(map(str, frame["variant"].dropna())) - set(VARIANTS)))
    notes = (
        *(
            [f"No column and no bar for {own}, which the paper lacks: see table6_ablation.csv."]
            if own
            else []
        ),
        "Bold: best of the row; underlined: second. Equal: the interval of their ratio lies within 0.5% of "
        "1. Undecided, with neither: with repeats the 90% interval of their ratio within repeats reaches "
        "that far and further; single runs, whose iterations vary, decide nothing. Virtual cells share the "
        "costs of their operations: theirs is the 95% interval over resampled iterations.",
        *more,
        *_comparability(frame),
    )
    header = ("D", "B̂", *(look.name for look in VARIANTS.values()), "best", "remarks")
    return Grid(header=header, blocks=tuple(blocks), notes=notes, text_columns=2)


def _line(key: Any, group: pd.DataFrame) -> tuple[Entry, ...]:
    records: list[Any] = group.to_dict("records")
    by: dict[str, dict[str, Any]] = {row["variant"]: row for row in records}
    values = [_throughput(by.get(name)) for name in VARIANTS]
    verdict = group["verdict"].dropna()
    undecided = len(verdict) > 0 and str(verdict.iloc[0]).startswith("undecided")
    ranked = rank(values, 2)
    if undecided:
        ranked = entries([entry.text for entry in ranked])
    shown = [
        entry if value is not None else Entry(_status(by.get(name)))
        for entry, value, name in zip(ranked, values, VARIANTS, strict=True)
    ]
    batch = group["global_batch"].dropna()
    remarks = [] if group["calibrated"].fillna(True).astype(bool).all() else [_uncalibrated(group)]
    return (
        Entry(str(key[0])),
        Entry(str(int(batch.iloc[0])) if len(batch) else f"N={key[1]}"),
        *shown,
        Entry(_names(str(verdict.iloc[0])) if len(verdict) else "–"),
        *entries([", ".join(remarks)]),
    )


def _uncalibrated(group: pd.DataFrame) -> str:
    off = group["error_percent"].dropna().astype(float)
    if off.empty:
        return "uncalibrated"
    return f"uncalibrated: {off.min():+.1f} to {off.max():+.1f}% off the paper"


def _throughput(row: Mapping[str, Any] | None) -> float | None:
    if row is None or row["status"] != "ok" or pd.isna(row["samples_per_s"]):
        return None
    return float(row["samples_per_s"])


def _status(row: Mapping[str, Any] | None) -> str:
    return "missing" if row is None else str(row["status"])


def _names(verdict: str) -> str:
    for name, look in VARIANTS.items():
        verdict = verdict.replace(name, look.name)
    return verdict


def _heading(origin: str, rows: pd.DataFrame) -> str:
    if origin == Origin.PAPER:
        return "paper"
    models = ", ".join(model(name) for name in sorted(map(str, rows["model"].dropna().unique())))
    clusters = ", ".join(sorted(map(str, rows["cluster"].dropna().unique())))
    links = "".join(sorted(map(str, rows["links"].dropna().unique()))[:1])
    return f"{origin}: {models} on {place(origin, clusters, links)}" if models else origin


def _comparability(frame: pd.DataFrame) -> list[str]:
    ours = frame[frame["origin"] != Origin.PAPER.value]

    def named(origin: str, name: str, cluster: str) -> str:
        same = ours[ours["origin"] == origin]
        one = f"{origin}, {model(name)}" if same["model"].nunique() > 1 else origin
        return f"{one} on {cluster}" if same["cluster"].nunique() > 1 else one

    apart = sorted(
        named(*map(str, key))
        for key, rows in ours.groupby(BLOCK, dropna=False)
        if rows["paper_samples_per_s"].isna().all()
    )
    beside = _beside_null(ours)
    if not apart:
        return beside
    return [
        *beside,
        f"Samples/s of {', '.join(apart)} runs are of another model or other hardware than the paper's: "
        "compare their ratios to the full method within a row (ratio_to_full in the CSV), not the values.",
    ]


def _beside_null(ours: pd.DataFrame) -> list[str]:
    """How far ablations are from the paper's, beside the null model: each as fast as the full method."""
    found = []
    known = ours[ours["error_percent"].notna() & ours["paper_ratio_to_full"].ne(1)]  # w/o M inside a node
    for (origin, calibrated), rows in known.groupby(["origin", known["calibrated"].fillna(True)]):
        error = rows["ratio_error_percent"].astype(float).abs()
        null = 100 * (1 / rows["paper_ratio_to_full"].astype(float) - 1).abs()
        depths = ", ".join(map(str, sorted(rows["depth"].unique())))
        found.append(
            f"{origin}, D = {depths}{'' if calibrated else ' (uncalibrated)'}: ratios to the full method are "
            f"{error.mean():.2f}% off the paper's, worst {error.max():.2f}%; the null model, each as fast as "
            f"the full method, {null.mean():.2f}%, worst {null.max():.2f}%"
            + ("." if error.mean() < null.mean() else ": no skill beyond that.")
        )
    return found
