"""Table 5 of the Zero Bubble paper, from its configuration through records to the verdicts."""

from __future__ import annotations

import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from analysis.artefacts.zero_bubble_table5 import ID, OURS, layout, tidy
from analysis.comparing.grid import to_markdown
from analysis.load.paper import printed
from analysis.load.results import Results
from bitpipe.checkout import ROOT
from experiments.composing import config
from experiments.composing.grid import expand
from experiments.composing.sweep import Sweep, plan
from experiments.running.local import run_sweep


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The experiment as configured."""
    folder = tmp_path_factory.mktemp("results")
    config.register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):

        def load(overrides: list[str]) -> object:
            return compose("config", overrides, return_hydra_config=True)

        fixed = [f"+experiment={ID}", f"results={folder}"]
        sweeper = load(fixed).hydra.sweeper  # type: ignore[attr-defined]
        jobs = expand(sweeper.params, sweeper.points, fixed, OverridesParser.create())
        return plan(load, jobs)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def rows(sweep: Sweep) -> pd.DataFrame:
    """Its cells, all of them run."""
    run_sweep(sweep)
    return Results(sweep.settings.results).experiment(ID)


def test_all_rates_of_1f1b_zb_h1_and_zb_h2_are_the_printed_ones_to_four_digits(rows: pd.DataFrame) -> None:
    ours = tidy(rows).loc[lambda frame: frame["method"].isin(OURS)]
    assert len(ours) == 36
    assert ours["value"].round(4).tolist() == ours["paper_value"].tolist()
    assert set(ours["verdict"]) == {"reproduced"}
    assert set(ours["origin"]) == {"simulated"}


def test_the_costs_of_the_cells_are_those_beside_the_printed_rates(sweep: Sweep) -> None:
    """The configuration and the CSV both name them; a cell at others would be no reproduction."""
    keys = ["forward", "input_grad", "weight_grad", "transfer"]
    table = printed(ID)
    assert len(sweep.cells) == 3 * len(table) == 36
    by_setting = {
        (row["setting"], row["depth"], row["micro_batches"]): [row[f"{key}_ms"] for key in keys]
        for row in table.to_dict("records")
    }
    for cell in sweep.cells:
        spec = cell.job.schedule
        costs = [getattr(cell.calibration, key) for key in keys]
        assert costs == by_setting[cell.labels["setting"], spec.depth, spec.micro_batches]


def test_what_is_printed_only_has_no_verdict(rows: pd.DataFrame) -> None:
    others = tidy(rows).loc[lambda frame: ~frame["method"].isin(OURS)]
    assert others["value"].isna().all()
    assert set(others["verdict"]) == {"cannot be told"}


def test_a_rate_that_differs_in_the_last_digit_is_not_reproduced(rows: pd.DataFrame) -> None:
    changed = rows.copy()
    changed["metrics"] = [{**one, "span_units": one["span_units"] * 1.0005} for one in rows["metrics"]]
    frame = tidy(changed)
    assert set(frame[frame["method"].isin(OURS)]["verdict"]) == {"not reproduced"}
    assert "0 of 36 rates reproduced" in to_markdown(layout(frame))


def test_a_cell_that_did_not_run_is_missing(rows: pd.DataFrame) -> None:
    frame = tidy(rows.iloc[1:])
    assert "35 of 36 rates reproduced" in (shown := to_markdown(layout(frame)))
    assert "missing" in shown
