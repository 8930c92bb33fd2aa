"""Figure 5: devices of two pipelines on two nodes, sequential and replica-aware."""

from __future__ import annotations

from analysis.drawing.output import Picture, Rendered
from analysis.drawing.timelines import by_origin, placement
from analysis.load.results import Results
from analysis.registry import artefact
from bitpipe.cluster import RankLayout
from bitpipe.draw.places import LayoutPart
from bitpipe.draw.sheet import Part, sheet

TITLE = "Fig. 5: device mapping of two bidirectional pipelines (D=4, W=2) on two nodes"
NAMES = {
    "sequential": "Sequential",
    "megatron": "Sequential, data-parallel replicas as neighbours (Megatron-LM)",
    "replica_aware": "Replicas of a stage inside one node (BitPipe)",
    "released": "BitPipe's published code",
}


@artefact("fig5_mapping", title=TITLE)
def fig5_mapping(results: Results) -> Rendered:
    """Ranks on nodes for each layout; below, a table of what crosses nodes."""
    rows = by_origin(results, "fig5_mapping")[0][1]
    parts: list[Part] = []
    for name, title in NAMES.items():
        found = rows[rows["layout"] == name]
        if found.empty:
            continue
        row = found.iloc[0]
        layout = RankLayout(
            name=name,
            width=int(row["width"]),
            depth=int(row["depth"]),
            devices_per_node=int(row["devices_per_node"]),
        )
        parts.append(LayoutPart(layout=layout, placement=placement(results, row), title=title))
    picture = Picture(
        name="fig5_mapping",
        title=TITLE,
        figure=sheet(parts, 9.0),
        alt="Eight ranks on two nodes, twice. Sequential: all gradient groups cross nodes, no P2P path "
        "does. Replica-aware: no gradient group crosses, P2P paths do.",
    )
    return Rendered(pictures=(picture,))
