"""Verdicts that can fail and can be met: on measured records made up with known gaps and noise."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from result_folders import BERT, TABLE6_POINTS, VARIANTS, Folder, make_cell, make_record

from analysis.claims import CLAIMS, check, rendered
from analysis.claims.claim import Verdict
from analysis.comparing.ratio import Ratio, decide, ratio_of
from analysis.comparing.verdict import verdict_of
from analysis.load.paper import printed
from analysis.load.results import Results
from analysis.speedups import null_errors, skilled
from bitpipe.origin import Origin
from experiments.records.record import Record
from experiments.running.repeats import repeats_for_equality

SEEDS = range(18)
EQUAL = dict.fromkeys(VARIANTS, 1.0)
GAPS = {"full": 1.0, "without_v": 0.97, "without_e": 0.96, "without_m": 0.95}


def measured(speeds: Mapping[str, float], *, spread: float, repeats: int, seed: int) -> list[Record]:
    """Table 6 on GPUs: every repeat slower or faster as a whole, ratios within it spread by ``spread``."""
    noise, found = random.Random(seed), []
    for depth, count in TABLE6_POINTS:
        common = [noise.uniform(0.9, 1.1) for _ in range(repeats)]
        for variant, speed in speeds.items():
            cell = make_cell(Origin.MEASURED, depth=depth, micro_batches=count, variant=variant)
            second = cell.job.global_batch / 20
            own = [second / speed * pace * (1 + noise.gauss(0, spread / 2**0.5)) for pace in common]
            times = [one for one in own for _ in range(cell.job.iterations)]
            more = {"repeats": repeats, "measurement": f"D={depth} N={count}"}
            ends = {"samples_per_s_low": 1.0, "samples_per_s_high": 1e3}
            found.append(make_record(cell, times=times, **more, **ends))
    return found


def folder_of(root: Path, made: list[Record]) -> Folder:
    cells = [
        make_cell(
            Origin.MEASURED,
            depth=one.identity["job"]["schedule"]["depth"],
            micro_batches=one.identity["job"]["schedule"]["micro_batches"],
            variant=str(one.labels["variant"]),
        )
        for one in made
    ]
    return Folder(root).add(*made).sweep("table6_ablation", cells)


def row_of(record: Record) -> dict[str, Any]:
    metrics = record.metrics
    return {
        "samples_per_s": metrics["samples_per_s"],
        "metrics": metrics,
        "measured": record.identity["job"]["measured"],
    }


def words(made: list[Record]) -> list[str]:
    """The verdict on full against each variant of each row."""
    found = []
    for start in range(0, len(made), len(VARIANTS)):
        full, *others = map(row_of, made[start : start + len(VARIANTS)])
        found += [ratio_of(full, other).verdict for other in others]
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_gaps_of_some_percent_are_decided_at_three_repeats(seed: int) -> None:
    assert Counter(words(measured(GAPS, spread=0.003, repeats=3, seed=seed)))["faster"] >= 17


def test_what_all_rows_show_is_reproduced_at_three_repeats(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, measured(GAPS, spread=0.003, repeats=3, seed=0))
    (claim,) = (claim for claim in CLAIMS if claim.id == "C15")
    (found,) = claim.find(Results(folder.root))
    assert "18 faster; 18 as the paper prints them" in found.ours
    assert found.verdict is Verdict.YES


@pytest.mark.parametrize("spread", [0.003, 0.001])
def test_equal_variants_are_never_called_faster_or_slower(spread: float) -> None:
    found = Counter[str]()
    for seed in SEEDS:
        found += Counter(words(measured(EQUAL, spread=spread, repeats=3, seed=seed)))
    assert set(found) <= {"equal", "undecided"}


@pytest.mark.parametrize(("spread", "repeats"), [(0.001, 3), (0.003, 8)])
def test_equal_variants_come_out_equal_with_enough_repeats(spread: float, repeats: int) -> None:
    found: list[list[str]] = [[] for _ in range(18)]
    for seed in SEEDS:
        made = measured(EQUAL, spread=spread, repeats=repeats, seed=seed)
        for place, word in enumerate(words(made)):
            found[place].append(word)
    assert all(by_seed.count("equal") >= 17 for by_seed in found)


def test_the_summaries_say_how_many_repeats_equality_needs(tmp_path: Path) -> None:
    for spread, needed in ((0.001, "at least 3 repeats"), (0.02, "about 2")):
        made = measured(EQUAL, spread=spread, repeats=3, seed=0)
        folder = folder_of(tmp_path / str(spread), made)
        (summary,) = (one for one in rendered(Results(folder.root)).tables if one.name == "claims_summary")
        assert summary.grid is not None
        assert any(needed in note for note in summary.grid.notes), summary.grid.notes


@pytest.mark.parametrize(("spread", "needed"), [(0.001, 3), (0.003, 6), (1.0, 1001)])
def test_repeats_are_sized_as_a_trial_of_equivalence(spread: float, needed: int) -> None:
    assert repeats_for_equality(spread, 0.005) == needed


def test_a_correction_widens_refutation_only() -> None:
    full, other, *_ = map(row_of, measured(GAPS, spread=0.003, repeats=3, seed=0))
    alone, among = (ratio_of(full, other, tests) for tests in (1, 24))
    assert alone.value == among.value
    assert among.low < alone.low < alone.high < among.high


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.0, 1.0, "equal"),
        (0.996, 1.004, "equal"),
        (1.001, 1.02, "undecided"),
        (1.006, 1.02, "faster"),
        (0.9, 0.994, "slower"),
        (0.98, 0.999, "undecided"),
    ],
)
def test_a_lead_of_repeats_must_clear_the_margin(low: float, high: float, word: str) -> None:
    assert Ratio(value=(low + high) / 2, low=low, high=high, clear=0.005).verdict == word


def test_an_interval_above_one_is_faster_where_it_is_no_sample_of_repeats() -> None:
    assert verdict_of(1.001, 1.02) == "faster"
    assert verdict_of(0.98, 0.999) == "slower"


def one_row(folder: Folder, speeds: Mapping[str, float]) -> Folder:
    cells = [make_cell(variant=name) for name in speeds]
    folder.add(*(make_record(cell, speeds[str(cell.labels["variant"])]) for cell in cells))
    return folder.sweep("table6_ablation", cells)


def test_a_lead_of_a_millionth_reproduces_no_lead_that_the_paper_prints(folder: Folder) -> None:
    """C15 at D=4 N=4: the paper's full leads w/o E by 4 %, and w/o M not at all."""
    speeds = {"full": 20.0, "without_v": 19.5, "without_e": 20.0 / (1 + 1e-6), "without_m": 20.0}
    findings = check(Results(one_row(folder, speeds).root)).query("claim == 'C15'").iloc[0]
    assert findings["verdict"] == "not reproduced"
    assert "1 faster, 2 equal" in findings["ours"]


