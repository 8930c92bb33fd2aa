from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from result_folders import (
    BERT,
    TABLE6_POINTS,
    TINY,
    VARIANTS,
    Folder,
    make_cell,
    make_record,
    table6_folder,
)

from analysis.__main__ import main
from analysis.artefacts.table6 import layout, table6_ablation, tidy
from analysis.artefacts.table6_figures import throughput_picture
from analysis.comparing.grid import to_markdown
from analysis.load.paper import ablation
from analysis.load.results import Results
from analysis.remarks import remarks
from bitpipe.origin import Origin
from experiments.cell import Cell
from experiments.records.record import Status

Capture = pytest.CaptureFixture[str]


def command(folder: Folder, *more: str) -> int:
    return main(["table6_ablation", "--results", str(folder.root), *more])


def table(folder: Folder) -> pd.DataFrame:
    return tidy(Results(folder.root).experiment("table6_ablation"), ablation())


def notes(folder: Folder) -> str:
    return "\n".join(remarks(Results(folder.root).experiment("table6_ablation")))


def test_one_row_per_cell_and_origin_with_the_papers_beside(table6: Folder) -> None:
    frame = table(table6)
    assert frame.groupby("origin").size().to_dict() == {"paper": 24, "simulated": 24, "virtual": 24}
    simulated = frame[frame["origin"] == "simulated"]
    assert simulated["error_percent"].to_numpy() == pytest.approx(-1.0)
    first = ["depth", "global_batch", "variant", "origin", "samples_per_s", "paper_samples_per_s"]
    assert list(frame.columns[:8]) == [*first, "error_percent", "status"]


def test_a_tiny_virtual_model_is_compared_by_ratios_only(table6: Folder) -> None:
    virtual = table(table6).query("origin == 'virtual'")
    assert virtual["paper_samples_per_s"].isna().all()
    assert virtual["error_percent"].isna().all()
    assert virtual["ratio_error_percent"].abs().max() < 1e-6
    assert "compare their ratios" in to_markdown(layout(table(table6)))


def test_markdown_is_laid_out_like_the_paper(table6: Folder) -> None:
    lines = to_markdown(layout(table(table6))).splitlines()
    assert "| D | B̂ | w/o V | w/o E | w/o M | BitPipe | best | remarks |" in lines
    paper = lines[lines.index("| *paper* |  |  |  |  |  |  |  |") + 6]
    assert paper == "| 16 | 256 | 55.96 | <u>57.05</u> | 55.23 | **57.44** | BitPipe |  |"
    simulated = [line for line in lines if "uncalibrated:" in line]
    assert len(simulated) == 2
    assert all(line.startswith("| 16 ") for line in simulated)


def test_an_accuracy_stands_beside_its_null(table6: Folder) -> None:
    """D=16: 2.98 % and at worst 4.35 % for whoever says that nothing matters."""
    text = to_markdown(layout(table(table6)))
    assert "simulated, D = 16 (uncalibrated): ratios to the full method are 0.00% off" in text
    assert "2.98%, worst 4.35%" in text
    assert "1.25%, worst 4.04%" in text


def test_overlapping_intervals_are_undecided(folder: Folder) -> None:
    full, without_v = (make_cell(Origin.VIRTUAL, variant=name, model=BERT) for name in ("full", "without_v"))
    folder.add(
        make_record(full, times=[1, 1, 1, 1.00, 1.02]), make_record(without_v, times=[1, 1, 1, 1.01, 1.03])
    )
    folder.sweep("table6_ablation", [full, without_v])
    verdicts = table(folder).query("origin == 'virtual'")["verdict"].unique()
    assert list(verdicts) == ["undecided: without_v, full"]
    (line,) = (line for line in to_markdown(layout(table(folder))).splitlines() if "undecided:" in line)
    assert line.startswith("| 4 | 16 | 15.69 | missing | missing | 15.84 | undecided: w/o V, BitPipe |")


@pytest.mark.parametrize(
    ("without_e", "verdict"),
    [
        (1.004, "equal: without_v, without_e, full"),
        (1.02, "equal: without_v, full"),
    ],
)
def test_virtual_cells_that_share_costs_are_decided_by_resamples_of_them(
    without_e: float, verdict: str, folder: Folder
) -> None:
    """Their times scatter by 20 %, their ratios by 0.01 %."""
    noise = np.random.default_rng(0)
    costs = noise.normal(1.0, 0.2, 100)
    cells = []
    for name, factor in (("full", 1.0), ("without_v", 1.0005), ("without_e", without_e)):
        cell = make_cell(Origin.VIRTUAL, variant=name, model=BERT)
        own = factor * costs * noise.normal(1.0, 1e-4, 100)
        shared = {"bootstrap_seconds": list(own), "measurement": "m"}
        folder.add(make_record(cell, times=[factor] * 5, **shared))
        cells.append(cell)
    folder.sweep("table6_ablation", cells)
    rows = table(folder).query("origin == 'virtual'").set_index("variant")
    rows = rows[rows["status"] == "ok"]
    assert set(rows["verdict"]) == {verdict}
    low, high = (rows["ratio_to_full_" + end]["without_e"] for end in ("low", "high"))
    assert low < 1 / without_e < high
    assert high - low < 0.002


