"""Table 3 as printed: bubble ratios and memory as formulas in D and N, and why some cannot hold.

Sources: Table 3 (section 1.3.2 and 1.3.3), section 1.5 for early forward. Activations are in
Ma, one micro-batch's on one stage; weights in Mθ, those of one stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Formula = Callable[[int, int], float]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the table.

    Attributes:
        title: the method.
        bubble, bubble_text: the printed bubble ratio.
        least, most: the printed range of peak activations over devices.
        weights: copies of a stage's weights on a device.
    """

    title: str
    bubble: Formula
    bubble_text: str
    least: Formula | None
    most: Formula
    weights: int


ROWS = {
    "gpipe": Row(
        title="GPipe",
        bubble=lambda d, n: (d - 1) / (n + d + 1),
        bubble_text="(D−1)/(N+D+1)",
        least=lambda d, n: n,
        most=lambda d, n: n,
        weights=1,
    ),
    "dapple": Row(
        title="DAPPLE",
        bubble=lambda d, n: (d - 1) / (n + d + 1),
        bubble_text="(D−1)/(N+D+1)",
        least=lambda d, n: 1,
        most=lambda d, n: d,
        weights=1,
    ),
    "1f1b_int": Row(
        title="1F1B-Int",
        bubble=lambda d, n: (d - 1) / (2 * n + d + 1),
        bubble_text="(D−1)/(2N+D+1)",
        least=lambda d, n: (d + 1) / 2,
        most=lambda d, n: d,
        weights=1,
    ),
    "chimera": Row(
        title="Chimera",
        bubble=lambda d, n: (d - 2) / (1.5 * n + d - 2),
        bubble_text="(D−2)/(3N/2+D−2)",
        least=lambda d, n: (d + 2) / 2,
        most=lambda d, n: d,
        weights=2,
    ),
    "bitpipe": Row(
        title="BitPipe",
        bubble=lambda d, n: (d - 2) / (3 * n + d - 2),
        bubble_text="(D−2)/(3N+D−2)",
        least=lambda d, n: (d + 3) / 2,
        most=lambda d, n: d,
        weights=2,
    ),
    "early_forward": Row(
        title="BitPipe, early forward",
        bubble=lambda d, n: (d - 2) / (4 * n + d - 2),
        bubble_text="(D−2)/(4N+D−2)",
        least=None,
        most=lambda d, n: (3 * d - 3) / 2,
        weights=2,
    ),
}


def why_bubble(method: str, depth: int, micro_batches: int) -> str:
    """Why the printed bubble ratio is not that of the schedule, in one sentence; empty if unknown."""
    if method in ("gpipe", "dapple"):
        return "An iteration takes N+D−1 slots of a forward and a backward: (D−1)/(N+D−1), −1 instead of +1."
    if method == "1f1b_int":
        return "An iteration takes 2N+D−1 half slots: (D−1)/(2N+D−1), −1 instead of +1."
    if method == "chimera" and micro_batches > depth:
        return (
            "K = N/D units one after another take 3N+(K+1)(D−2); the printed ratio needs doubled forwards, "
            "which hold 2D Ma."
        )
    if method == "bitpipe" and micro_batches > depth:
        return (
            "The K−1 seams between K = N/D concatenated units cost (D−3)/2 each beyond the printed formula, "
            "which is that of one unit and at peak D·Ma a lower bound."
        )
    if method == "early_forward" and micro_batches <= depth:
        return "At N = D there are no further forwards to fill the middle with; exact from N = 2D on."
    return ""


def why_activation(method: str, depth: int, micro_batches: int, bound: str) -> str:
    """Why a printed bound (``least`` or ``most``) on activations differs; empty if unknown."""
    if method == "1f1b_int" and micro_batches == depth:
        return "At N = D Megatron's order is all warm-up: every device holds D micro-batches' activations."
    if method == "1f1b_int" and bound == "most":
        return "Device 0 warms up with 2(D−1)+D chunks and one more: (3D−1)/2 Ma for N > D."
    if method == "bitpipe" and bound == "least" and micro_batches > depth:
        return (
            "Where units meet, the next one's forwards start early, so the outer devices hold more than the "
            "(3D+2)/4 Ma of one unit; the printed (D+3)/2 is right only at D = 4 in one unit."
        )
    if method == "bitpipe" and bound == "least":
        return "The outer devices hold (3D+2)/4 Ma, which equals the printed (D+3)/2 only at D = 4."
    if method == "early_forward" and micro_batches <= depth:
        return "At N = D the order is the unit's, which holds at most D Ma."
    if method == "early_forward":
        return "The smallest peak without middle bubbles is (5D−2)/4 Ma; it equals (3D−3)/2 only at D = 4."
    return ""
