"""Rank logs become one row per iteration."""

from pathlib import Path

from experiments.records.rank_rows import reduced_rows


def test_equal_values_stay_and_others_are_reduced(tmp_path: Path) -> None:
    for rank, seconds in enumerate((1.0, 3.0)):
        (tmp_path / f"rank{rank}.jsonl").write_text(
            '{"event": "start", "rank": 0}\n'
            f'{{"event": "iteration", "iteration": 0, "rank": {rank}, "loss": 7.0, "busy": {seconds}}}\n'
        )
    assert reduced_rows(tmp_path) == [{"loss": 7.0, "busy/min": 1.0, "busy/mean": 2.0, "busy/max": 3.0}]


def test_only_the_last_try_counts_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "rank0.jsonl").write_text(
        '{"event": "start"}\n{"event": "iteration", "iteration": 0, "loss": 9.0}\n'
        '{"event": "start"}\n{"event": "iteration", "iteration": 0, "loss": 8.0}\n'
        '{"event": "iteration", "iteration": 1, "lo'
    )
    assert reduced_rows(tmp_path) == [{"loss": 8.0}]
