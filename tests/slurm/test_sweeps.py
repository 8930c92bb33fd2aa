"""Sweeps on the test cluster, as a user starts them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml
from cluster_user import ROOT, TWO_RANKS, User, wait_for

from bitpipe.cluster import Cluster
from experiments.records.record import Status
from slurm import snapshot
from slurm.jobs import states
from slurm.settle import look
from slurm.testcluster import TestCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

SECRET = "0123456789abcdef0123456789abcdef01234567"


def test_three_shapes_make_three_arrays_and_the_table(user: User) -> None:
    user.settings(setup=['echo "HCA=$NCCL_IB_HCA"'], environment={"NCCL_IB_HCA": "mlx5_0:1,mlx5_1:1"})
    command = ["depth=4,8,16", "micro_batches=depth", "method=bitpipe", "iterations=2", "measured=1"]
    done = user.run(*command, WANDB_API_KEY=SECRET)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 cells in 3 jobs" in done.stdout
    assert [str(job.request)[:3] for job in user.folder.jobs()] == ["1x4", "1x8", "2x8"]

    for cell in user.folder.names:
        (record,) = user.records(cell)
        assert record.status is Status.OK
        assert record.provenance["launcher"] == "slurm"
        job = user.job_of(cell)
        assert record.provenance["slurm"]["job"] == job
        ranks = len(record.devices["peak_memory_bytes"])
        assert len(list(user.folder.job(job).glob("rank*/out.txt"))) == ranks
        log = user.folder.jobs_folder / f"{job}_0_log.out"
        assert "HCA=mlx5_0:1,mlx5_1:1" in log.read_text()

    rows = pd.read_csv(user.results / "tables" / "table6_ablation.csv")
    ran = rows[(rows["origin"] == "virtual") & (rows["status"] == "ok")]
    assert sorted(ran["depth"]) == [4, 8, 16]
    files = [path for path in user.results.rglob("*") if path.is_file()]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []

    again = user.run(*command)
    assert again.returncode == 0
    assert "3 of 3 cells are finished and skipped" in again.stdout
    assert len(list((user.results / "slurm").glob("*/*"))) == 1  # nothing was submitted


def test_the_same_command_twice_at_the_same_second_is_submitted_once_and_both_finish(user: User) -> None:
    both = [user.start(*TWO_RANKS, "repeats=2") for _ in range(2)]
    texts = [process.communicate(timeout=280)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], texts
    assert sum("on the way and not submitted again" in text for text in texts) == 1
    assert len(list((user.results / "slurm").glob("*/*"))) == 1
    (cell,) = user.folder.names
    (record,) = user.records(cell)
    assert record.status is Status.OK
    assert len(record.metrics["iterations_seconds"]) == 2 * 5


def test_what_is_on_its_way_is_not_submitted_again_but_more_cells_and_more_repeats_are(
    user: User, on_cluster: TestCluster
) -> None:
    user.settings(sbatch={"hold": True})
    first = user.run(*TWO_RANKS, "seed=1,2", "wait=false", "iterations=2", "measured=1")
    assert first.returncode == 0, first.stdout + first.stderr
    (job,) = {job.job.split("_")[0] for job in user.folder.jobs()}

    for more in ([], ["pack=false"], ["rerun=true"]):
        again = user.run(*TWO_RANKS, "seed=1,2", "wait=false", "iterations=2", "measured=1", *more)
        assert again.returncode == 0, again.stderr
        assert "2 of 2 cells are on the way and not submitted again" in again.stdout
        assert f"slurm collect {user.folder.name}" in again.stdout
    assert len(list((user.results / "slurm").glob("*/*"))) == 1

    third = user.run(*TWO_RANKS, "seed=1,2,3", "wait=false", "iterations=2", "measured=1")
    assert "2 of 3 cells are on the way" in third.stdout
    assert "1 cell in 1 job" in third.stdout
    precise = user.run(*TWO_RANKS, "seed=1", "wait=false", "iterations=2", "measured=1", "repeats=2")
    assert "1 cell in 1 job" in precise.stdout

    on_cluster.client("scancel", "-u", "root")
    wait_for(lambda: not on_cluster.client("squeue", "-h").stdout)
    user.settings()
    after = user.run(
        *TWO_RANKS, "seed=1", "iterations=2", "measured=1", "draw=false"
    )  # cancelled is not on its way
    assert after.returncode == 0, after.stdout + after.stderr
    assert job not in {one.job.split("_")[0] for one in user.folder.jobs()}


def test_ctrl_c_leaves_the_jobs_and_edited_code_changes_nothing(
    user: User, on_cluster: TestCluster, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    snapshot.take(checkout, repository=ROOT)
    user.settings(sbatch={"hold": True})
    command = [sys.executable, str(checkout / "run.py"), *user.command(*TWO_RANKS, "preflight=true")[2:]]
    waiting = subprocess.Popen(
        [*command, f"results={user.results}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(checkout)},
    )
    user.processes.append(waiting)
    wait_for(lambda: list((user.results / "slurm").glob("*/*/jobs.jsonl")))
    wait_for(lambda: user.folder.jobs())
    (cell,) = user.folder.names
    job = user.job_of(cell)
    wait_for(lambda: states([job])[job].state == "PENDING")
    os.killpg(waiting.pid, signal.SIGINT)
    text = waiting.communicate(timeout=60)[0]
    assert waiting.returncode == 130, text
    assert "the jobs keep running" in text
    assert f"python -m slurm collect {user.folder.name}" in text

    for room in ("bitpipe", "experiments", "slurm"):
        shutil.rmtree(checkout / room)
        (checkout / room).mkdir()
        (checkout / room / "__init__.py").write_text("raise RuntimeError('edited after submission')\n")
    status = user.slurm("status").stdout
    assert "pending" in status
    assert cell in status
    on_cluster.client("scontrol", "release", job)
    collected = user.slurm("collect", "--wait")
    assert collected.returncode == 0, collected.stdout + collected.stderr
    assert "1 ok" in collected.stdout
    (record,) = user.records(cell)
    looked = record.provenance["slurm"]["preflight"]
    assert [rank["host"] for rank in looked["ranks"]] == ["vnode1", "vnode1"]
    made = user.slurm("cluster", "--output", str(tmp_path / "here.yaml"))
    assert made.returncode == 0, made.stderr
    Cluster.from_mapping(yaml.safe_load((tmp_path / "here.yaml").read_text()))
    logs = user.slurm("logs", cell[:6])
    assert "==> jobs" in logs.stdout
    assert cell in logs.stdout


def test_slurm_itself_ends_what_takes_too_much_memory(user: User) -> None:
    user.settings(mem_per_cpu="60M")
    done = user.run(*TWO_RANKS)
    (cell,) = user.folder.names
    (record,) = user.records(cell)
    assert record.status is Status.FAILED, done.stdout
    assert record.cause.kind == "memory"
    user.settings()
    assert user.run(*TWO_RANKS).returncode == 0  # no result, so the same command runs it again


def test_a_canary_that_fails_keeps_the_rest_from_starting(user: User) -> None:
    user.settings(setup=["exit 3"])
    done = user.run(*TWO_RANKS, "method=bitpipe,bitpipe_without_e", "pack=false", "canary=true")
    assert done.returncode != 0
    found = look(user.folder)
    assert {state.state for state in found} == {"cancelled"}
    assert all("canary failed" in state.note for state in found)


def test_submit_and_return_then_cancel_then_run_the_missing_again_as_the_sweep_was(user: User) -> None:
    user.settings(sbatch={"hold": True})
    done = user.run(*TWO_RANKS, "wait=false", "canary=true", "preflight=true")
    assert done.returncode == 0
    assert "python -m slurm status" in done.stdout
    (cell,) = user.folder.names
    assert "cancelled 1 of 1 job of" in user.slurm("cancel", "--cell", cell[:5]).stdout
    assert "cancelled 1 of 2 jobs" in user.slurm("cancel").stdout  # the canary
    wait_for(lambda: look(user.folder)[0].state == "cancelled", seconds=60)
    assert "1 cancelled" in user.slurm("collect").stdout
    user.settings()
    again = user.slurm("requeue", "--only", "missing")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "submitted canary" in again.stdout
    before, now = user.records(cell)
    assert (before.status, now.status) == (Status.CANCELLED, Status.OK)
    assert now.provenance["slurm"]["preflight"]["problems"] == []


def test_a_job_without_cuda_is_one_clear_preflight_error(user: User) -> None:
    done = user.run(*TWO_RANKS, "backend=cuda", "canary=false")
    assert done.returncode != 0
    (job,) = user.folder.jobs()
    assert job.request.gpus_per_node == 2
    (record,) = user.records(job.cells[0])
    assert record.status is Status.FAILED
    assert record.cause.kind == "preflight"
    assert "node vnode1: backend=cuda, but this job sees no CUDA device" in record.cause.message


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_24_cells_of_table_6(user: User) -> None:
    user.settings(minutes_per_cell=15, parallel=1)  # three jobs of 4, 8 and 16 ranks at a time
    done = user.run(timeout=1700)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "24 cells in 6 jobs" in done.stdout
    assert {record.status for cell in user.folder.names for record in user.records(cell)} == {Status.OK}
