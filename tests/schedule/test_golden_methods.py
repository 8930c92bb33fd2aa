"""Values of the field's other methods: makespan, longest device span and peak activations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bitpipe.schedule import ScheduleSpec, describe, generate

GOLDEN = json.loads((Path(__file__).parent / "golden_methods.json").read_text())
LONGER_SPAN = {("zb_v_auto", 8, 12): 39.5, ("zb_v", 8, 12): 39.5}
"""The list rule has their makespan, but its devices begin early for it: behind a barrier the same time."""
# Golden name -> our method and what to ask of it.
NAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "zb_h1": ("zb_h1", {}),
    "zb_h2": ("zb_h2", {}),
    "zb_v": ("zb_v", {}),
    "zb_v_auto": ("zb_v", {}),
    "v_half": ("v_half", {}),
    "v_min": ("v_min", {}),
    "hanayo": ("hanayo", {}),
    "breadth_first": ("breadth_first", {}),
    "gems": ("gems", {}),
    "dualpipe_unpaired": ("dualpipe", {}),
    "dualpipe_all_split": ("dualpipe", {"split_backward": True}),
    "dualpipe_v_unpaired": ("dualpipe_v", {}),
    "dualpipe_v_all_split": ("dualpipe_v", {"split_backward": True}),
}
CLOSED = {"paper formula", "authors code"}
"""Sources whose values are met exactly; those of a prototype of our own may be beaten."""


def cases() -> list[Any]:
    return [
        pytest.param(row, id=f"{row['method']}-D{row['depth']}-N{row['micro_batches']}-v{row['chunks']}")
        for row in GOLDEN
    ]


@pytest.mark.parametrize("row", cases())
def test_golden(row: dict[str, Any]) -> None:
    name, more = NAMES[row["method"]]
    schedule = generate(
        ScheduleSpec(
            method=name,
            depth=row["depth"],
            micro_batches=row["micro_batches"],
            chunks=row["chunks"],
            **more,
        )
    )
    got = describe(schedule)
    assert got.makespan <= row["makespan"] + 1e-9
    key = row["method"], row["depth"], row["micro_batches"]
    assert got.span <= LONGER_SPAN.get(key, row["longest_device_span"]) + 1e-9
    assert max(got.peak_activation_per_device) <= max(row["peak_activation_per_device"]) + 1e-9
    assert got.makespan >= got.lower_bound - 1e-9
    if row["source"] in CLOSED:
        assert got.makespan == pytest.approx(row["makespan"])
