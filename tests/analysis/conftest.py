"""Result folders that several tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from result_folders import BERT, TINY, VARIANTS, Folder, make_cell, make_record

from analysis.paper import printed
from bitpipe.origin import Origin


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "results")


TABLE6_POINTS = [(depth, depth * factor) for depth in (4, 8, 16) for factor in (1, 4)]


@pytest.fixture
def table6(folder: Folder) -> Folder:
    """Table 6 twice: simulated 1% below the paper, and virtual with intervals."""
    paper = printed("table6_ablation").set_index(["depth", "micro_batches", "variant"])["samples_per_s"]
    for origin, model in ((Origin.SIMULATED, BERT), (Origin.VIRTUAL, TINY)):
        cells = []
        for depth, micro_batches in TABLE6_POINTS:
            for variant in VARIANTS:
                cell = make_cell(
                    origin, depth=depth, micro_batches=micro_batches, variant=variant, model=model
                )
                cells.append(cell)
                speed = float(paper[depth, micro_batches, variant])
                if origin is Origin.SIMULATED:
                    folder.add(make_record(cell, 0.99 * speed, calibrated=depth < 16))
                else:
                    batch = cell.job.global_batch
                    times = [batch / speed / 100 * wobble for wobble in (1.2, 1, 1, 1.001, 0.999)]
                    folder.add(make_record(cell, times=times))
        folder.sweep("table6_ablation", cells, stamp=f"20260101-00000{len(origin)}")
    return folder