def test_at_least_has_a_margin(folder: Folder) -> None:
    """w/o M inside a node 0.3 % ahead of full: within the noise of the paper's own cells."""
    speeds = {"full": 20.0, "without_v": 19.5, "without_e": 19.0, "without_m": 20.06}
    findings = check(Results(one_row(folder, speeds).root)).query("claim == 'C15'").iloc[0]
    assert findings["verdict"] == "cannot be told"  # one row of six; nothing refutes it
    assert "3 as the paper prints them" in findings["ours"]


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        ([20.0, 20.0 * (1 + 1e-6), 19.0], "equal: a, b"),
        ([20.0, 19.95, 19.92], "equal: a, b, c"),
        ([20.0, 19.8, 19.0], "a"),
    ],
)
def test_a_row_has_a_winner_or_equals(speeds: list[float], said: str) -> None:
    rows = pd.DataFrame({"status": "ok", "name": ["a", "b", "c"], "samples_per_s": speeds})
    assert decide(rows, "name") == said


def test_the_null_of_the_speedups_is_one_constant_per_baseline() -> None:
    """The twelve: 2.5 % off with the constants fitted to them, 3.5 % with each figure left out."""
    paper = printed("speedups")
    names = paper["compared_with"].replace({"1f1b-int": "1f1b_int"})
    null = null_errors(paper["figure"], names)
    assert len(null.fitted) == 12
    assert (null.fitted.mean(), null.left_out.mean()) == pytest.approx((2.5, 3.5), abs=0.06)
    assert skilled(pd.Series([2.0] * 12), null)[0]
    assert not skilled(pd.Series([3.0] * 12), null)[0]


