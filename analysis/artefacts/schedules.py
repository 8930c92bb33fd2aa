"""Figures 1, 2, 3, 4, 6 and 7: schedules drawn from the timelines of their records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from analysis.drawing import labels
from analysis.drawing.output import Interactive, Picture, Rendered
from analysis.drawing.timelines import by_origin, panel, placement
from analysis.load.results import Results
from analysis.registry import artefact
from analysis.remarks import remarks
from bitpipe.draw import Panel
from bitpipe.draw.html import fragment
from bitpipe.draw.places import PlacementPart
from bitpipe.draw.sheet import Part, sheet
from bitpipe.draw.timelines import natural_width, timeline_parts
from bitpipe.origin import Origin


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One figure: which cells, from top to bottom, and what they are called.

    Attributes:
        id: of the experiment and the figure.
        title: one line.
        alt: what one sees, for who cannot.
        key: the label by which its cells differ.
        names: label value → title of its panel, in drawing order.
        above: parts to draw above the timelines, given the rows.
    """

    id: str
    title: str
    alt: str
    key: str
    names: dict[str, str]
    above: Callable[[Results, pd.DataFrame], Sequence[Part]] = lambda results, rows: ()


def draw(results: Results, stack: Stack) -> Rendered:
    """One picture and one interactive drawing per origin."""
    pictures, interactive = [], []
    origins = by_origin(results, stack.id)
    for origin, rows in origins:
        panels = _panels(results, rows, stack)
        width = natural_width(panels)
        name = stack.id if origin == Origin.SIMULATED or len(origins) == 1 else f"{stack.id}_{origin}"
        parts = [*stack.above(results, rows), *timeline_parts(panels, width=width)]
        pictures.append(Picture(name=name, title=stack.title, figure=sheet(parts, width), alt=stack.alt))
        interactive.append(Interactive(title=f"{stack.title} ({origin})", html=fragment(panels)))
    notes = remarks(results.experiment(stack.id))
    return Rendered(pictures=tuple(pictures), interactive=tuple(interactive), notes=notes)


def _panels(results: Results, rows: pd.DataFrame, stack: Stack) -> list[Panel]:
    known = {str(row[stack.key]): row for _, row in rows.iterrows()}
    own = {key: labels.method(key).name if stack.key == "method" else key for key in known}
    names = {key: title for key, title in (stack.names | own | stack.names).items() if key in known}
    return [panel(results, known[key], title) for key, title in names.items()]


def _placements(results: Results, rows: pd.DataFrame) -> list[Part]:
    """Figure 1: one direction of each placement, as the paper draws it."""
    parts: list[Part] = []
    for name in ("cyclic", "v"):
        found = rows[rows["placement"] == name]
        if found.empty:
            continue
        row = found.iloc[0]
        two = placement(results, row)
        one = replace(two, routes=two.routes[:1])
        title = {"cyclic": "Cyclic partition", "v": "V partition"}[name]
        parts.append(PlacementPart(placement=one, title=title, micro_batches=int(row["micro_batches"])))
    return parts


def _bitpipe_placement(results: Results, rows: pd.DataFrame) -> list[Part]:
    row = rows.iloc[0]
    title = "Two pipes in opposite directions on the same devices"
    return [
        PlacementPart(placement=placement(results, row), title=title, micro_batches=int(row["micro_batches"]))
    ]


STACKS = (
    Stack(
        id="fig1_partition",
        title="Fig. 1: cyclic and V partition on 2 devices, 4 stages, 2 micro-batches",
        alt="Above, the stages on two devices: cyclic, every hand-over crosses; V, the middle one stays. "
        "Below, the timelines of both.",
        key="placement",
        names={"cyclic": "BitPipe, cyclic partition", "v": "BitPipe, V partition"},
        above=_placements,
    ),
    Stack(
        id="fig2_bitpipe",
        title="Fig. 2: BitPipe's placement and schedule, D=4, N=4",
        alt="Stages of both directions on four devices, and below the timeline of forwards and backwards "
        "of four micro-batches.",
        key="method",
        names={"bitpipe": "BitPipe"},
        above=_bitpipe_placement,
    ),
    Stack(
        id="fig3_schedules",
        title="Fig. 3: DAPPLE, 1F1B-Int, Chimera and BitPipe, D=4, N=4",
        alt="Four timelines on one time axis; BitPipe's ends first and has the least idle time.",
        key="method",
        names={name: labels.method(name).name for name in ("dapple", "1f1b_int", "chimera", "bitpipe")},
    ),
    Stack(
        id="fig4_eager_sync",
        title="Fig. 4: gradient sync after all compute and eager, D=4, N=4",
        alt="Two timelines of BitPipe with all-reduces as bars below the devices: late ones after the last "
        "backward, eager ones inside the bubbles.",
        key="sync",
        names={"late": "Sync after all compute", "eager": "Eager sync"},
    ),
    Stack(
        id="fig6_scaling_n",
        title="Fig. 6: more micro-batches, D=4, N=8",
        alt="Timelines of the unit with four micro-batches, of two units concatenated, and of early forward, "
        "which has the least idle time.",
        key="variant",
        names={
            "unit": "Unit, N=4",
            "concatenated": "Concatenated, N=8",
            "early_forward": "Early forward, N=8",
        },
    ),
    Stack(
        id="fig7_scaling_v",
        title="Fig. 7: more stages, D=4, N=4",
        alt="Timelines of BitPipe with two and four chunks per device and direction; four end earlier.",
        key="chunks",
        names={"2": "v = 2", "4": "v = 4"},
    ),
)


def _register(stack: Stack) -> None:
    artefact(stack.id, title=stack.title)(lambda results: draw(results, stack))


for _stack in STACKS:
    _register(_stack)
