"""Table 5 of the Zero Bubble paper (Qi et al., ICLR 2024): its bubble rates beside ours at its own costs."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.claims.claim import Verdict
from analysis.comparing.grid import Block, Grid, entries
from analysis.drawing.output import Rendered, Table
from analysis.load.paper import printed
from analysis.load.results import NoResults, Results
from analysis.registry import artefact
from analysis.remarks import remarks
from bitpipe.origin import Origin

ID = "zero_bubble_table5"
RERUN = f"python run.py +experiment={ID} -m"
TITLE = "Zero Bubble, Table 5: bubble rates at the costs of its Table 9"
DIGITS = 4  # that the paper prints
SETTING = ["setting", "depth", "micro_batches"]
OURS = {"dapple": "1F1B", "zb_h1": "ZB-H1", "zb_h2": "ZB-H2"}
AS_PRINTED = {"1f1b_int": "1F1B-I", "zb_1p": "ZB-1p", "zb_2p": "ZB-2p"}
_NOTES = (
    "Rate: 1 − m(F+I+W)/span, m micro-batches, span the longest of one device from its first start to its "
    "last end. B of 1F1B (here DAPPLE) takes I+W; a transfer delays and keeps no device busy.",
    "1F1B-I is not reproduced: none of 2, 3 and 4 chunks to a device gives its rates at the printed costs. "
    "ZB-1p and ZB-2p are orders that the paper searched for; they are shown as printed.",
)


@artefact(ID, title=TITLE)
def zero_bubble_table5(results: Results) -> Rendered:
    """Every printed rate beside that of our schedule, and whether all four digits agree."""
    rows = results.experiment(ID)
    frame = tidy(rows)
    if frame["value"].isna().all():
        raise NoResults(results.root, f"{ID} with a method that it compares", RERUN)
    table = Table(name=ID, title=TITLE, frame=frame, grid=layout(frame))
    return Rendered(tables=(table,), notes=remarks(rows))


def tidy(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per printed rate: ``paper_value``, our ``value`` (missing where there is none), the verdict.

    A rate is 1 − m(F + I + W) / span, with m micro-batches and the longest span of one device, from its
    first start to its last end. Only simulated cells are at the printed costs.
    """
    ran = rows[rows["status"].eq("ok") & rows["origin"].eq(Origin.SIMULATED.value)].to_dict("records")
    cells = {tuple(row[key] for key in (*SETTING, "method")): row for row in ran}
    found: list[dict[str, Any]] = []
    for row in printed(ID).to_dict("records"):
        setting = {key: row[key] for key in SETTING}
        work = row["micro_batches"] * (1 + (row["input_grad_ms"] + row["weight_grad_ms"]) / row["forward_ms"])
        for name in (*OURS, *AS_PRINTED):
            ours = cells.get((*setting.values(), name))
            value = None if ours is None else 1 - work / ours["metrics"]["span_units"]
            verdict = Verdict.OPEN
            if value is not None:
                verdict = Verdict.YES if round(value, DIGITS) == row[name] else Verdict.NO
            found.append(
                {
                    **setting,
                    "method": name,
                    "paper_value": row[name],
                    "value": value,
                    "origin": None if ours is None else str(ours["origin"]),
                    "verdict": verdict.value,
                    "source": row["source"],
                    "cell": None if ours is None else str(ours["cell"]),
                }
            )
    return pd.DataFrame(found)


def layout(frame: pd.DataFrame) -> Grid:
    """A row per setting: of each method the printed rate and ours, then what is shown as printed only."""
    lines = []
    for key, group in frame.groupby(SETTING, sort=False):
        records: list[Any] = group.to_dict("records")
        by = {row["method"]: row for row in records}
        pairs = [text for name in OURS for text in (f"{by[name]['paper_value']:.4f}", _ours(by[name]))]
        lines.append(entries([*key, *pairs, *(f"{by[name]['paper_value']:.4f}" for name in AS_PRINTED)]))
    told = frame[frame["method"].isin(OURS)]
    agree = told["verdict"].eq(Verdict.YES.value).sum()
    said = f"{agree} of {len(told)} rates reproduced to {DIGITS} digits."
    block = Block(title="arXiv 2401.10241", rows=tuple(lines))
    columns = [column for name in OURS.values() for column in (f"{name}, paper", "simulated")]
    header = ("model", "D", "m", *columns, *(f"{name}, paper" for name in AS_PRINTED.values()))
    return Grid(header=header, blocks=(block,), notes=(said, *_NOTES))


def _ours(row: dict[str, Any]) -> str:
    if pd.isna(row["value"]):
        return "missing"
    return f"{row['value']:.{DIGITS}f}" + ("" if row["verdict"] == Verdict.YES else f" ({row['verdict']})")
