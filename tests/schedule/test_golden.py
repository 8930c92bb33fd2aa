"""Published and proved values: makespan, bubble ratio and peak activations of 251 schedules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bitpipe.schedule import ScheduleSpec, describe, generate
from bitpipe.schedule.codes import Codes
from bitpipe.schedule.methods.chimera_doubled import lattice

CAP_D = {"cap": "D"}
EARLY = {"early_forward": True}
# Golden name -> our method and parameters.
NAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "GPipe": ("gpipe", {}),
    "DAPPLE": ("dapple", {}),
    "1F1B-Int": ("1f1b_int", {}),
    "Chimera-unit": ("bitpipe", {}),
    "Chimera-concat": ("chimera", {}),
    "Chimera-forward-doubling": ("chimera_doubled", {}),
    "MixPipe-K=D": ("mixpipe", CAP_D),
    "MixPipe-maxK": ("mixpipe", {}),
    "BitPipe-unit": ("bitpipe", {}),
    "bidirectional-queues-concatenated": ("bitpipe", {}),
    "BitPipe-capD": ("bitpipe", CAP_D),
    "BitPipe-earlyF": ("bitpipe", EARLY),
    "BitPipe-noV-capD": ("bitpipe", {**CAP_D, "placement": "cyclic"}),
    "BitPipe-noV-earlyF": ("bitpipe", {**EARLY, "placement": "cyclic"}),
    "BitPipe-v4-capD": ("bitpipe", CAP_D),
    "BitPipe-v4-earlyF": ("bitpipe", EARLY),
    "BitPipe-irregular-capD": ("bitpipe", CAP_D),
    "BitPipe-irregular-earlyF": ("bitpipe", EARLY),
    "BitPipe-ZB-capD": ("bitpipe", {**CAP_D, "split_backward": True}),
}
EXACT_PEAKS = {"GPipe", "DAPPLE", "1F1B-Int", "Chimera-unit", "BitPipe-unit"}
GOLDEN = json.loads((Path(__file__).parent / "golden_schedules.json").read_text())
# Searches over thousands of actions, seconds each: the quick run leaves them to `make test-all`.
LARGE = 5_000


def cases() -> list[Any]:
    return [
        pytest.param(
            row,
            id=f"{row['method']}-D{row['D']}-N{row['N']}-v{row['v']}",
            marks=[pytest.mark.slow] if row["D"] * row["N"] * row["v"] * 2 > LARGE else [],
        )
        for row in GOLDEN
    ]


def test_every_golden_method_is_one_of_ours() -> None:
    assert {row["method"] for row in GOLDEN} == set(NAMES)


@pytest.mark.parametrize("row", cases())
def test_golden(row: dict[str, Any]) -> None:
    name, more = NAMES[row["method"]]
    more = {**more, **({"cap": row["D"] * row["v"]} if "cap" in more else {})}
    schedule = generate(
        ScheduleSpec(method=name, depth=row["D"], micro_batches=row["N"], chunks=row["v"], **more)
    )
    got = describe(schedule)
    assert schedule.cap is not None
    peak = max(row["peak_activation_per_device"])
    if got.makespan < row["makespan"]:  # a better one may use what the cap allows
        peak = max(peak, schedule.cap / schedule.chunks)
    assert max(got.peak_activation_per_device) <= peak + 1e-9
    if row["method"] in EXACT_PEAKS:
        assert list(got.peak_activation_per_device) == pytest.approx(row["peak_activation_per_device"])
    if row["method"] == "Chimera-forward-doubling":  # its forwards are pairs; ours may overtake
        assert lattice(Codes.of(schedule), schedule.cap)[0] == row["makespan"]
        assert got.makespan <= row["makespan"]
    elif "lower_bound" in row or row["makespan"] > got.lower_bound + 1e-9:  # the best known so far
        assert got.makespan <= row["makespan"] + 1e-9
        if row["method"] in EXACT_PEAKS | {"Chimera-concat", "bidirectional-queues-concatenated"}:
            assert got.makespan == pytest.approx(row["makespan"])
            assert got.bubble_ratio == pytest.approx(row["bubble_ratio"], abs=1e-6)
    else:
        assert got.makespan == pytest.approx(row["makespan"])
        assert got.bubble_ratio == pytest.approx(row["bubble_ratio"], abs=1e-6)
    assert got.makespan >= got.lower_bound - 1e-9
