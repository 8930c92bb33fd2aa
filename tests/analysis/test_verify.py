"""``python -m analysis verify``: what agrees, and everything that must not pass."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from result_folders import TINY, VARIANTS, Folder, make_cell, make_record

from analysis.__main__ import main
from analysis.comparing.reference import make
from analysis.comparing.verify import VIRTUAL_RATIO, Verdict, verify
from analysis.comparing.verify_points import points
from analysis.load.results import Results
from bitpipe.errors import InputError
from bitpipe.origin import Origin
from experiments.cell import Cell
from experiments.records.record import Status, seal
from experiments.records.store import write_json

LINK_KEYS = ("bandwidth", "latency")
SPEEDS = {"full": 100.0, "without_v": 96.0, "without_e": 92.0, "without_m": 98.0}


def result_set(
    root: Path,
    *,
    factor: float = 1.0,
    speeds: dict[str, float] = SPEEDS,
    change: Callable[[Cell], Cell] = lambda cell: cell,
    leave_out: str = "",
) -> Path:
    """Four simulated and four virtual cells; virtual ones on a machine that is ``factor`` as fast."""
    folder = Folder(root)
    for origin, model, scale in ((Origin.SIMULATED, "", 1.0), (Origin.VIRTUAL, "bert_tiny", factor)):
        entries = []
        for variant in VARIANTS:
            cell = change(make_cell(origin, variant=variant, **({"model": TINY} if model else {})))
            settings = {"depth": "4", "method": variant, **({"model": model} if model else {})}
            overrides = [f"{key}={value}" for key, value in settings.items()]
            overrides += ["+experiment=table6_ablation", f"backend={cell.backend}", f"results={root}"]
            entries.append({"cell": cell.id, "backend": cell.backend, "labels": {}, "overrides": overrides})
            if variant != leave_out:
                folder.add(make_record(cell, scale * speeds[variant], bubble_ratio=0.2))
        document = {"experiment": "table6_ablation", "cells": entries}
        write_json(root / "sweeps" / "table6_ablation" / f"2026-{origin}.json", document)
    return root


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return result_set(tmp_path / "reference")


def verdicts(results: Path, reference: Path) -> dict[Verdict, list[str]]:
    found: dict[Verdict, list[str]] = {}
    for item in verify(results, reference):
        found.setdefault(item.verdict, []).append(f"{item.point}: {item.detail}")
    return found


def test_a_copy_agrees_and_a_faster_machine_agrees(tmp_path: Path, reference: Path) -> None:
    results = result_set(tmp_path / "results", factor=3.0)
    assert list(verdicts(results, reference)) == [Verdict.AGREES]
    assert main(["verify", "--results", str(results), "--reference", str(reference)]) == 0


def edit(results: Path, change: Callable[[dict[str, Any]], None], *, reseal: bool, origin: str) -> None:
    """Tamper with the record of one cell; with ``reseal`` cleverly."""
    for path in sorted(results.glob("cells/*/a1/record.json")):
        document = json.loads(path.read_text())
        if document["origin"] == origin and document["labels"]["variant"] == "without_e":
            change(document)
            if reseal:
                document["seal"] = seal(document)
            path.write_text(json.dumps(document))
            return
    raise AssertionError("no such record")


def faster(percent: float) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["metrics"]["samples_per_s"] *= 1 + percent / 100

    return change


@pytest.mark.parametrize("percent", [1e-4, 1.0, 50.0])
def test_a_tampered_simulated_value_differs(percent: float, tmp_path: Path, reference: Path) -> None:
    results = result_set(tmp_path / "results")
    edit(results, faster(percent), reseal=True, origin="simulated")
    (line,) = verdicts(results, reference)[Verdict.DIFFERS]
    assert "metrics.samples_per_s: 92.0 expected" in line
    assert main(["verify", "--results", str(results), "--reference", str(reference)]) == 1


def test_a_tampered_entry_of_a_vector_differs(tmp_path: Path, reference: Path) -> None:
    def one_byte_more(document: dict[str, Any]) -> None:
        document["devices"]["peak_memory_bytes"][2] += 2.0**20

    results = result_set(tmp_path / "results")
    edit(results, one_byte_more, reseal=True, origin="simulated")
    (line,) = verdicts(results, reference)[Verdict.DIFFERS]
    assert "devices.peak_memory_bytes[2]" in line


def test_float_noise_is_no_difference(tmp_path: Path, reference: Path) -> None:
    results = result_set(tmp_path / "results")
    edit(results, faster(1e-11), reseal=True, origin="simulated")
    assert list(verdicts(results, reference)) == [Verdict.AGREES]


def test_a_record_changed_after_it_was_written_counts_as_missing(tmp_path: Path, reference: Path) -> None:
    results = result_set(tmp_path / "results")
    edit(results, faster(1e-3), reseal=False, origin="virtual")
    (line,) = verdicts(results, reference)[Verdict.MISSING]
    assert "no record that can be read" in line


@pytest.mark.parametrize(("percent", "passes"), [(1.0, True), (200 * VIRTUAL_RATIO, False)])
def test_virtual_ratios_may_differ_by_the_stated_tolerance(
    percent: float, passes: bool, tmp_path: Path, reference: Path
) -> None:
    speeds = SPEEDS | {"without_v": SPEEDS["without_v"] * (1 + percent / 100)}
    results = tmp_path / "results"
    shutil.copytree(reference, results)
    other = result_set(tmp_path / "other", speeds=speeds)
    for path in other.glob("cells/*/a1/record.json"):
        if json.loads(path.read_text())["origin"] == "virtual":
            shutil.copy(path, results / path.relative_to(other))
    found = verdicts(results, reference)
    assert (Verdict.DIFFERS not in found) == passes
    if not passes:
        assert any("without_v" in line and "mean" in line for line in found[Verdict.DIFFERS])


def test_a_run_whose_own_iterations_differ_is_given_more_room(tmp_path: Path, reference: Path) -> None:
    noisy = make_cell(Origin.VIRTUAL, variant="without_v", model=TINY)
    usual = noisy.job.global_batch / SPEEDS["without_v"]
    results = result_set(tmp_path / "results")
    times = [usual, usual, usual, 0.7 * usual, 0.9 * usual]
    Folder(results).add(make_record(noisy, times=times, bubble_ratio=0.2))
    assert list(verdicts(results, reference)) == [Verdict.AGREES]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"losses": [6.9, 6.8]}, "losses[1]: 6.5 expected, 6.8 found"),
        ({"bubble_ratio": 0.4}, "bubble_ratio: 0.2000 expected, 0.4000 found"),
        ({"memory": [2.0**34] * 4}, "peak_memory_bytes[0]"),
    ],
)
def test_losses_bubbles_and_memory_of_real_ranks_count_too(
    change: dict[str, Any], said: str, tmp_path: Path, reference: Path
) -> None:
    cell = make_cell(Origin.VIRTUAL, variant="full", model=TINY)
    results = result_set(tmp_path / "results")
    for root, more in ((reference, {}), (results, change)):
        Folder(root).add(make_record(cell, 100.0, **({"bubble_ratio": 0.2, "losses": [6.9, 6.5]} | more)))
    (line,) = verdicts(results, reference)[Verdict.DIFFERS]
    assert said in line


def test_a_missing_cell_is_missing_whether_asked_for_or_not(tmp_path: Path, reference: Path) -> None:
    results = result_set(tmp_path / "results", leave_out="without_m")
    assert len(verdicts(results, reference)[Verdict.MISSING]) == 2
    shutil.rmtree(results / "sweeps")
    lines = verdicts(results, reference)[Verdict.MISSING]
    assert len(lines) == 8
    assert all("no sweep asked for it" in line for line in lines)
    assert main(["verify", "--results", str(results), "--reference", str(reference)]) == 1


def test_what_was_never_run_is_one_line_and_what_was_tampered_with_has_its_own(
    tmp_path: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = result_set(tmp_path / "results")
    next(iter(results.glob("sweeps/*/*virtual.json"))).unlink()
    edit(results, faster(1e-3), reseal=False, origin="simulated")
    assert main(["verify", "--results", str(results), "--reference", str(reference)]) == 1
    said = capsys.readouterr().out
    lines = [line for line in said.splitlines() if line.startswith("missing:")]
    assert lines == [
        "missing: table6_ablation simulated depth=4 method=without_e: it has no record that can be read",
        "missing: table6_ablation virtual: 4 points, no sweep asked for it",
    ]
    assert "3 of 8 points agree" in said


def test_one_experiment_can_be_verified_alone(
    tmp_path: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in list(reference.glob("sweeps/*/*simulated.json")):
        document = json.loads(path.read_text()) | {"experiment": "other"}
        write_json(reference / "sweeps" / "other" / path.name, document)
    results = result_set(tmp_path / "results")
    folders = ["--results", str(results), "--reference", str(reference)]
    assert main(["verify", *folders]) == 1
    capsys.readouterr()
    assert main(["verify", "table6_ablation", *folders]) == 0
    assert "8 of 8 points agree" in capsys.readouterr().out
    assert main(["verify", "table6_ablatoin", *folders]) == 2
    error = capsys.readouterr().err
    assert "did you mean table6_ablation?" in error
    assert len(error.splitlines()) == 1
    assert main(["verify", "table6_ablation", "other", *folders]) == 2


def test_the_reference_against_itself_is_said_to_be_that(
    reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "--results", str(reference), "--reference", str(reference)]) == 0
    assert "this is the reference itself" in capsys.readouterr().out


def test_up_to_five_changed_assumptions_are_named(tmp_path: Path, reference: Path) -> None:
    def smaller(cell: Cell) -> Cell:
        link = replace(cell.cluster.p2p_inter, bandwidth=5e10, latency=1e-4)
        return replace(cell, cluster=replace(cell.cluster, p2p_inter=link, all_reduce_inter=link))

    results = result_set(tmp_path / "results", change=smaller)
    line = verdicts(results, reference)[Verdict.CHANGED][0]
    changed = [f"cluster.{link}.{key}" for link in ("p2p_inter", "all_reduce_inter") for key in LINK_KEYS]
    assert all(f"{key}: " in line for key in changed)
    assert "more" not in line


def test_a_changed_assumption_is_named_with_both_values(tmp_path: Path, reference: Path) -> None:
    def narrower(cell: Cell) -> Cell:
        link = replace(cell.cluster.p2p_intra, bandwidth=5e10)
        return replace(cell, cluster=replace(cell.cluster, p2p_intra=link))

    results = result_set(tmp_path / "results", change=narrower)
    found = verdicts(results, reference)
    assert list(found) == [Verdict.CHANGED]
    assert (
        "cluster.p2p_intra.bandwidth: 100000000000.0 expected, 50000000000.0 found"
        in found[Verdict.CHANGED][0]
    )


def test_another_corpus_is_allowed_where_time_is_virtual_and_nowhere_else(
    tmp_path: Path, reference: Path
) -> None:
    results = result_set(tmp_path / "results", change=lambda cell: replace(cell, data="other-0123"))
    found = verdicts(results, reference)
    assert {line.split()[1] for line in found[Verdict.CHANGED]} == {"simulated"}
    assert len(found[Verdict.AGREES]) == 4


def test_a_cell_that_fails_now_differs(tmp_path: Path, reference: Path) -> None:
    results = result_set(tmp_path / "results")
    cell = make_cell(variant="full")
    Folder(results).add(make_record(cell, status=Status.OOM))
    (line,) = verdicts(results, reference)[Verdict.DIFFERS]
    assert "status: ok expected, oom found (does not fit)" in line


def test_the_newest_sweep_of_a_point_counts(tmp_path: Path, reference: Path) -> None:
    before = len(points(Results(reference)))
    path = next(iter(reference.glob("sweeps/*/*.json")))
    shutil.copy(path, path.with_name("2027.json"))
    assert len(points(Results(reference))) == before == 8


@pytest.mark.parametrize("empty", [True, False])
def test_a_folder_that_holds_nothing_is_bad_input(
    empty: bool, tmp_path: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "nothing"
    if empty:
        folder.mkdir()
    assert main(["verify", "--results", str(reference), "--reference", str(folder)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_reference_made_of_results_agrees_with_them_and_holds_nothing_else(tmp_path: Path) -> None:
    results, made = result_set(tmp_path / "results"), tmp_path / "made"
    cell = make_cell(variant="full").id
    (results / "cells" / cell / "a1" / "rank0.jsonl").write_text("{}\n")
    (results / "cells" / ("0" * 12) / "a1").mkdir(parents=True)  # of no experiment
    assert main(["reference", "--results", str(results), "--reference", str(made)]) == 0
    assert list(verdicts(results, made)) == [Verdict.AGREES]
    assert {path.name for path in made.glob("cells/*/*/*")} == {"record.json"}
    assert len(list(made.glob("cells/*"))) == 8


def test_no_reference_is_made_of_a_sweep_with_a_hole(tmp_path: Path) -> None:
    results, made = result_set(tmp_path / "results", leave_out="full"), tmp_path / "made"
    assert main(["reference", "--results", str(results), "--reference", str(made)]) == 2
    assert not made.exists()


DAMAGED = {
    "nested": "[" * 100_000,
    "number": '{"experiment": "table6_ablation", "cells": ' + "9" * 6000 + "}",
    "list": "[]",
    "cell of a wrong type": '{"experiment": "x", "cells": [{"cell": [], "backend": "cpu", "labels": {}}]}',
    "entry of a wrong type": '{"experiment": "x", "cells": [1]}',
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_manifest_is_left_out_here_and_refused_as_a_reference(
    text: str, reference: Path, tmp_path: Path
) -> None:
    results = result_set(tmp_path / "results")
    (results / "sweeps" / "table6_ablation" / "2026-damaged.json").write_text(text)
    assert set(verdicts(results, reference)) == {Verdict.AGREES}
    with pytest.raises(InputError, match=r"2026-damaged.json: not a sweep's manifest"):
        make(results, tmp_path / "made")