def test_failed_oom_and_missing_cells_are_shown_as_such(folder: Folder) -> None:
    cells = {name: make_cell(variant=name) for name in VARIANTS}
    folder.add(make_record(cells["full"], 19.0))
    folder.add(make_record(cells["without_v"], status=Status.OOM))
    folder.add(make_record(cells["without_e"], status=Status.FAILED))
    folder.sweep("table6_ablation", cells.values())
    frame = table(folder).query("origin == 'simulated'").set_index("variant")
    assert frame["status"].to_dict() == {
        "without_v": "oom",
        "without_e": "failed",
        "without_m": "missing",
        "full": "ok",
    }
    assert "1 of 4 cells are oom: does not fit" in notes(folder)
    assert "1 of 4 cells are missing" in notes(folder)


def test_mixed_and_dirty_revisions_are_named(folder: Folder) -> None:
    full, without_v = make_cell(), make_cell(variant="without_v")
    folder.add(
        make_record(full, 19.0, revision="a" * 40),
        make_record(without_v, 18.0, revision="b" * 40, dirty=True),
    )
    folder.sweep("table6_ablation", [full, without_v])
    assert "simulated: cells of 2 revisions (aaaaaaaaaa, bbbbbbbbbb)" in notes(folder)
    assert "1 of 2 cells ran from a working tree with changes" in notes(folder)


def test_another_models_sweep_replaces_the_older_one_and_a_partial_sweep_completes_it(folder: Folder) -> None:
    old = make_cell(model=TINY)
    first, second = make_cell(), make_cell(variant="without_v")
    folder.add(make_record(old, 5.0), make_record(first, 19.0), make_record(second, 18.0))
    folder.sweep("table6_ablation", [old], stamp="20260101-000000")
    folder.sweep("table6_ablation", [first], stamp="20260102-000000")
    folder.sweep("table6_ablation", [second], stamp="20260103-000000")
    frame = table(folder).query("origin == 'simulated'")
    assert set(frame["cell"]) == {first.id, second.id}


def test_without_results_one_clear_line_and_a_failing_exit(folder: Folder, capsys: Capture) -> None:
    assert command(folder) == 2
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0
    assert "holds no record of table6_ablation" in error
    assert "python run.py +experiment=table6_ablation -m" in error


def test_an_unknown_table_names_the_nearest(capsys: Capture) -> None:
    assert main(["table6_ablatoin"]) == 2
    assert "did you mean table6_ablation?" in capsys.readouterr().err


def test_the_command_writes_every_format_and_a_second_time_the_same_bytes(folder: Folder) -> None:
    table6_folder(folder, TABLE6_POINTS[:1])

    def files() -> dict[str, bytes]:
        paths = [*folder.root.glob("tables/*"), *folder.root.glob("figures/*")]
        return {path.name: path.read_bytes() for path in paths}

    assert command(folder) == 0
    first = files()
    for stem in ("table6_ablation", "table6_ablation_memory"):
        suffixes = {Path(name).suffix for name in first if Path(name).stem == stem}
        assert suffixes == {".csv", ".md", ".tex", ".pdf", ".png", ".svg"}
    assert b"/FontFile2" in first["table6_ablation.pdf"]  # fonts lie in the file
    assert b"<text" not in first["table6_ablation.svg"]  # glyphs as outlines
    command(folder)
    assert files() == first


def test_ratios_are_formed_within_each_repeat(tmp_path: Path) -> None:
    """Each repeat is slower than the one before, and the variant always takes twice full's time."""
    folder, cells = Folder(tmp_path / "results"), []
    for variant, slower in (("full", 1.0), ("without_v", 2.0)):
        cells.append(make_cell(Origin.MEASURED, variant=variant))
        times = [slower * pace for pace in (1.0, 1.5, 2.0) for _ in range(cells[-1].job.iterations)]
        more = {"repeats": 3, "measurement": "m", "samples_per_s_low": 0.1, "samples_per_s_high": 99.0}
        folder.add(make_record(cells[-1], times=times, **more))
    row = table(folder.sweep("table6_ablation", cells)).query("variant == 'without_v'").iloc[-1]
    assert row["origin"] == "measured"
    assert (row["ratio_to_full_low"], row["ratio_to_full_high"]) == pytest.approx((0.5, 0.5))
    assert (row["samples_per_s_low"], row["samples_per_s_high"]) == (0.1, 99.0)
    assert row["verdict"] == "full"  # though the two intervals overlap


