"""Ranks that something else has started: torchrun's and srun's variables."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bitpipe.errors import InputError
from bitpipe.runtime.processes.environment import rendezvous

SCRIPT = """
import json, sys
from training import RandomData, job_of, links_of
from bitpipe.runtime.block import prepare
from bitpipe.runtime.processes.environment import run_rank_from_environment
job = job_of("dapple", 2, 2, iterations=2)
runs = prepare([job], clock="virtual", links=[links_of(job)], data=RandomData())
results = run_rank_from_environment(runs)
print(json.dumps(results and [results[0].status, len(results[0].reports), results[0].losses]))
"""


def test_two_processes_run_as_two_ranks() -> None:
    outputs = []
    processes = []
    room = str(Path(__file__).parent)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for rank in range(2):
        environment = {
            **os.environ,
            "PYTHONPATH": room,
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, text=True
            )
        )
    for process in processes:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        outputs.append(json.loads(out))
    status, reports, losses = outputs[0]
    assert (status, reports, len(losses)) == ("ok", 2, 2)
    assert outputs[1] is None, "only rank 0 has the results"


def test_srun_names_the_rank_and_the_first_node() -> None:
    where = rendezvous(
        {
            "SLURM_PROCID": "5",
            "SLURM_STEP_NUM_TASKS": "16",
            "SLURM_STEP_NODELIST": "alpha,beta",
            "SLURM_JOB_ID": "7",
            "SLURM_STEP_ID": "0",
        }
    )
    assert (where.rank, where.size, where.address) == (5, 16, "alpha")
    assert 20_000 <= where.port < 30_000


def test_without_a_launcher_it_says_so() -> None:
    with pytest.raises(InputError, match="torchrun or srun"):
        rendezvous({})
    with pytest.raises(InputError, match="WORLD_SIZE=missing"):
        rendezvous({"RANK": "0"})