def fig9(folder: Folder, off: float) -> Folder:
    """Fig. 9a and b, every speedup ``off`` times the paper's."""
    gpt = replace(BERT, name="gpt_96", family="gpt", layers=96, heads=32, hidden=3072, sequence=1024)
    gpt = replace(gpt, vocabulary=50304)
    cells = []
    for figure, model in (("fig9a", BERT), ("fig9b", gpt)):
        rows = printed("speedups").query(f"figure == '{figure}'")
        speeds = dict(zip(rows["compared_with"], rows["mean_speedup_of_bitpipe"], strict=True))
        for count in (8, 16, 32):
            for name, gain in {"bitpipe": 1.0 / off, **speeds}.items():
                method = name.replace("-", "_")
                cell = make_cell(depth=8, micro_batches=count, method=method, model=model)
                folder.add(make_record(cell, 20.0 / gain / off))
                cells.append(cell)
    return folder.sweep("fig9ab_throughput_pp", cells)


@pytest.mark.parametrize(("off", "verdict"), [(1.005, "reproduced"), (1.05, "cannot be told")])
def test_a_lead_counts_only_where_its_size_shows_skill(folder: Folder, off: float, verdict: str) -> None:
    findings = check(Results(fig9(folder, off).root)).query("claim == 'C1' and origin == 'simulated'")
    assert set(findings["verdict"]) == {verdict}
    assert findings["note"].str.contains("one constant per baseline").all()


@pytest.mark.parametrize(("origin", "verdict"), [
    (Origin.SIMULATED, "cannot be told"), (Origin.VIRTUAL, "cannot be told"), (Origin.MEASURED, "reproduced"),
])  # fmt: skip
def test_what_the_form_of_a_model_decides_is_no_evidence(
    folder: Folder, origin: Origin, verdict: str
) -> None:
    """C9 inside a node: a model's links are all alike there, so w/o M cannot differ."""
    cells = []
    for depth, count in TABLE6_POINTS[:4]:
        for name in ("full", "without_m"):
            cell = make_cell(origin, depth=depth, micro_batches=count, variant=name)
            times = [1.0, 1.001, 1.0] * cell.job.iterations if origin is Origin.MEASURED else None
            more = {"repeats": 3, "measurement": f"{depth}"} if times else {}
            ends = {"samples_per_s_low": 1.0, "samples_per_s_high": 99.0} if times else {}
            folder.add(make_record(cell, None if times else 20.0, times=times, **more, **ends))
            cells.append(cell)
    folder.sweep("table6_ablation", cells)
    (one,) = check(Results(folder.root)).query("claim == 'C9'").to_dict("records")
    assert one["verdict"] == verdict
    assert ("the model assumes it" in one["note"]) == (origin is not Origin.MEASURED)


def test_bytes_are_printed_in_a_unit_that_shows_them(folder: Folder) -> None:
    """C20 for a tiny model: MiB where GiB would be 0.0."""
    cell = make_cell(Origin.VIRTUAL)
    traffic = {"gradient_sync/intra": 3 * 2**20, "activation/intra": 2**18}
    folder.add(make_record(cell, 20.0, traffic_bytes=traffic)).sweep("table6_ablation", [cell])
    one = check(Results(folder.root)).query("claim == 'C20'").iloc[0]
    assert "sync 3 MiB, activations 0.25 MiB" in one["ours"]
    assert " 0.0" not in one["ours"] + one["note"]
