"""A method, model, cluster or one more swept key of one's own: drawn, or named in a note."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import Any

import pytest
from result_folders import A800, BERT, VARIANTS, Folder, make_cell, make_record

from analysis.__main__ import main
from bitpipe.models import arithmetic
from experiments.cell import Cell
from experiments.records.store import write_json

METHODS = ("bitpipe", "dapple", "file:mine.py")


def run(folder: Folder, experiment: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Draw; returns what was printed, and fails on any fault."""
    status = main([experiment, "--results", str(folder.root)])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    assert status == 0, printed.err
    return printed.out


def manifest(folder: Folder, experiment: str, cells: dict[str, Cell]) -> None:
    """A sweep whose points were asked for with these overrides."""
    entries = [
        {
            "cell": one.id,
            "backend": one.backend,
            "labels": dict(one.labels),
            "overrides": text.split("|")[0].split(),
        }
        for text, one in cells.items()
    ]
    path = folder.root / "sweeps" / experiment / "20260101-000000.json"
    write_json(path, {"experiment": experiment, "stamp": "20260101-000000", "cells": entries})


@pytest.mark.parametrize(
    "changes",
    [{"seed": (1, 2)}, {"width": (1, 2)}, {"learning_rate": (1e-4, 1e-3)}, {"micro_batch_size": (2, 4)}],
)
def test_one_more_swept_key_is_shown_at_its_first_value_and_said(
    folder: Folder, capsys: pytest.CaptureFixture[str], changes: dict[str, tuple[Any, Any]]
) -> None:
    ((key, values),) = changes.items()
    cells = {}
    for value in values:
        for name in VARIANTS:
            cell = make_cell(variant=name, **{key: value})
            folder.add(make_record(cell, 20.0))
            cells[f"+experiment=table6_ablation {key}={value} {name}"] = cell
    manifest(folder, "table6_ablation", cells)
    out = " ".join(run(folder, "table6_ablation", capsys).split())
    assert f"shown is {key}={values[0]}, not {key}={values[1]}" in out


@pytest.mark.parametrize("methods", [METHODS, METHODS[:1], METHODS[1:2], METHODS[2:]])
@pytest.mark.parametrize("experiment", ["fig9ab_throughput_pp", "fig8_memory_pp"])
def test_own_methods_and_single_ones_are_drawn(
    folder: Folder, capsys: pytest.CaptureFixture[str], experiment: str, methods: tuple[str, ...]
) -> None:
    cells = [make_cell(method=name, micro_batches=count) for name in methods for count in (4, 8)]
    cells = [replace(cell, labels={"model": BERT.name, "method": cell.job.schedule.method}) for cell in cells]
    folder.add(*(make_record(cell, 20.0 + place) for place, cell in enumerate(cells)))
    folder.sweep(experiment, cells)
    run(folder, experiment, capsys)
    assert (folder.root / "figures" / f"{experiment}.png").is_file()


@pytest.mark.parametrize("methods", [METHODS, METHODS[:1], METHODS[2:]])
def test_the_tradeoff_takes_any_methods_and_a_cluster_of_ones_own(
    folder: Folder, capsys: pytest.CaptureFixture[str], methods: tuple[str, ...]
) -> None:
    mine = replace(A800, name="mine", device=replace(A800.device, name="our card"))
    cells = []
    for hidden in (1024, 2048):
        for name in methods:
            cell = make_cell(method=name, model=replace(BERT, hidden=hidden, heads=16), cluster=mine)
            cells.append(replace(cell, labels={"method": name, "hidden": hidden, "micro_batch_size": 4}))
    folder.add(*(make_record(cell, 20.0 + place) for place, cell in enumerate(cells)))
    folder.sweep("tradeoff_memory_throughput", cells)
    run(folder, "tradeoff_memory_throughput", capsys)


def test_all_draws_an_own_method_without_a_fault(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {name: {"variant": name, "method": name, "model": BERT.name} for name in METHODS}
    cells = [replace(make_cell(method=name), labels=labels[name]) for name in METHODS]
    folder.add(*(make_record(cell, 20.0 + place) for place, cell in enumerate(cells)))
    for experiment in ("table6_ablation", "fig8_memory_pp", "fig9ab_throughput_pp"):
        folder.sweep(experiment, cells)
    assert "fault of this program" not in run(folder, "all", capsys)
    assert "dapple, file:mine.py" in (folder.root / "tables" / "table6_ablation.md").read_text()


def test_table_4_computes_a_model_from_its_record_and_compares_only_the_papers_own(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that no file here has, and a known name with other sizes."""
    models = (BERT, replace(BERT, name="mine"), replace(BERT, layers=32))
    cells = []
    for model in models:
        cell = make_cell()
        cells.append(replace(cell, job=replace(cell.job, model=model), labels={"model": model.name}))
    for cell in cells:
        folder.add(make_record(cell, 20.0))
        folder.sweep("table4_models", [cell])
        run(folder, "table4_models", capsys)
        (row,) = csv.DictReader((folder.root / "tables" / "table4_models.csv").open())
        model = cell.job.model
        assert int(row["parameters"]) == arithmetic.parameters(model)
        assert int(row["layers"]) == model.layers
        assert bool(row["paper_parameters"]) == (model == BERT)


@pytest.mark.parametrize("experiment", ["table6_searched", "zero_bubble_table5"])
def test_a_table_of_fixed_methods_says_so_where_only_others_were_run(
    folder: Folder, capsys: pytest.CaptureFixture[str], experiment: str
) -> None:
    cell = replace(
        make_cell(method="gpipe"), labels={"method": "gpipe", "variant": "gpipe", "setting": "1.5b"}
    )
    folder.add(make_record(cell, 20.0))
    folder.sweep(experiment, [cell])
    main([experiment, "--results", str(folder.root)])
    assert f"{experiment} with a method that it compares" in capsys.readouterr().err
