"""What in the printed paper cannot be right, each with the computation that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd

from analysis.artefacts.schedule_claims import figures
from analysis.load.paper import ablation, printed
from analysis.table3_formulas import ROWS, why_activation, why_bubble
from bitpipe.cluster.layout import RankLayout
from bitpipe.schedule import lower_bound, vee

PER_NODE = 8  # devices of a node (section 2.1.1)


class Remark(NamedTuple):
    """One place: where, what is printed, what is computed instead, and why."""

    where: str
    printed: str
    computed: str
    why: str


def frame() -> pd.DataFrame:
    """All remarks, numbered P1, P2, …"""
    rows = [remark for find in FINDERS for remark in find()]
    table = pd.DataFrame(rows, columns=list(Remark._fields))
    table.insert(0, "id", [f"P{place}" for place in range(1, len(rows) + 1)])
    return table


def denominators() -> Iterator[Remark]:
    """Table 3's N+D+1 and 2N+D+1."""
    parts = []
    for method in ("gpipe", "dapple", "1f1b_int"):
        row, found = ROWS[method], figures(method, 8, 16).bubble_ratio
        parts.append(f"{row.title} {found:.4f} (printed {row.bubble(8, 16):.4f})")
    yield Remark(
        "Table 3, bubble ratios",
        "(D−1)/(N+D+1) and (D−1)/(2N+D+1)",
        "D=8 N=16: " + ", ".join(parts),
        f"{why_bubble('gpipe', 8, 16)} {why_bubble('1f1b_int', 8, 16)}",
    )


def middle_bubbles_at_n_is_d() -> Iterator[Remark]:
    """(D−2)/(4N+D−2) at N = D."""
    placement = vee(8, 2).mirrored()
    least = 1 - 3 * 8 / lower_bound(placement, 8)
    early = figures("bitpipe", 8, 16, early_forward=True).bubble_ratio
    row = ROWS["early_forward"]
    yield Remark(
        "section 1.3.2, bubble without the middle ones",
        f"(D−2)/(4N+D−2): {row.bubble(8, 8):.4f} at D=N=8",
        f"no order at D=N=8 is below {least:.4f}; at N=16 the generated one has {early:.4f}, as printed",
        why_bubble("early_forward", 8, 8),
    )


def activation_bounds() -> Iterator[Remark]:
    """Activation ranges of BitPipe and of early forward."""
    least = {d: min(figures("bitpipe", d, d).peak_activation_per_device) for d in (4, 8, 16)}
    yield Remark(
        "Table 3, BitPipe's least activations",
        "(D+3)/2 Ma: " + ", ".join(f"{ROWS['bitpipe'].least(d, d):g} at D={d}" for d in least),  # type: ignore[misc]
        ", ".join(f"{value:g} at D={d}" for d, value in least.items()),
        why_activation("bitpipe", 8, 8, "least"),
    )
    early = {
        d: max(figures("bitpipe", d, 2 * d, early_forward=True).peak_activation_per_device) for d in least
    }
    yield Remark(
        "section 1.5, peak of early forward",
        "(3D−3)/2 Ma: " + ", ".join(f"{ROWS['early_forward'].most(d, 2 * d):g} at D={d}" for d in early),
        ", ".join(f"{value:g} at D={d}" for d, value in early.items()),
        why_activation("early_forward", 8, 16, "most"),
    )


def interleaved_activations() -> Iterator[Remark]:
    """1F1B-Int at N = D and beyond."""
    unit = figures("1f1b_int", 8, 8).peak_activation_per_device
    yield Remark(
        "Table 3, 1F1B-Int's range of activations",
        f"from {ROWS['1f1b_int'].least(8, 8):g} to {ROWS['1f1b_int'].most(8, 8):g} Ma at D=N=8",  # type: ignore[misc]
        f"{min(unit):g} to {max(unit):g} Ma",
        why_activation("1f1b_int", 8, 8, "least"),
    )
    many = figures("1f1b_int", 8, 16).peak_activation_per_device
    yield Remark(
        "Table 3, 1F1B-Int's most activations",
        f"D Ma: {ROWS['1f1b_int'].most(8, 16):g} at D=8",
        f"{max(many):g} Ma at D=8 N=16",
        why_activation("1f1b_int", 8, 16, "most"),
    )


