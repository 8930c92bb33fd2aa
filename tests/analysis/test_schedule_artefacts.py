"""Figures 1 to 7 and Tables 2 and 3: from their configs through records to what is rendered."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from matplotlib.text import Text

from analysis.artefacts import bubble_memory
from analysis.artefacts.bubble_memory import RUN_TOLERANCE, layout, tidy
from analysis.artefacts.mechanisms import COLUMNS, mechanism
from analysis.artefacts.schedule_claims import CLAIMS, NO
from analysis.comparing.grid import to_markdown
from analysis.drawing import labels
from analysis.drawing.output import Rendered
from analysis.load.paper import printed
from analysis.load.results import NoResults, Results
from analysis.registry import artefacts
from analysis.table3_formulas import ROWS
from bitpipe.errors import InputError
from bitpipe.schedule import METHODS
from experiments.composing import config
from experiments.composing.grid import expand
from experiments.composing.sweep import plan
from experiments.running.local import run_sweep

CONF = Path(__file__).resolve().parents[2] / "conf"
FIGURES = (
    "fig1_partition",
    "fig2_bitpipe",
    "fig3_schedules",
    "fig4_eager_sync",
    "fig5_mapping",
    "fig6_scaling_n",
    "fig7_scaling_v",
)
TABLE3 = "table3_bubble_memory"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with the records of every schedule-only experiment."""
    folder = tmp_path_factory.mktemp("results")
    config.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):

        def load(overrides: list[str]) -> object:
            return compose("config", overrides, return_hydra_config=True)

        for id in (*FIGURES, TABLE3):
            fixed = [f"+experiment={id}", f"results={folder}"]
            sweeper = load(fixed).hydra.sweeper  # type: ignore[attr-defined]
            jobs = expand(sweeper.params or {}, sweeper.points or [], fixed, OverridesParser.create())
            run_sweep(plan(load, jobs))  # type: ignore[arg-type]
    return folder


def rendered(root: Path, id: str) -> Rendered:
    return artefacts()[id].draw(Results(root))


def words(rendered: Rendered) -> list[str]:
    figure = rendered.pictures[0].figure
    return [text.get_text() for text in figure.findobj(Text) if text.get_text().strip()]


@pytest.mark.parametrize("id", FIGURES)
def test_every_figure_is_drawn_from_its_records(root: Path, id: str) -> None:
    drawn = rendered(root, id)
    assert [picture.name for picture in drawn.pictures] == [id]
    assert drawn.pictures[0].alt


@pytest.mark.parametrize(
    ("id", "makespans"),
    [
        ("fig2_bitpipe", [14]),
        ("fig3_schedules", [21, 16.5, 16, 14]),
        ("fig4_eager_sync", [18, 15]),
        ("fig6_scaling_n", [14, 26.5, 25.5]),
        ("fig7_scaling_v", [14, 13]),
    ],
)
def test_panels_end_when_the_paper_says(root: Path, id: str, makespans: list[float]) -> None:
    titles = [text for text in words(rendered(root, id)) if "makespan" in text]
    assert [float(title.split("makespan ")[1].split(",")[0]) for title in titles] == makespans
    assert all("simulated" in title for title in titles)


@pytest.mark.parametrize("name", ["gems", "own_rows:pair"])
@pytest.mark.parametrize("id", ["fig2_bitpipe", "fig3_schedules"])
def test_a_method_that_the_paper_does_not_draw_is_drawn_by_its_name(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id: str, name: str
) -> None:
    rows = "[[f'F{m}@{s}d' for m in range(4)] + [f'B{m}@{s}d' for m in range(4)] for s in range(4)]"
    (tmp_path / "own_rows.py").write_text(f"def pair(spec):\n    return {rows}\n")
    monkeypatch.syspath_prepend(tmp_path)
    method = ["method=gems"] if name == "gems" else ["method=own", f"method.name={name}"]
    with initialize_config_dir(str(CONF), version_base="1.3"):

        def load(overrides: list[str]) -> object:
            return compose("config", overrides, return_hydra_config=True)

        fixed = [f"+experiment={id}", f"results={tmp_path}", "depth=4", "micro_batches=4", *method]
        run_sweep(plan(load, [fixed]))  # type: ignore[arg-type]
    title = f"{labels.method(name).name}: simulated"
    assert [text for text in words(rendered(tmp_path, id)) if text.startswith(title)]


def test_only_the_figure_of_syncs_shows_syncs(root: Path) -> None:
    assert any("all-reduce" in text for text in words(rendered(root, "fig4_eager_sync")))
    assert not any("all-reduce" in text for text in words(rendered(root, "fig3_schedules")))


def test_a_figure_also_comes_interactive(root: Path) -> None:
    drawn = rendered(root, "fig3_schedules").interactive
    assert len(drawn) == 1
    assert "F0@0d: forward, micro-batch 0" in drawn[0].html


