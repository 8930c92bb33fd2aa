"""The paper's claims, checked against the records of each origin."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from analysis.claims import balance, printed_paper, schedules, settings, speed
from analysis.claims.claim import Claim, Verdict
from analysis.comparing.grid import Block, Grid, entries
from analysis.comparing.ratio import repeats_needed
from analysis.drawing.output import Rendered, Table
from analysis.load.results import Results

_FOUND = (*schedules.CLAIMS, *speed.CLAIMS, *balance.CLAIMS, *settings.CLAIMS)
CLAIMS: tuple[Claim, ...] = tuple(sorted(_FOUND, key=lambda claim: int(claim.id.removeprefix("C"))))


IN_PART = "in part"
_LEGEND = (
    "Reproduced: our numbers show what the claim says, within the bound that each finding states; not "
    "reproduced: they show otherwise; cannot be told: the cells that it needs are missing, uncalibrated or "
    "too noisy, the model assumes it, or they are no closer to the paper than its null model; in part: its "
    "findings do not all have one verdict; findings: the single comparisons that a "
    "claim is checked by, such as one model at one size against one method."
)


def check(results: Results) -> pd.DataFrame:
    """One row per claim, origin and finding: claim, section, text, origin, model, verdict, paper, ours, note.

    ``model`` is empty where the paper's own is judged.
    """
    return pd.DataFrame(
        [
            {
                "claim": claim.id,
                "section": claim.section,
                "text": claim.text,
                "origin": one.origin,
                "model": one.model,
                "verdict": one.verdict.value,
                "paper": one.paper,
                "ours": one.ours,
                "note": one.note,
            }
            for claim in CLAIMS
            for one in claim.find(results)
        ]
    )


def summary(findings: pd.DataFrame, *notes: str) -> Grid:
    """One row per claim, origin and model that is not the paper's: how many findings have which verdict."""
    rows = []
    verdicts: Counter[str] = Counter()
    for (id, origin, trained), group in findings.groupby(["claim", "origin", "model"], sort=False):
        counts = group["verdict"].value_counts()
        overall = next(iter(counts.index)) if len(counts) == 1 else IN_PART
        verdicts[overall] += 1
        of = _counted(counts)
        rows.append(
            entries([id, group["text"].iloc[0], f"{origin} ({trained})" if trained else origin, overall, of])
        )
    header = ("claim", "text", "origin", "verdict", "findings")
    overall = (
        f"Overall, of {len(rows)} rows (a claim on one origin and model): {_counted(verdicts)}; "
        f"of {len(findings)} findings: {_counted(findings['verdict'].value_counts())}."
    )
    blocks = (Block(title="", rows=tuple(rows)),)
    return Grid(header=header, blocks=blocks, text_columns=5, notes=(_LEGEND, overall, *notes))


def _counted(counts: Counter[str] | pd.Series) -> str:
    """How many have which verdict; verdicts that none has are left out."""
    order = (Verdict.YES, IN_PART, Verdict.NO, Verdict.OPEN)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in order if counts.get(verdict, 0))


def rendered(results: Results) -> Rendered:
    """``claims.csv`` and ``printed_paper.csv`` with their readable forms."""
    findings = check(results)
    needed = repeats_needed(results.cells.to_dict("records"))  # type: ignore[arg-type]
    return Rendered(
        tables=(
            Table(name="claims", title="Claims of the paper", frame=findings),
            Table(
                name="claims_summary",
                title="Claims of the paper, one line each",
                frame=findings.groupby(["claim", "origin", "model", "verdict"], sort=False)
                .size()
                .rename("findings")
                .reset_index(),
                grid=summary(findings, *filter(None, (needed,))),
            ),
            Table(
                name="printed_paper",
                title="What in the printed paper cannot be right",
                frame=printed_paper.frame(),
            ),
        )
    )
