"""``python -m bitpipe.schedule``: figures, drawings, and one clear line for bad input."""

import json
import os
import subprocess
import sys
import time

import pytest

from bitpipe.schedule import METHODS
from bitpipe.schedule.__main__ import main
from bitpipe.schedule.methods.base import FAMILIES

D4N4 = ["--depth", "4", "--micro-batches", "4"]


def run(capsys, *arguments):
    """Exit status, stdout, stderr."""
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as stop:
        status = stop.code
    done = capsys.readouterr()
    return status, done.out, done.err


def test_json_has_the_figures_of_the_paper(capsys):
    status, out, _ = run(capsys, "show", "bitpipe", *D4N4, "--json")
    figures = json.loads(out)
    assert status == 0
    assert figures["makespan"] == 14
    assert figures["bubble_ratio"] == pytest.approx((4 - 2) / (3 * 4 + 4 - 2))
    assert figures["peak_activation_per_device"] == [3.5, 4, 4, 3.5]
    assert figures["transfers"] == 48
    assert figures["lower_bound"] == 14


@pytest.mark.parametrize(
    ("options", "makespan"),
    [
        (["--micro-batches", "8"], 26.5),
        (["--micro-batches", "8", "--early-forward"], 25.5),
        (["--micro-batches", "8", "--cap", "8"], 26),
        (["--micro-batches", "4", "--chunks", "4"], 13),
        (["--micro-batches", "4", "--placement", "cyclic"], 14),
        (["--micro-batches", "4", "--split-backward"], 12.5),
        (["--micro-batches", "5", "--pad"], 26.5),
    ],
)
def test_every_option_reaches_the_schedule(capsys, options, makespan):
    status, out, _ = run(capsys, "show", "bitpipe", "--depth", "4", *options, "--json")
    assert (status, json.loads(out)["makespan"]) == (0, makespan)


def test_without_json_a_timeline_comes_before_the_figures(capsys):
    status, out, _ = run(capsys, "show", "dapple", *D4N4, "--width", "120")
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == "DAPPLE, D=4, N=4, v=1, sequential placement, cap 4 chunks"
    assert lines[2].startswith("0 F0F1F2F3")
    assert "makespan          21 " in out
    assert out.index("0 F0F1") < out.index("makespan")


@pytest.mark.parametrize("suffix", ["svg", "pdf", "png", "html", "json"])
def test_out_draws_by_suffix(capsys, tmp_path, suffix):
    path = tmp_path / f"schedule.{suffix}"
    status, out, _ = run(capsys, "show", "chimera", *D4N4, "--out", path)
    start = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG", "html": b"<!doctype html>", "json": b"{"}
    assert status == 0
    assert out.endswith(f"written: {path}\n")
    assert path.read_bytes().startswith(start[suffix])


def test_rows_written_as_text_are_read_back_as_the_same_schedule(capsys, tmp_path):
    path = tmp_path / "mine.txt"
    size = ["--depth", "4", "--micro-batches", "8"]
    made = json.loads(run(capsys, "show", "bitpipe", *size, "--early-forward", "--json", "--out", path)[1])
    read = json.loads(run(capsys, "show", f"file:{path}", *size, "--chunks", "2", "--json")[1])
    for key in ("makespan", "bubble_ratio", "peak_activation_per_device", "transfers"):
        assert read[key] == made[key]


def test_a_deadlock_in_a_file_is_shown_in_its_grid(capsys, tmp_path):
    path = tmp_path / "dead.txt"
    path.write_text("F0@0d B0@0d F1@0d B1@0d\nF1@1d B1@1d F0@1d B0@1d\n")
    status, out, err = run(capsys, "show", f"file:{path}", "--depth", "2", "--micro-batches", "2")
    assert (status, out) == (2, "")
    assert err.startswith(f"file:{path}: deadlock: ")
    assert ">B0@0d" in err
    assert "Traceback" not in err


def test_list_names_every_method_and_what_it_needs(capsys):
    status, out, _ = run(capsys, "list")
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert status == 0
    for name, method in METHODS.items():
        assert method.needs in rows[name]
        assert method.title in rows[name]
    assert [row["method"] for row in json.loads(run(capsys, "list", "--json")[1])] == [
        name for family in FAMILIES for name, method in METHODS.items() if method.family == family
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "bitpip", *D4N4], "did you mean bitpipe?"),
        (["show", "bitpipe", "--depth", "4"], "--micro-batches"),
        (["show", "bitpipe", "--depth", "four", "--micro-batches", "4"], "invalid int value: 'four'"),
        (["show", "bitpipe", "--depth", "0", "--micro-batches", "4"], "depth=0"),
        (["show", "bitpipe", "--depth", "4", "--micro-batches", "0"], "micro_batches=0"),
        (["show", "bitpipe", *D4N4, "--cap", "1"], "nearest: 2"),
        (["show", "gpipe", *D4N4, "--cap", "3"], "cap=3"),
        (["show", "bitpipe", *D4N4, "--placement", "w"], "placement=w"),
        (["show", "1f1b_int", "--depth", "4", "--micro-batches", "5"], "nearest: 4 or 8"),
        (["show", "bitpipe", *D4N4, "--width", "5"], "at least 40 columns"),
        (["show", "bitpipe", *D4N4, "--out", "x.gif"], ".svg, .pdf, .png, .html, .json, .txt"),
        (["show", "bitpipe", *D4N4, "--out", "/nowhere/x.svg"], "cannot be written"),
        (["show", "file:/nowhere/schedule.csv", *D4N4], "method"),
        (["show", "no_such_module:function", *D4N4], "method"),
        (["show", "bitpipe", "--depth", "4", "--micro-batches", "99999999999"], "nearest: 625000"),
        (["show", "bitpipe", "--depth", "99999999999", "--micro-batches", "4", "--pad"], "at most 10000000"),
        (["draw"], "invalid choice"),
        ([], "required"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err


def test_an_ascii_terminal_is_enough():
    done = subprocess.run(
        [sys.executable, "-m", "bitpipe.schedule", "list"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "bitpipe" in done.stdout


def test_it_starts_fast_without_torch_and_draws_nothing_it_was_not_asked_for():
    command = "import sys; from bitpipe.schedule.__main__ import main; main(sys.argv[1:]); "
    command += "print([m for m in ('torch', 'numpy', 'matplotlib') if m in sys.modules])"
    arguments = [sys.executable, "-c", command, "show", "bitpipe", *D4N4, "--json"]
    times = []
    for _ in range(3):
        start = time.perf_counter()
        done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60)
        times.append(time.perf_counter() - start)
    assert done.stdout.splitlines()[-1] == "[]"
    assert min(times) < 0.5 * (4 if os.cpu_count() and os.getloadavg()[0] > os.cpu_count() else 1)


def test_a_reader_that_stops_early_is_no_error():
    command = (
        f"{sys.executable} -m bitpipe.schedule show bitpipe -D 4 -N 64 | head -1; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] in ("0", "141")  # all fitted into the pipe, or not
    assert done.stderr == ""
