"""``python run.py`` as a newcomer types it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments: str, results: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "run.py"), *arguments]
    if results is not None:
        command.append(f"results={results}")
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_help_names_the_backends_in_order_and_every_group() -> None:
    done = run("--help")
    assert done.returncode == 0
    text = done.stdout[done.stdout.index("backend:") :]
    assert text.index("simulate") < text.index("virtual") < text.index("cuda") < text.index("emulate")
    for name in ("table6_ablation", "bitpipe_without_v", "a800", "dry_run=true", "-m"):
        assert name in done.stdout


def test_help_takes_less_than_two_seconds() -> None:
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        run("--help")
        times.append(time.perf_counter() - begin)
    assert min(times) < 2.0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["method=bitpip"], "method=bitpip: allowed are"),
        (["method=bitpipe", "depth=5"], "depth=5: BitPipe needs an even depth"),
        (["dept=4"], "dept: no such key (did you mean depth?)"),
        (
            ["backend=virtual", "backend.options.steady=false"],
            "backend.options.steady=false: gone, leave it out",
        ),
        (
            ["backend=virtual", "+backend.options.steady=true"],
            "backend.options.steady=true: gone, leave it out",
        ),
        (["method.cp=4"], "method.cp: no such key (did you mean method.cap?)"),
        (["cluster=a80"], "did you mean a800?"),
        (["method=bitpipe,dapple"], "method=bitpipe,dapple: several values need a sweep (add -m)"),
        (["+experiment=table6_abl", "-m"], "did you mean table6_ablation?"),
        (["rerun=perhaps"], "rerun=perhaps: Value 'perhaps' is not a valid bool"),
        (["depth=["], "depth=["),
        (["foo"], "foo: not KEY=VALUE"),
        (["+dept=4"], "did you mean depth?"),
        (["+depth=4"], "leave out the plus"),
        (["calibration=null"], "calibration=null: allowed are"),
        (["-m", "hydra/launcher=slrm"], "hydra/launcher=slrm: allowed are"),
    ],
)
def test_bad_input_is_one_line_and_a_status(arguments: list[str], line: str, tmp_path: Path) -> None:
    done = run(*arguments, results=tmp_path / "results")
    assert done.returncode == 2
    assert line in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("results", "reason"),
    [("", "a folder"), ("/proc/x", "cannot be written to"), ("/dev/null/x", "Not a directory")],
)
def test_results_that_cannot_be_written_are_one_line(results: str, reason: str) -> None:
    done = run("backend=simulate", "depth=4", f"results={results}")
    assert done.returncode == 2
    assert done.stderr.startswith(f"results={results}: ")
    assert reason in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_a_full_disk_in_mid_sweep_is_one_line_and_leaves_whole_files_only(tmp_path: Path) -> None:
    full = (
        "import os, sys; fsync, calls = os.fsync, []\n"
        "def fill(number):\n"
        "    calls.append(number)\n"
        "    if len(calls) > 2: raise OSError(28, 'No space left on device')\n"
        "    fsync(number)\n"
        f"os.fsync = fill; sys.path.insert(0, {str(ROOT)!r})\n"
        "import run; sys.exit(run.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", full, "backend=simulate", "depth=4", f"results={tmp_path}"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1
    assert "record.json cannot be written (No space left on device)" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not list(tmp_path.rglob(".*")), "no temporary file is left"


@pytest.mark.parametrize(
    ("group", "content", "words"),
    [
        ("cluster", b"name: x\nnodes: [1\ndevice: 3\n", "broken.yaml"),
        ("cluster", b"name: x\nname: y\n", "duplicate key name"),
        ("cluster", b"name: caf\xe9\n", "broken.yaml: not UTF-8"),
        ("experiment", b"defaults: [\n", "broken.yaml"),
        ("experiment", b"title: caf\xe9\n", "broken.yaml"),
    ],
)
def test_a_broken_configuration_file_is_one_line_that_names_it(
    group: str, content: bytes, words: str, tmp_path: Path
) -> None:
    conf = shutil.copytree(ROOT / "conf", tmp_path / "conf")
    (conf / group / "broken.yaml").write_bytes(content)
    script = (
        f"import sys; from pathlib import Path; sys.path.insert(0, {str(ROOT)!r})\n"
        f"import run; run.ROOT = Path({str(tmp_path)!r}); sys.exit(run.main(sys.argv[1:]))"
    )
    named = "+experiment=broken" if group == "experiment" else "cluster=broken"
    done = subprocess.run(
        [sys.executable, "-c", script, named, "backend=simulate", f"results={tmp_path / 'results'}"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_a_schedule_of_ones_own_that_deadlocks_is_shown_with_the_place(tmp_path: Path) -> None:
    file = tmp_path / "pair.txt"
    file.write_text("F0@0d F1@0d B0@0d B1@0d\nF0@1d B0@1d B1@1d F1@1d\n")
    done = run("method=own", f"method.name=file:{file}", "depth=2", "micro_batches=2", "backend=simulate")
    assert done.returncode == 2
    assert done.stderr.startswith(f"file:{file}: deadlock: every device waits")
    assert ">B1@0d" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_an_installation_it_says_what_to_type(tmp_path: Path) -> None:
    (tmp_path / "omegaconf.py").write_text("raise ModuleNotFoundError('No module', name='omegaconf')\n")
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 2
    assert "omegaconf: not installed for" in done.stderr
    assert "make install" in done.stderr


@pytest.mark.parametrize("module", ["yaml", "hydra", "omegaconf"])
def test_ctrl_c_while_it_starts_is_one_word(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), "+experiment=table6_ablation"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_two_experiments_at_once_are_refused_with_the_commands_to_type(tmp_path: Path) -> None:
    done = run("+experiment=table6_ablation,table6_ablation", "-m", results=tmp_path / "results")
    assert done.returncode == 2
    assert done.stderr.count("python run.py +experiment=table6_ablation") == 2
    assert not (tmp_path / "results").exists()


def test_dry_run_lists_cells_and_shapes_and_starts_nothing(tmp_path: Path) -> None:
    done = run(
        "+experiment=table6_ablation", "-m", "dry_run=true", "hydra/launcher=local", results=tmp_path / "r"
    )
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert first.startswith("backend=")
    assert "launcher=local (as forced)" in first
    assert "24 cells" in done.stdout
    assert "8 of 1x4, 8 of 1x8, 8 of 2x8" in done.stdout
    assert not (tmp_path / "r").exists()


def test_a_reader_that_stops_early_gets_no_traceback(tmp_path: Path) -> None:
    dry = "+experiment=table6_ablation -m dry_run=true hydra/launcher=local backend=simulate"
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' run.py {dry} 'results={tmp_path / 'r'}' | head -1"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout.startswith("backend=simulate")
    assert done.stderr == ""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Table 6, simulated once for the tests below."""
    results = tmp_path_factory.mktemp("results")
    return results, run(
        "+experiment=table6_ablation", "backend=simulate", "hydra/launcher=local", "-m", results=results
    )