def test_a_sweep_of_another_model_stands_beside_the_papers(table6: Folder) -> None:
    """Also one that ``scale=fit`` shrank, which keeps its name."""
    shrunk = make_cell(model=replace(BERT, hidden=256))
    table6.add(make_record(shrunk, 400.0)).sweep("table6_ablation", [shrunk], stamp="20260201-000000")
    assert command(table6) == 0
    text = (table6.root / "tables" / "table6_ablation.md").read_text()
    assert "simulated: BERT-64 on a800" in text
    assert "simulated: bert_64 shrunk to 64 layers, hidden 256 on a800" in text
    assert "virtual: bert_tiny on CPU, links scaled from a800" in text
    frame = pd.read_csv(table6.root / "tables" / "table6_ablation.csv").query("origin == 'simulated'")
    assert frame.groupby("model").size().to_dict() == {
        "bert_64": 24,
        "bert_64 shrunk to 64 layers, hidden 256": 1,
    }
    assert frame[frame["cell"] == shrunk.id]["error_percent"].isna().all()
    assert "uncalibrated: -1.0 to -1.0% off the paper" in text


def figure_of(folder: Folder) -> Figure:
    (picture,) = throughput_picture(table(folder))
    picture.figure.draw_without_rendering()
    return picture.figure


def y_labels(figure: Figure) -> list[str]:
    return [axes.get_ylabel().replace("\n", " ") for axes in figure.axes if axes.get_ylabel()]


def test_the_figure_has_panels_for_the_rows_that_ran(folder: Folder) -> None:
    figure = figure_of(table6_folder(folder, TABLE6_POINTS[:2]))
    assert [axes.get_title() for axes in figure.axes if axes.get_title()] == ["D=4, N=4", "D=4, N=16"]


def test_each_origins_ratios_have_a_row_and_a_range_of_their_own(folder: Folder) -> None:
    figure = figure_of(table6_folder(folder, TABLE6_POINTS[:2]))
    assert y_labels(figure) == [
        "throughput (samples/s)",
        "simulated BERT-64 on a800 against full (%)",
        "virtual bert_tiny against full (%)",
    ]
    bars, simulated, virtual = (axes.get_shared_y_axes() for axes in figure.axes[::2])
    assert not simulated.joined(figure.axes[2], figure.axes[4])
    assert bars.joined(figure.axes[0], figure.axes[1])
    assert virtual.joined(figure.axes[4], figure.axes[5])


def on_another_cluster(variant: str, **settings: Any) -> Cell:
    cell = make_cell(variant=variant, **settings)
    device = replace(cell.cluster.device, name="H100 80GB SXM")
    return replace(cell, cluster=replace(cell.cluster, name="h100", device=device))


def test_without_a_run_beside_the_papers_no_panel_shows_the_papers_bars_alone(folder: Folder) -> None:
    cells = [on_another_cluster(name) for name in VARIANTS]
    folder.add(*(make_record(cell, 30.0 + place) for place, cell in enumerate(cells)))
    figure = figure_of(folder.sweep("table6_ablation", cells))
    assert y_labels(figure) == ["simulated BERT-64 on h100 against full (%)"]
    assert not any(axes.containers for axes in figure.axes)
    assert not any(isinstance(handle, Patch) for handle in figure.legends[0].legend_handles)


def test_a_point_without_a_run_beside_the_papers_has_no_bars(folder: Folder) -> None:
    cells = [make_cell(variant=name) for name in VARIANTS]
    cells += [on_another_cluster(name, micro_batches=16) for name in VARIANTS]
    folder.add(*(make_record(cell, 30.0 + place) for place, cell in enumerate(cells)))
    figure = figure_of(folder.sweep("table6_ablation", cells))
    first, second = figure.axes[:2]
    assert first.containers
    assert not second.containers
    assert not second.axison


def test_traffic_is_a_table_by_kind_link_and_mapping(folder: Folder) -> None:
    """C20: what the mapping moves from one class of links to the other."""
    sent = {"full": "gradient_sync/intra", "without_m": "gradient_sync/inter"}
    for name, path in sent.items():
        cell = make_cell(variant=name)
        folder.add(make_record(cell, 20.0, traffic_bytes={path: 3 * 2**30}, traffic_messages={path: 8}))
    folder.sweep("table6_ablation", [make_cell(variant=name) for name in sent])
    table = {one.name: one for one in table6_ablation(Results(folder.root)).tables}["traffic"]
    rows = table.frame.set_index("layout")
    assert rows["link"].to_dict() == {"replica_aware": "intra", "sequential": "inter"}
    assert set(rows["bytes"]) == {3 * 2**30}
    assert set(rows["messages"]) == {8}
