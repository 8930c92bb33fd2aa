"""What ran is what is labelled: measured records of other devices than those that were asked for."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from result_folders import BERT, TABLE6_POINTS, VARIANTS, Folder, make_cell, make_record

from analysis.__main__ import main
from analysis.claims import check
from analysis.dashboard import dry_run
from analysis.load.results import Results
from bitpipe.origin import Origin
from experiments.records.devices import made_elsewhere, same_device

H100, A800 = "NVIDIA H100 80GB HBM3", "NVIDIA A800-SXM4-80GB"
ASKED = "NVIDIA A800 80GB SXM"


def measured(root: Path, device: str, experiment: str = "table6_ablation") -> Folder:
    """24 ``cuda`` records of Table 6, all asked for on the paper's A800."""
    folder, cells = Folder(root), []
    for depth, count in TABLE6_POINTS:
        for place, variant in enumerate(VARIANTS):
            cell = make_cell(Origin.MEASURED, depth=depth, micro_batches=count, variant=variant)
            folder.add(make_record(cell, 60.0 - place, devices=[device], experiment=experiment))
            cells.append(cell)
    return folder.sweep(experiment, cells)


@pytest.mark.parametrize(
    ("ran", "asked", "same"),
    [
        (A800, ASKED, True),
        ("NVIDIA A800 80GB PCIe", ASKED, False),
        ("NVIDIA A800-SXM4-40GB", ASKED, False),
        (H100, ASKED, False),
        (H100, "NVIDIA H100 80GB SXM", True),
        ("NVIDIA H100 PCIe", "NVIDIA H100 80GB SXM", False),
        ("NVIDIA H200", "NVIDIA H100 80GB SXM", False),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090", False),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "NVIDIA A100 80GB SXM", False),
        ("cpu", ASKED, False),
        ("NVIDIA L40S", "our card", True),
    ],
)
def test_names_of_one_product_are_told_from_others(ran: str, asked: str, same: bool) -> None:
    assert same_device(ran, asked) is same


def test_records_of_an_h100_are_labelled_so_everywhere_and_beside_no_value_of_the_paper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = measured(tmp_path, H100)
    assert main(["all", "--results", str(folder.root)]) == 0
    assert "Traceback" not in capsys.readouterr().err
    table = (folder.root / "tables" / "table6_ablation.md").read_text()
    assert f"measured: BERT-64 on {H100}" in table
    assert "on a800" not in table
    frame = pd.read_csv(folder.root / "tables" / "table6_ablation.csv").query("origin == 'measured'")
    assert frame["error_percent"].isna().all()
    assert frame["paper_samples_per_s"].isna().all()
    assert set(frame["cluster"]) == {H100}
    findings = check(Results(folder.root)).query("origin == 'measured'")
    assert findings["model"].str.contains(H100).all()
    report = (folder.root / "report.html").read_text()
    assert H100 in report
    assert "BERT-64 on a800" not in report


def test_records_of_an_a800_are_the_papers_quantity(tmp_path: Path) -> None:
    folder = measured(tmp_path, A800)
    assert main(["table6_ablation", "--results", str(folder.root)]) == 0
    frame = pd.read_csv(folder.root / "tables" / "table6_ablation.csv").query("origin == 'measured'")
    assert frame["error_percent"].notna().all()
    assert "measured: BERT-64 on a800" in (folder.root / "tables" / "table6_ablation.md").read_text()


@pytest.mark.parametrize("devices", [["cpu"], [A800, H100]])
def test_a_processor_or_a_mixture_is_not_the_papers_hardware(folder: Folder, devices: list[str]) -> None:
    cell = make_cell(Origin.MEASURED)
    folder.add(make_record(cell, 20.0, devices=devices)).sweep("table6_ablation", [cell])
    row = Results(folder.root).cells.iloc[0]
    assert row["cluster"] == ", ".join(devices)
    assert main(["table6_ablation", "--results", str(folder.root)]) == 0
    frame = pd.read_csv(folder.root / "tables" / "table6_ablation.csv").query("origin == 'measured'")
    assert frame["error_percent"].isna().all()


def test_two_devices_of_one_experiment_are_two_blocks(tmp_path: Path) -> None:
    folder = measured(tmp_path, A800)
    cells = [make_cell(Origin.MEASURED, variant=name) for name in VARIANTS]
    folder.add(*(make_record(cell, 90.0, devices=[H100], attempt=2) for cell in cells))
    folder.sweep("table6_ablation", cells, stamp="20260201-000000")
    assert main(["table6_ablation", "--results", str(folder.root)]) == 0
    text = (folder.root / "tables" / "table6_ablation.md").read_text()
    assert "measured: BERT-64 on a800" in text
    assert f"measured: BERT-64 on {H100}" in text


def test_the_report_names_the_gpus_that_computed(tmp_path: Path) -> None:
    from analysis.report import provenance

    frame = provenance(Results(measured(tmp_path, H100).root))
    assert frame["devices"].tolist() == [H100]


def test_the_dashboard_groups_runs_by_what_ran() -> None:
    pytest.importorskip("wandb_workspaces")
    assert '"provenance.value.devices"' in dry_run("us/project")


def test_a_record_of_another_device_is_no_reason_to_skip(folder: Folder) -> None:
    cell = make_cell(Origin.MEASURED, model=BERT)
    foreign, own = (make_record(cell, 20.0, devices=[name]) for name in (H100, A800))
    assert made_elsewhere(foreign, cell) == (H100,)
    assert made_elsewhere(own, cell) == ()
    folder.add(own, make_record(cell, 30.0, devices=[H100], attempt=2))
    found = folder.store.finished(cell.id, lambda one: not made_elsewhere(one, cell))
    assert found is not None
    assert found.attempt == 1
