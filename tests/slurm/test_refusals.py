"""What cannot work is one clear line and exit status 2, and nothing is submitted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_user import TWO_RANKS, User
from some_blocks import block, cell

from bitpipe.errors import InputError
from experiments.composing.settings import RunSettings
from experiments.running.block import Block
from slurm import client, submit
from slurm.folder import SweepFolder
from slurm.settle import look
from slurm.site import Site
from slurm.testcluster import TestCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

BIG = ("depth=16", "micro_batches=16", "method=bitpipe")


@pytest.mark.parametrize(("overrides", "site", "complaint"), [
    (["depth=4"], {"partition": "gpuu"}, "site.partition=gpuu: this cluster has high, main"),
    ([*BIG, "width=4", "cluster.nodes=8"], {}, "nodes=8: partition main has 4 nodes"),
    ([*BIG, "cluster.devices_per_node=16"], {"gpus": "always"}, "gpus_per_node=16: partition main has 8 per"),
    (["depth=4"], {"constraint": "none"}, "slurm=sbatch: "),
])  # fmt: skip
def test_a_request_that_the_cluster_cannot_meet(
    user: User, on_cluster: TestCluster, overrides: list[str], site: dict[str, object], complaint: str
) -> None:
    user.settings(**site)
    done = user.run("micro_batches=4", "method=bitpipe", *overrides)
    assert done.returncode == 2, done.stdout
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
    assert not on_cluster.client("squeue", "-h").stdout
    assert not (user.results / "slurm").exists()


def test_no_sbatch(user: User) -> None:
    path = os.pathsep.join(
        p for p in os.environ["PATH"].split(os.pathsep) if not (Path(p) / "sbatch").exists()
    )
    done = user.run("depth=4", "hydra/launcher=slurm", PATH=path)
    assert done.returncode == 2
    assert "no sbatch" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_refusal_half_way_says_what_is_submitted_and_how_to_end_it(
    on_cluster: TestCluster, tmp_path: Path
) -> None:
    """What only sbatch finds out: the second array asks for more nodes than there are."""
    settings = RunSettings(results=tmp_path, launcher="slurm")
    blocks = [replace(block(depth=depth), settings=settings) for depth in (4, 8)]
    held = Site(sbatch={"hold": True})
    wanted = submit.planned(blocks, held, submit.Options(), max_array_size=10)
    folder = SweepFolder.create(tmp_path, "e", "s")
    folder.describe(blocks, {})
    folder.code.mkdir()
    refused = replace(wanted.arrays[1], request=replace(wanted.arrays[1].request, nodes=99))
    wanted = replace(wanted, arrays=(wanted.arrays[0], refused))
    with pytest.raises(InputError, match=r"1 jobs are already submitted.*slurm cancel e/s") as caught:
        submit.submit(folder, wanted, held, print)
    assert "\n" not in str(caught.value)
    assert [job.cells for job in folder.jobs()] == [(blocks[0].cells[0].id,)]


def test_2500_cells_are_accepted_in_arrays_of_at_most_1001(on_cluster: TestCluster, tmp_path: Path) -> None:
    settings = RunSettings(results=tmp_path, launcher="slurm")
    one = cell()
    blocks = [
        Block(experiment="many", cells=(replace(one, job=replace(one.job, seed=seed)),), settings=settings)
        for seed in range(2500)
    ]
    held = Site(sbatch={"hold": True})
    assert client.max_array_size() == 1001
    wanted = submit.planned(blocks, held, submit.Options(), max_array_size=client.max_array_size())
    folder = SweepFolder.create(tmp_path, "many", "s")
    folder.describe(blocks, {})
    folder.code.mkdir()
    said: list[str] = []
    submit.submit(folder, wanted, held, said.append)
    assert [line.split(": ")[1].split()[0] for line in said] == ["1001", "1001", "498"]
    assert len({job.job for job in folder.jobs()}) == 2500
    assert len(on_cluster.client("squeue", "-h", "-r").stdout.splitlines()) == 2500
    assert {state.state for state in look(folder)} == {"pending"}


@pytest.fixture
def without_accounting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: TestCluster
) -> Iterator[TestCluster]:
    """A second cluster beside the first, without slurmdbd."""
    made = TestCluster(tmp_path / "bare", nodes=1, accounting=False)
    made.start()
    monkeypatch.setenv("SLURM_CONF", str(made.configuration))
    client.configuration.cache_clear()
    try:
        yield made
    finally:
        made.stop()
        client.configuration.cache_clear()


def test_without_accounting_a_job_that_left_nothing_is_still_noticed(
    without_accounting: TestCluster, tmp_path: Path
) -> None:
    assert not client.accounting()
    user = User(results=tmp_path / "results", site=tmp_path / "site.yaml")
    user.settings(setup=["exit 3"])
    done = user.run(*TWO_RANKS)
    assert done.returncode != 0
    (state,) = look(user.folder)
    assert state.state == "failed"
    assert "ended FAILED without a record" in state.note
