"""A schedule of one's own runs in a job as it was when the command was typed, wherever it lies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_user import User, wait_for
from some_blocks import block

from bitpipe.errors import InputError
from bitpipe.schedule.own import COPIES, own_schedule
from bitpipe.schedule.spec import ScheduleSpec
from experiments.composing.compose import _own_order
from experiments.running.block import Block
from slurm import snapshot
from slurm.own_schedules import take_along
from slurm.plan import SCHEDULES
from slurm.testcluster import TestCluster

ROOT = Path(__file__).resolve().parents[2]
ROWS = "F0@0d F1@0d B0@0d B1@0d\nF0@1d B0@1d F1@1d B1@1d\n"
FUNCTION = "from {helper} import ROWS\n\ndef order(spec):\n    return [row.split() for row in ROWS]\n"
HELPER = f"ROWS = {ROWS.splitlines()!r}\n"


def of_method(method: str) -> Block:
    """A block whose only cell runs that schedule."""
    one = block(2)
    job = replace(one.cells[0].job, schedule=ScheduleSpec(method=method, depth=2, micro_batches=2))
    cell = replace(one.cells[0], job=job, options=_own_order(job))
    return replace(one, cells=(cell,))


def read_in_a_job(code: Path, method: str, path: str = "") -> str:
    """The schedule's first row as a process that has only the snapshot, and the shell's path, reads it."""
    ask = f"print(own_schedule(ScheduleSpec(method={method!r}, depth=2, micro_batches=2)).orders[0])"
    imports = "from bitpipe.schedule.own import *; from bitpipe.schedule.spec import ScheduleSpec"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{code}:{path}", COPIES: str(code / SCHEDULES)}
    done = subprocess.run(
        [sys.executable, "-c", f"{imports}; {ask}"],
        cwd=code,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A snapshot of this repository."""
    snapshot.take(tmp_path / "sweep" / "code", repository=ROOT)
    return tmp_path / "sweep" / "code"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the user's, on the path and the place where the command is typed."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(folder)
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("kind", ["relative", "absolute", "linked", "csv-named folder", "odd name"])
def test_a_file_goes_along_and_later_edits_change_nothing(code: Path, elsewhere: Path, kind: str) -> None:
    path = elsewhere / {"csv-named folder": "a.csv/mine.txt", "odd name": "mein plan=1,2 ü.txt"}.get(
        kind, "mine.txt"
    )
    path.parent.mkdir(exist_ok=True)
    path.write_text(ROWS)
    named = path
    if kind == "linked":
        (elsewhere / "link.txt").symlink_to(path)
        named = elsewhere / "link.txt"
    method = f"file:{named.name if kind == 'relative' else named}"
    take_along(code, [of_method(method)])
    path.write_text("nonsense")
    assert "F0@0d" in read_in_a_job(code, method).replace("Action", "F0@0d")


def module_file(folder: Path) -> str:
    (folder / "my_orders.py").write_text(FUNCTION.format(helper="helper_of_mine"))
    (folder / "helper_of_mine.py").write_text(HELPER)
    return "my_orders:order"


def package(folder: Path) -> str:
    (folder / "my_package" / "inner").mkdir(parents=True)
    (folder / "my_package" / "__init__.py").write_text("")
    (folder / "my_package" / "inner" / "__init__.py").write_text(FUNCTION.format(helper="..rows"))
    (folder / "my_package" / "rows.py").write_text(HELPER)
    return "my_package.inner:order"


def namespace(folder: Path) -> str:
    (folder / "my_namespace").mkdir()
    (folder / "my_namespace" / "orders.py").write_text(FUNCTION.format(helper=".rows"))
    (folder / "my_namespace" / "rows.py").write_text(HELPER)
    return "my_namespace.orders:order"


def linked_package(folder: Path) -> str:
    real = folder / "real"
    real.mkdir()
    package(real)
    (folder / "my_package").symlink_to(real / "my_package")
    return "my_package.inner:order"


@pytest.mark.parametrize("make", [package, namespace, linked_package])
def test_a_module_goes_along_with_its_package(code: Path, elsewhere: Path, make: object) -> None:
    method = make(elsewhere)  # type: ignore[operator]
    take_along(code, [of_method(method)])
    assert read_in_a_job(code, method)


def test_a_module_finds_what_it_imports_where_the_shell_found_it(code: Path, elsewhere: Path) -> None:
    method = module_file(elsewhere)
    take_along(code, [of_method(method)])
    (elsewhere / "my_orders.py").write_text("edited")
    assert read_in_a_job(code, method, path=str(elsewhere))


def test_a_module_that_the_interpreter_has_installed_stays_there(code: Path) -> None:
    """It has no schedule in it, but that is for validation to say."""
    before = sorted(code.rglob("*"))
    take_along(code, [of_method("yaml:load")])
    assert sorted(code.rglob("*")) == before


def test_a_text_that_was_edited_meanwhile_is_refused(code: Path, elsewhere: Path) -> None:
    (elsewhere / "mine.txt").write_text(ROWS)
    made = of_method("file:mine.txt")
    (elsewhere / "mine.txt").write_text(ROWS.replace("F1@0d B0@0d", "B0@0d F1@0d"))
    with pytest.raises(InputError, match=r"method=file:mine\.txt: its text was changed while"):
        take_along(code, [made])


def test_a_secret_is_not_taken_along(code: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    (elsewhere / "mine.txt").write_text(f"{ROWS}# 0123456789abcdef\n")
    with pytest.raises(InputError, match="secret variable"):
        take_along(code, [of_method("file:mine.txt")])


def test_without_copies_a_file_is_read_where_it_lies(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "mine.txt").write_text(ROWS)
    monkeypatch.setenv(COPIES, str(elsewhere / "none"))
    assert own_schedule(ScheduleSpec(method="file:mine.txt", depth=2, micro_batches=2)).depth == 2


@pytest.mark.slurm
@pytest.mark.timeout(300)
def test_jobs_run_what_was_submitted(user: User, on_cluster: TestCluster, tmp_path: Path) -> None:
    """A file and a module that lie beside the repository, gone before the job starts."""
    (tmp_path / "mine.txt").write_text(ROWS)
    (tmp_path / "on_path").mkdir()
    namespace(tmp_path / "on_path")
    user.settings(sbatch={"hold": True})
    methods = f"method.name=file:{tmp_path}/mine.txt,my_namespace.orders:order"
    shape = ("depth=2", "micro_batches=2", "method=bitpipe", "model.layers=4", "iterations=2", "measured=1")
    own = ("method.chunks=null", "method.placement=null", "method.early_forward=false", "method.pad=false")
    done = user.run(*shape, *own, methods, "wait=false", PYTHONPATH=str(tmp_path / "on_path"))
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "mine.txt").unlink()
    (tmp_path / "on_path").rename(tmp_path / "gone")
    jobs = {job.job for job in user.folder.jobs()}
    wait_for(lambda: "PENDING" in on_cluster.client("squeue", "-h", "-o", "%T").stdout)
    on_cluster.client("scontrol", "release", *jobs)
    collected = user.slurm("collect", "--wait")
    assert collected.returncode == 0, collected.stdout + collected.stderr
    assert "2 ok" in collected.stdout