def test_without_records_the_command_that_makes_them_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoResults, match=r"\+experiment=fig3_schedules -m"):
        rendered(tmp_path, "fig3_schedules")


def test_a_lost_timeline_is_one_clear_line(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    for path in copy.glob("cells/*/a*/timeline.json"):
        path.unlink()
    with pytest.raises(InputError, match="the record has none"):
        rendered(copy, "fig2_bitpipe")


@cache
def table3(root: Path) -> pd.DataFrame:
    results = Results(root)
    return tidy(results.experiment(TABLE3), results.loaded.devices)


def test_table_3_has_every_method_depth_and_number_of_micro_batches(root: Path) -> None:
    frame = table3(root)
    points = frame[["variant", "depth", "micro_batches"]].drop_duplicates()
    assert len(points) == len(ROWS) * 3 * 3
    assert set(frame["origin"]) == {"simulated"}


def test_where_table_3_differs_from_the_schedule_it_says_why(root: Path) -> None:
    frame = table3(root)
    differs = frame[frame["agrees_with_paper"].eq(False)]
    assert not differs.empty
    assert (differs["why"].str.len() > 20).all()
    assert frame.loc[frame["agrees_with_paper"].eq(True), "why"].eq("").all()


@pytest.mark.parametrize(
    ("variant", "depth", "micro_batches", "quantity", "paper", "exact", "why"),
    [
        ("gpipe", 4, 4, "bubble_ratio", 3 / 9, 3 / 7, "−1 instead of +1"),
        ("dapple", 8, 16, "bubble_ratio", 7 / 25, 7 / 23, "−1 instead of +1"),
        ("1f1b_int", 4, 8, "bubble_ratio", 3 / 21, 3 / 19, "2N+D−1"),
        ("1f1b_int", 8, 8, "activation_least", 4.5, 8, "all warm-up"),
        ("1f1b_int", 8, 16, "activation_most", 8, 11.5, "(3D−1)/2"),
        ("chimera", 4, 8, "bubble_ratio", 2 / 14, 6 / 30, "doubled forwards"),
        ("bitpipe", 4, 8, "bubble_ratio", 2 / 26, 2.5 / 26.5, "seams"),
        ("bitpipe", 8, 8, "activation_least", 5.5, 6.5, "(3D+2)/4"),
        ("early_forward", 4, 4, "bubble_ratio", 2 / 18, 2 / 14, "no further forwards"),
        ("early_forward", 8, 16, "activation_most", 10.5, 9.5, "(5D−2)/4"),
    ],
)
def test_each_known_misprint_is_reported(
    root: Path,
    variant: str,
    depth: int,
    micro_batches: int,
    quantity: str,
    paper: float,
    exact: float,
    why: str,
) -> None:
    frame = table3(root).set_index(["variant", "depth", "micro_batches", "quantity"])
    row = frame.loc[(variant, depth, micro_batches, quantity)]
    assert row["paper_value"] == pytest.approx(paper)
    assert row["value"] == pytest.approx(exact)
    assert row["agrees_with_paper"] is False
    assert why in row["why"]


@pytest.mark.parametrize(
    ("variant", "micro_batches"),
    [("chimera", 4), ("bitpipe", 4), ("early_forward", 8), ("early_forward", 16)],
)
def test_the_formulas_that_hold_are_met_exactly(root: Path, variant: str, micro_batches: int) -> None:
    frame = table3(root).query("quantity == 'bubble_ratio' and depth == 4")
    row = frame[(frame["variant"] == variant) & (frame["micro_batches"] == micro_batches)].iloc[0]
    assert row["agrees_with_paper"] is True


def test_bidirectional_methods_hold_two_copies_of_the_weights(root: Path) -> None:
    weights = table3(root).query("quantity == 'weights'").groupby("variant")["value"].agg(["min", "max"])
    for variant, row in ROWS.items():
        assert tuple(weights.loc[variant]) == (row.weights, row.weights)


def test_a_run_has_its_own_column_and_is_compared_with_the_exact_value(root: Path) -> None:
    results = Results(root)
    rows = results.experiment(TABLE3)
    near = rows.assign(origin="emulated", bubble_ratio=rows["bubble_ratio"] + RUN_TOLERANCE / 2, cell="none")
    far = near.assign(origin="virtual", bubble_ratio=rows["bubble_ratio"] + RUN_TOLERANCE * 2)
    frame = tidy(pd.concat([rows, near, far], ignore_index=True), results.loaded.devices)
    bubbles = frame[frame["quantity"] == "bubble_ratio"]
    assert bubbles[bubbles["origin"] == "emulated"]["agrees_with_exact"].eq(True).all()
    assert bubbles[bubbles["origin"] == "virtual"]["agrees_with_exact"].eq(False).all()
    header = to_markdown(layout(frame)).splitlines()[0]
    for quantity in ("bubble %", "peak Ma", "Mθ"):
        assert f"| {quantity}, emulated | {quantity}, virtual |" in header
    missing = to_markdown(layout(table3(root)))
    assert "| missing |" in missing


def with_runs(root: Path, **changed: float) -> pd.DataFrame:
    """Table 3 with a run of every cell by emulated ranks that hold what their schedule says, but
    ``changed``: what is added to a vector's entry of rank 1."""
    results = Results(root)
    rows, devices = results.experiment(TABLE3), results.loaded.devices
    runs = rows.assign(origin="emulated", cell="run of " + rows["cell"])
    held = devices.assign(cell="run of " + devices["cell"])
    for name, more in changed.items():
        held.loc[held["rank"] == 1, name] += more
    return tidy(pd.concat([rows, runs], ignore_index=True), pd.concat([devices, held], ignore_index=True))


def column(frame: pd.DataFrame, name: str) -> set[str]:
    grid = layout(frame)
    return {row[grid.header.index(name)].text for block in grid.blocks for row in block.rows}


def test_what_a_run_held_stands_beside_the_exact_value(root: Path) -> None:
    frame = with_runs(root)
    runs = frame[frame["origin"] == "emulated"]
    assert set(runs["quantity"]) == {"bubble_ratio", "activation_least", "activation_most", "weights"}
    assert len(runs) == 4 * len(ROWS) * 3 * 3
    assert runs["agrees_with_exact"].eq(True).all()
    for name in ("bubble %, emulated", "peak Ma, emulated", "Mθ, emulated"):
        assert all(text.endswith(" (yes)") for text in column(frame, name))
    assert "6.5 – 8 (yes)" in column(frame, "peak Ma, emulated")
    keys = [*bubble_memory.KEYS, "why"]
    assert runs[keys].to_records(index=False).tolist() == (
        frame.loc[frame["origin"] == "simulated", keys].to_records(index=False).tolist()
    ), "what explains the exact value explains a run's that equals it"


@pytest.mark.parametrize(
    ("vector", "more", "quantity", "name"),
    [
        ("peak_activation_ma", 100.0, "activation_most", "peak Ma, emulated"),
        ("peak_activation_ma", -100.0, "activation_least", "peak Ma, emulated"),
        ("weights_m_theta", 0.5, "weights", "Mθ, emulated"),
    ],
)
def test_a_run_that_holds_something_else_does_not_agree(
    root: Path, vector: str, more: float, quantity: str, name: str
) -> None:
    """By whatever it is off: what is counted is exact, only a bubble has a tolerance."""
    for difference in (more, more * 1e-4):
        frame = with_runs(root, **{vector: difference})
        runs = frame[(frame["origin"] == "emulated") & frame["depth"].eq(4) & frame["variant"].eq("gpipe")]
        assert runs.loc[runs["quantity"] == quantity, "agrees_with_exact"].eq(False).all()
        assert runs.loc[runs["quantity"] == "bubble_ratio", "agrees_with_exact"].eq(True).all()
        assert any(text.endswith(" (no)") for text in column(frame, name))
    assert all(text.endswith(" (yes)") for text in column(frame, "bubble %, emulated"))


def test_a_run_that_did_not_count_what_it_held_is_missing_there(root: Path) -> None:
    results = Results(root)
    rows = results.experiment(TABLE3)
    runs = rows.assign(origin="emulated", cell="run of " + rows["cell"])  # no rows for its devices
    frame = tidy(pd.concat([rows, runs], ignore_index=True), results.loaded.devices)
    assert column(frame, "peak Ma, emulated") == column(frame, "Mθ, emulated") == {"missing"}
    assert all(text.endswith(" (yes)") for text in column(frame, "bubble %, emulated"))


def test_table_2_follows_from_the_methods_and_differs_from_the_paper_in_one_place() -> None:
    paper = printed("table2_mechanisms").set_index("method")
    differing = {
        (name, column)
        for name in paper.index
        for column in COLUMNS
        if mechanism(METHODS[name])[column] != paper.loc[name, column]
    }
    assert differing == {("1f1b_int", "needs")}  # Megatron's order needs N to be a multiple of D


def test_claims_about_schedules_have_a_verdict_and_numbers() -> None:
    failed = {}
    for claim in CLAIMS:
        verdicts = [(setting, quantity) for setting, quantity, _, _, verdict in claim.find() if verdict == NO]
        failed[claim.id] = len(verdicts)
    assert failed.pop("C18") == 6  # the outer devices idle less before their first backward
    assert set(failed.values()) == {0}


def test_a_printed_bound_that_holds_is_no_disagreement() -> None:
    exact = {
        "activation_least": {"value": 8.5, "paper_value": None},
        "activation_most": {"value": 9.5, "paper_value": 10.5},
    }
    assert bubble_memory._peak_agrees(exact, [None, False]) == "holds"
    exact["activation_most"]["value"] = 11.0
    assert bubble_memory._peak_agrees(exact, [None, False]) == "no"