def mapping_loss() -> Iterator[Remark]:
    """Table 6, w/o M at D = 16."""
    rows: list[Any] = ablation().to_dict("records")
    speed = {(row["depth"], row["micro_batches"], row["variant"]): row["samples_per_s"] for row in rows}
    batch = {(row["depth"], row["micro_batches"]): row["global_batch"] for row in rows}
    lost = {
        n: batch[16, n] / speed[16, n, "without_m"] - batch[16, n] / speed[16, n, "full"] for n in (16, 64)
    }
    said = ", ".join(
        f"{speed[16, n, 'full']} and {speed[16, n, 'without_m']} samples/s at N={n}" for n in lost
    )
    yield Remark(
        "Table 6, w/o M at D=16",
        f"full and w/o M: {said}",
        f"per iteration {1000 * lost[16]:.0f} ms lost at N=16 and {1000 * lost[64]:.0f} ms at N=64, "
        f"{lost[64] / lost[16]:.1f} times as much",
        "There is one gradient sync per iteration, whatever N is.",
    )


def concatenation() -> Iterator[Remark]:
    """C4 at N > D as Fig. 6b draws it."""
    found = figures("bitpipe", 4, 8)
    ratio = ROWS["bitpipe"].bubble(4, 8)
    yield Remark(
        "section 1.5 and Fig. 6b, C4 at N > D",
        f"(D−2)/(3N+D−2) = {ratio:.4f}, that is {3 * 8 / (1 - ratio):g} units at D=4 N=8",
        f"{found.makespan:g} units; {found.lower_bound:g} is the least for its peak of "
        f"{max(found.peak_activation_per_device):g} Ma",
        why_bubble("bitpipe", 4, 8),
    )


def headline() -> Iterator[Remark]:
    """1.05× to 1.28×."""
    table = printed("speedups")
    column = "mean_speedup_of_bitpipe"
    low = table.sort_values(column).iloc[0]
    yield Remark(
        "abstract, 1.05× to 1.28×",
        "1.05× to 1.28× over the other synchronous methods",
        f"{table[column].min():.2f}× to {table[column].max():.2f}× over the twelve printed means",
        f"The smallest, {low['model']} against {low['compared_with']} on {low['gpus']} GPUs, is left out.",
    )


def one_node() -> Iterator[Remark]:
    """Section 2.2.1's traffic between nodes."""
    layout = RankLayout(name="replica_aware", width=1, depth=8, devices_per_node=PER_NODE)
    yield Remark(
        "section 2.2.1, a trend on 8 GPUs explained by traffic between nodes",
        "traffic between nodes",
        f"8 ranks of W=1 D=8 fill {layout.nodes} node of {PER_NODE}",
        "There is no traffic between nodes on one node.",
    )


def sync_over_infiniband() -> Iterator[Remark]:
    """Fig. 11's gradient sync over InfiniBand."""
    spans = {(d, w): _nodes_of_a_stage(d, w) for d, w in ((16, 2), (8, 4), (4, 8))}
    yield Remark(
        "Fig. 11, too large a D moves the gradient sync to InfiniBand",
        "the sync crosses nodes when D is large",
        "; ".join(
            f"D={d} W={w}: {2 * w} replicas of a stage on {nodes} node{'s' * (nodes > 1)}"
            for (d, w), nodes in spans.items()
        ),
        "With the mapping of section 1.4.2 it is a small D, hence a large W, that spreads a stage.",
    )


def batch_at_32() -> Iterator[Remark]:
    """Section 2.2.2's larger B at 32 GPUs."""
    table = printed("table5_best")
    rows = table[(table["model"] == "bert-64") & (table["method"] == "1f1b-int")].set_index("gpus")
    sizes = rows["micro_batch"].to_dict()
    yield Remark(
        "section 2.2.2, 1F1B-Int's peak rises at 32 GPUs because of a larger B",
        "a larger B",
        "Table 5 lists B = " + ", ".join(f"{size} at {gpus} GPUs" for gpus, size in sizes.items()),
        "Its B at 32 GPUs is the smaller one.",
    )


def _nodes_of_a_stage(depth: int, width: int) -> int:
    """Most nodes over which the replicas of one stage (both directions, all W) lie."""
    layout = RankLayout(name="replica_aware", width=width, depth=depth, devices_per_node=PER_NODE)
    placement = vee(depth, 2).mirrored()
    spans = []
    for stage in range(placement.stages):
        devices = placement.replicas(stage)
        spans.append({layout.node(layout.rank(w, d)) for w in range(width) for d in devices})
    return max(map(len, spans))


FINDERS = (
    denominators,
    middle_bubbles_at_n_is_d,
    activation_bounds,
    interleaved_activations,
    mapping_loss,
    concatenation,
    headline,
    one_node,
    sync_over_infiniband,
    batch_at_32,
)
