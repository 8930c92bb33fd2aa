"""Where things are: stages on devices (a placement), devices on nodes (a rank layout)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import FancyArrowPatch

from bitpipe.cluster.layout import RankLayout
from bitpipe.draw.look import IDLE, INK, look
from bitpipe.draw.sheet import LEFT, TITLE
from bitpipe.draw.timelines import paint_boxes
from bitpipe.schedule.action import Action, Kind, pipe_mark, pipe_word
from bitpipe.schedule.placement import Placement

NEAR, FAR = "#1f5fa8", "#c0392b"
CELL, CELL_HIGH, PITCH, NOTE = 0.62, 0.25, 0.46, 0.24  # inches
Point = tuple[float, float]


def crossings(placement: Placement) -> tuple[int, int]:
    """How many of one micro-batch's forward hand-overs cross devices, and how many stay on one.

    A backward takes the same way back, so a micro-batch causes twice the first number of
    transfers. Both pipes have the same numbers.
    """
    path = placement.routes[0]
    far = sum(a != b for a, b in pairwise(path))
    return far, placement.stages - 1 - far


@dataclass(frozen=True, kw_only=True)
class PlacementPart:
    """Stages on devices: a column per device, a row per pipe and chunk, the way of a micro-batch.

    Attributes:
        placement: what to draw.
        title: one line above.
        micro_batches: how many micro-batches the note below counts transfers for.
        chunks: how many chunks are told apart on the whole sheet (0: as many as there are).
    """

    placement: Placement
    title: str
    micro_batches: int = 1
    chunks: int = 0

    def height(self, width: float) -> float:
        rows = len(self.placement.pipes) * self.placement.chunks
        return TITLE + NOTE + rows * PITCH + NOTE

    def paint(self, axes: Axes, width: float) -> None:
        """Devices, stages, arrows, and a note that counts the transfers."""
        placement = self.placement
        axes.text(0, TITLE * 0.4, self.title, fontsize=9, fontweight="bold", va="center")
        column = min((width - LEFT) / placement.depth, 1.7)
        top = TITLE + NOTE

        def centre(pipe: int, stage: int) -> Point:
            row = pipe * placement.chunks + stage // placement.depth
            return LEFT + (placement.device(pipe, stage) + 0.5) * column, top + (row + 0.5) * PITCH

        rows = len(placement.pipes) * placement.chunks
        for device in range(placement.depth):
            left = LEFT + device * column
            corners = _rectangle(left + 0.08, top, left + column - 0.08, top + rows * PITCH)
            axes.add_collection(
                PolyCollection([corners], facecolors=IDLE, edgecolors="#9a9a9a", linewidths=0.6, zorder=0)
            )
            axes.text(
                left + column / 2, top - NOTE / 2, f"device {device}", fontsize=8, ha="center", va="center"
            )
        for pipe in placement.pipes:
            for stage in range(placement.stages):
                x, y = centre(pipe, stage)
                action = Action(Kind.F, 0, stage, pipe)
                appearance = look(action, stage // placement.depth, self.chunks or placement.chunks)
                half = CELL_HIGH / 2
                paint_boxes(axes, appearance, [(x - CELL / 2, y - half, x + CELL / 2, y + half)])
                style: dict[str, Any] = {"fontweight": "bold", "fontstyle": "italic"} if appearance.up else {}
                box: dict[str, Any] = {"facecolor": appearance.fill, "edgecolor": "none", "pad": 0.8}
                axes.text(
                    x,
                    y,
                    f"s{stage}",
                    fontsize=8,
                    ha="center",
                    va="center_baseline",
                    bbox=box,
                    zorder=5,
                    **style,
                )
                if stage:
                    self._arrow(axes, centre(pipe, stage - 1), (x, y))
            for chunk in range(placement.chunks):
                y = top + (pipe * placement.chunks + chunk + 0.5) * PITCH
                parts = [pipe_word(pipe)] if placement.bidirectional else []
                parts += [f"chunk {chunk}"] if placement.chunks > 1 else []
                label = ", ".join(parts)
                axes.text(LEFT - 0.03, y, label, fontsize=7.5, ha="right", va="center")
        axes.text(0, top + rows * PITCH + NOTE * 0.6, self.note(), fontsize=7.5, va="center")

    def note(self) -> str:
        """The sentence below the drawing."""
        far, near = crossings(self.placement)
        text = f"{far} of {far + near} hand-overs cross devices (solid)"
        if near:
            text += f", {near} stay{'s' if near == 1 else ''} on one (dotted)"
        batches = "a micro-batch" if self.micro_batches == 1 else f"{self.micro_batches} micro-batches"
        return f"{text}: {2 * far * self.micro_batches} transfers for {batches}, backward included"

    @staticmethod
    def _arrow(axes: Axes, begin: Point, end: Point) -> None:
        (x0, y0), (x1, y1) = begin, end
        local = x0 == x1
        if y0 == y1:  # along a row: from edge to edge
            step = CELL / 2 if x1 > x0 else -CELL / 2
            x0, x1 = x0 + step, x1 - step
        else:  # to the next row: from lower to upper edge
            y0, y1 = y0 + CELL_HIGH / 2, y1 - CELL_HIGH / 2
        axes.add_patch(
            FancyArrowPatch(
                (x0, y0),
                (x1, y1),
                arrowstyle="-|>",
                mutation_scale=8,
                shrinkA=0,
                shrinkB=0,
                linewidth=1.3 if local else 1.0,
                linestyle=(0, (1, 1)) if local else "-",
                color=INK,
                zorder=4,
            )
        )


@dataclass(frozen=True, kw_only=True)
class LayoutPart:
    """Devices of W pipelines on nodes: P2P above the ranks, gradient all-reduces below.

    Attributes:
        layout: which rank runs which device.
        placement: which stages the devices hold.
        title: one line above.
    """

    layout: RankLayout
    placement: Placement
    title: str

    ARCS, BOX, BUS = 0.5, 0.62, 0.2

    def groups(self) -> dict[tuple[int, ...], list[int]]:
        """Ranks that reduce a gradient together → the stages whose gradient it is."""
        found: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for stage in range(self.placement.stages):
            devices = self.placement.replicas(stage)
            ranks = (self.layout.rank(w, d) for w in range(self.layout.width) for d in devices)
            found[tuple(sorted(ranks))].append(stage)
        return {ranks: stages for ranks, stages in found.items() if len(ranks) > 1}

    def links(self) -> list[tuple[int, int]]:
        """Pairs of ranks that exchange activations and gradients."""
        pairs = set()
        for pipe in self.placement.pipes:
            path = self.placement.routes[pipe]
            for a, b in pairwise(path):
                for w in range(self.layout.width):
                    if a != b:
                        first, second = sorted((self.layout.rank(w, a), self.layout.rank(w, b)))
                        pairs.add((first, second))
        return sorted(pairs)

    def _crosses(self, ranks: tuple[int, ...]) -> bool:
        return len({self.layout.node(rank) for rank in ranks}) > 1

    def height(self, width: float) -> float:
        return TITLE + NOTE + self.ARCS + self.BOX + len(self.groups()) * self.BUS + 0.1 + NOTE

    def paint(self, axes: Axes, width: float) -> None:
        """Nodes, ranks, arcs, buses, and a note that counts what crosses nodes."""
        layout = self.layout
        axes.text(0, TITLE * 0.4, self.title, fontsize=9, fontweight="bold", va="center")
        gap = 0.22
        column = min((width - gap * layout.nodes) / layout.size, 1.3)

        def x(rank: float) -> float:
            return gap / 2 + (rank + 0.5) * column + gap * layout.node(int(rank))

        boxes = TITLE + NOTE + self.ARCS
        bottom = boxes + self.BOX + len(self.groups()) * self.BUS + 0.1
        for node in range(layout.nodes):
            first = node * layout.devices_per_node
            last = min(first + layout.devices_per_node, layout.size) - 1
            left, right = x(first) - column / 2 - 0.04, x(last) + column / 2 + 0.04
            corners = _rectangle(left, TITLE, right, bottom)
            axes.add_collection(
                PolyCollection([corners], facecolors=IDLE, edgecolors="#777777", linewidths=0.8, zorder=0)
            )
            axes.text(
                left + 0.06, TITLE + NOTE / 2, f"node {node}", fontsize=8, fontweight="bold", va="center"
            )
        for rank, (replica, device) in enumerate(layout.places):
            self._rank(axes, x(rank), boxes, column, rank, replica, device)
        for a, b in self.links():
            far = self._crosses((a, b))
            rise = -min(0.16 + 0.05 * (b - a), 0.42)
            axes.add_patch(
                FancyArrowPatch(
                    (x(a), boxes),
                    (x(b), boxes),
                    arrowstyle="-",
                    connectionstyle=f"arc3,rad={rise * 2 / (x(b) - x(a)):.4f}",
                    shrinkA=0,
                    shrinkB=0,
                    linewidth=1.0,
                    linestyle=(0, (4, 2)) if far else "-",
                    color=FAR if far else NEAR,
                    zorder=3,
                )
            )
        for lane, (ranks, stages) in enumerate(self.groups().items()):
            self._bus(axes, [x(rank) for rank in ranks], boxes + self.BOX, lane, ranks, stages, column)
        axes.text(gap / 2, bottom + NOTE / 2, self.note(), fontsize=8, va="center")

    def _rank(
        self, axes: Axes, x: float, top: float, column: float, rank: int, replica: int, device: int
    ) -> None:
        half = column / 2 - 0.05
        chunk = min(device, self.layout.depth - 1 - device)
        fill = look(Action(Kind.F, 0, 0, 0), chunk, (self.layout.depth + 1) // 2).fill
        corners = _rectangle(x - half, top, x + half, top + self.BOX)
        axes.add_collection(
            PolyCollection([corners], facecolors=fill, edgecolors=INK, linewidths=0.6, zorder=2)
        )
        lines = [f"rank {rank}", f"pipeline {replica}, device {device}"]
        held: dict[int, list[int]] = defaultdict(list)
        for pipe, stage in self.placement.held[device]:
            held[pipe].append(stage)
        lines.append("  ".join(f"{pipe_mark(p)}: {_stages(stages)}" for p, stages in held.items()))
        for index, line in enumerate(lines):
            y = top + self.BOX * (index + 0.5) / 3
            weight = "bold" if index == 0 else "normal"
            axes.text(x, y, line, fontsize=6.5, ha="center", va="center", fontweight=weight, zorder=4)

    def _bus(
        self,
        axes: Axes,
        xs: list[float],
        top: float,
        lane: int,
        ranks: tuple[int, ...],
        stages: list[int],
        column: float,
    ) -> None:
        y = top + (lane + 0.75) * self.BUS
        far = self._crosses(ranks)
        line: dict[str, Any] = {
            "color": FAR if far else NEAR,
            "linewidth": 1.6,
            "linestyle": (0, (4, 2)) if far else "-",
        }
        axes.plot([min(xs), max(xs)], [y, y], zorder=3, **line)
        for x in xs:
            axes.plot([x, x], [top, y], linewidth=0.7, color=line["color"], zorder=1)
            axes.plot([x], [y], marker="o", markersize=3.2, color=line["color"], zorder=4)
        middle = (xs[0] + xs[1]) / 2
        box: dict[str, Any] = {"facecolor": IDLE, "edgecolor": "none", "pad": 0.6}
        axes.text(middle, y, _stages(stages), fontsize=6.5, ha="center", va="center", bbox=box, zorder=5)

    def note(self) -> str:
        """The sentence below the drawing."""
        groups, links = self.groups(), self.links()
        sync = sum(self._crosses(ranks) for ranks in groups)
        p2p = sum(self._crosses(pair) for pair in links)
        return (
            f"Across nodes (dashed): {sync} of {len(groups)} gradient groups (below the ranks), "
            f"{p2p} of {len(links)} P2P paths (above)"
        )


def _stages(stages: list[int]) -> str:
    return " ".join(f"s{stage}" for stage in stages)


def _rectangle(x0: float, y0: float, x1: float, y1: float) -> list[Point]:
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
