"""The table of ``ARTIFACT.md``: what every table and figure takes, from the configurations.

Nothing is run: cells are composed and validated as a sweep would, the simulator says how long an
iteration takes on the paper's cluster.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from operator import mul
from pathlib import Path
from typing import Any

from analysis.comparing.verify import SIMULATED, TOLERANCES, VIRTUAL_RATIO
from bitpipe.checkout import ROOT
from experiments.cell import Cell
from experiments.composing.choice import pinned_backend

FILE = ROOT / "ARTIFACT.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"

RECORD_BYTES = 7_000
"""Of a record; each rank adds its entries of the vectors and of a timeline."""
RANK_BYTES = 9_000
SIMULATED_S = 0.12
"""Wall seconds to compose, simulate and write a cell on a laptop."""
START_S, SIMULATION_START_S = 90.0, 3.0
"""Seconds until the ranks of a block on GPUs train, and until a simulation begins."""


_COLUMNS = (
    *("NAME", "cells", "nodes × GPUs", "laptop", "on GPUs", "GPU-hours", "disk"),
    *("file", "tolerance", "claims"),
)
_DRAWINGS = ("fig1_", "fig2_", "fig3_", "fig4_", "fig5_", "fig6_", "fig7_")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One table or figure.

    Attributes:
        id: of experiment and artefact.
        title: one line.
        cells: how many.
        nodes, devices: of the largest cell.
        laptop_s: wall seconds for the simulation.
        cluster_minutes, gpu_hours: predicted for the jobs on the paper's cluster; None where it needs no GPU.
        disk_bytes: of all records, simulated.
        file: the expected one below ``results/``.
        claims: of the paper that rest on it.
    """

    id: str
    title: str
    cells: int
    nodes: int
    devices: int
    laptop_s: float
    cluster_minutes: float | None
    gpu_hours: float | None
    disk_bytes: float
    file: str
    claims: tuple[str, ...]


def rows(only: Collection[str] | None = None) -> list[Row]:
    """One row per artefact that has an experiment (and is among ``only``), in the paper's order."""
    from analysis.claims import CLAIMS
    from analysis.registry import artefacts

    found = []
    for one in artefacts().values():
        has_cells = (ROOT / "conf" / "experiment" / f"{one.id}.yaml").exists()
        if not has_cells or (only is not None and one.id not in only):
            continue
        cells, modelled = _cells(one.id)
        claims = tuple(claim.id for claim in CLAIMS if claim.experiment == one.id)
        found.append(_row(one.id, one.title, cells, modelled, claims))
    return found


def _row(id: str, title: str, cells: Sequence[Cell], on_gpus: bool, claims: tuple[str, ...]) -> Row:
    largest = max(cells, key=lambda cell: cell.job.ranks)
    nodes = largest.layout.nodes
    times = [_seconds(cell) for cell in cells] if on_gpus else []
    return Row(
        id=id,
        title=title,
        cells=len(cells),
        nodes=nodes,
        devices=-(-largest.job.ranks // nodes),
        laptop_s=SIMULATION_START_S + SIMULATED_S * len(cells),
        cluster_minutes=sum(times) / 60 if on_gpus else None,
        gpu_hours=sum(map(mul, times, (cell.job.ranks for cell in cells))) / 3600 if on_gpus else None,
        disk_bytes=sum(RECORD_BYTES + RANK_BYTES * cell.job.ranks for cell in cells),
        file=f"figures/{id}.pdf" if id.startswith(_DRAWINGS) else f"tables/{id}.csv",
        claims=claims,
    )


def _cells(experiment: str) -> tuple[list[Cell], bool]:
    """The cells of an experiment, and whether they run on GPUs: not if it is a simulation by itself."""
    from experiments.composing.compose import cell_of
    from experiments.composing.composition import Composer
    from experiments.composing.notebook import jobs_of

    load = _loader()
    jobs = jobs_of(load, [f"+experiment={experiment}", "backend=simulate"])
    compose = Composer(load)
    cells = {
        cell.id: cell for cell in map(cell_of, map(compose, jobs)) if cell.job.ranks <= cell.cluster.size
    }
    pinned = pinned_backend(ROOT / "conf" / "experiment" / f"{experiment}.yaml")
    return list(cells.values()), pinned != "simulate"


@cache
def _loader() -> Any:
    from hydra import compose, initialize_config_dir

    def load(overrides: list[str]) -> Any:
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            return compose("config", overrides, return_hydra_config=True)

    return load


def _seconds(cell: Cell) -> float:
    """Predicted seconds of a cell on GPUs: its share of a block's start, and twenty iterations.

    By its FLOPs at the calibration's rate, which leaves out bubbles and messages, times two.
    """
    from bitpipe.models import arithmetic

    job = cell.job
    rate = cell.cluster.device.peak_flops * getattr(cell.calibration, "compute_efficiency", 0.35)
    iteration = arithmetic.training_flops(job.model, job.global_batch) / (rate * job.ranks)
    return START_S / 4 + 20 * 2 * iteration


def line(row: Row) -> str:
    """One row as Markdown."""
    gpus = f"{row.nodes} × {row.devices}" if row.gpu_hours is not None else "none"
    minutes = f"{math.ceil(row.cluster_minutes)} min" if row.cluster_minutes is not None else "–"
    hours = f"{row.gpu_hours:.1f}" if row.gpu_hours is not None else "–"
    tolerance = f"{SIMULATED:g}" + (f", virtual {VIRTUAL_RATIO:.0%}" if row.id == "table6_ablation" else "")
    return (
        f"| `{row.id}` | {row.cells} | {gpus} | {math.ceil(row.laptop_s)} s | {minutes} | {hours} "
        f"| {row.disk_bytes / 2**20:.1f} MiB | `{row.file}` | {tolerance} | {', '.join(row.claims) or '–'} |"
    )


def table(found: Sequence[Row]) -> str:
    """The rows as Markdown, with their sum and what the tolerances mean."""
    cells, seconds = sum(row.cells for row in found), math.ceil(sum(row.laptop_s for row in found))
    hours, disk = sum(row.gpu_hours or 0 for row in found), sum(row.disk_bytes for row in found)
    total = f"| all | {cells} | | {seconds} s | | {hours:.1f} | {disk / 2**20:.0f} MiB | `report.html` | | |"
    return "\n".join(
        [
            f"| {' | '.join(_COLUMNS)} |",
            "|---|---:|---:|---:|---:|---:|---:|---|---|---|",
            *map(line, found),
            total,
            "",
            "Tolerances of `python -m analysis verify`:",
            "",
            *(f"- {origin}: {said}" for origin, said in TOLERANCES.items()),
        ]
    )


def updated(text: str, made: str) -> str:
    """``text`` with the table between its two marks replaced."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{made}\n{END}{rest.partition(END)[2]}"


def write() -> Path:
    """Bring ``ARTIFACT.md`` up to date."""
    FILE.write_text(updated(FILE.read_text(encoding="utf-8"), table(rows())), encoding="utf-8")
    return FILE