def test_table_6_is_simulated_with_progress_and_its_table(
    simulated: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    results, done = simulated
    assert done.returncode == 0, done.stderr
    assert "[24/24] ok" in done.stdout
    assert "table6_ablation: 24 cells: 24 ok" in done.stdout
    records = [json.loads(path.read_text()) for path in results.glob("cells/*/a1/record.json")]
    assert {record["status"] for record in records} == {"ok"}
    assert {record["origin"] for record in records} == {"simulated"}
    assert all(len(record["devices"]["peak_memory_bytes"]) in (4, 8, 16) for record in records)
    (manifest,) = results.glob("sweeps/table6_ablation/*.json")
    assert len(json.loads(manifest.read_text())["cells"]) == 24
    assert (results / "tables" / "table6_ablation.csv").exists(), "analysis drew the table"


def test_a_second_run_skips_what_is_finished_and_says_so(
    simulated: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    results, _ = simulated
    again = run(
        "+experiment=table6_ablation",
        "backend=simulate",
        "hydra/launcher=local",
        "-m",
        "draw=false",
        results=results,
    )
    assert again.returncode == 0
    assert "24 of 24 cells are finished and skipped" in again.stdout
    assert not list(results.glob("cells/*/a2"))


def test_without_m_one_cell_runs_and_says_that_it_is_one_of_24(tmp_path: Path) -> None:
    done = run("+experiment=table6_ablation", "backend=simulate", "depth=4", "draw=false", results=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "table6_ablation has 24 cells; this runs one cell of its settings" in done.stdout
    assert "add -m" in done.stdout
    assert len(list(tmp_path.glob("cells/*"))) == 1
    assert [path.name for path in tmp_path.glob("sweeps/*")] == ["adhoc"], "it is no sweep of the experiment"
