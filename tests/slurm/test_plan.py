"""From blocks to arrays to sbatch text, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_blocks import block

from bitpipe.errors import InputError
from slurm import job, plan, submit
from slurm.client import Partition
from slurm.plan import Array, Request
from slurm.site import Site
from slurm.submit import Options

GOLDEN = Path(__file__).parent / "golden"
MAIN = Partition(name="main", default=True, nodes=4, gpus_per_node=8, minutes=60, cpus_per_node=32)


def requests(*shapes: tuple[int, int]) -> list[Request]:
    return [Request(nodes=n, tasks_per_node=t, gpus_per_node=0, minutes=5) for n, t in shapes]


def test_a_block_asks_for_its_shape_and_for_time_per_cell() -> None:
    site = Site(minutes_per_cell=2.5, startup_minutes=3)
    assert str(plan.request(block(depth=4), site)) == "1x4, 6 min"
    four = block(depth=16, cells=4)
    assert str(plan.request(four, site)) == "2x8, 13 min"
    thrice = replace(four, settings=replace(four.settings, repeats=3))
    assert str(plan.request(thrice, site)) == "2x8, 33 min"
    assert str(plan.request(job.canary_of(thrice), site)) == "2x8, 6 min"


@pytest.mark.parametrize(("gpus", "backend", "asked"), [
    ("cuda", "virtual", 0), ("cuda", "cuda", 8), ("always", "virtual", 8), ("never", "cuda", 0),
])  # fmt: skip
def test_gpus_are_asked_for_as_the_site_says(gpus: str, backend: str, asked: int) -> None:
    one = plan.request(block(depth=8, backend=backend), Site(gpus=gpus))
    assert one.gpus_per_node == asked


def test_one_array_per_shape_in_order() -> None:
    small, large = (1, 4), (2, 8)
    made = plan.arrays(requests(small, large, small, small), max_array_size=1001)
    assert [array.members for array in made] == [(0, 2, 3), (1,)]


def test_2500_cells_and_max_array_size_1001() -> None:
    made = plan.arrays(requests(*[(1, 4)] * 2500), max_array_size=1001)
    assert [len(array.members) for array in made] == [1001, 1001, 498]


@given(st.lists(st.sampled_from([(1, 4), (1, 8), (2, 8)]), max_size=60), st.integers(1, 9))
def test_every_block_is_in_exactly_one_array_of_its_own_shape(
    shapes: list[tuple[int, int]], limit: int
) -> None:
    wanted = requests(*shapes)
    made = plan.arrays(wanted, max_array_size=limit)
    members = [member for array in made for member in array.members]
    assert sorted(members) == list(range(len(shapes)))
    assert all(wanted[member] == array.request for array in made for member in array.members)
    assert all(1 <= len(array.members) <= limit for array in made)


def test_packing_makes_a_job_of_a_block_and_no_packing_a_job_of_a_cell() -> None:
    four = block(cells=4)
    assert len(submit.arrange([four], Options())) == 1
    assert len(submit.arrange([four], Options(pack=False))) == 4


def test_a_canary_per_shape_goes_first_when_asked_for() -> None:
    blocks = [block(depth=4, cells=2), block(depth=4, cells=2, seed=9), block(depth=8)]
    made = submit.planned(blocks, Site(), Options(canary=True), max_array_size=10)
    assert [len(array.members) for array in made.canaries] == [1, 1]
    assert made.canaries[0].request.minutes < made.arrays[0].request.minutes
    assert not submit.planned(blocks, Site(), Options(), max_array_size=10).canaries


def test_a_sweep_that_may_take_too_long_is_refused() -> None:
    with pytest.raises(InputError, match=r"max_gpu_hours=0.1: .*0\.5 GPU-hours"):
        submit.planned([block(depth=4)], Site(), Options(max_gpu_hours=0.1), max_array_size=10)


@pytest.mark.parametrize(("site", "one", "complaint"), [
    (Site(partition="gpuu"), requests((1, 4))[0], r"site\.partition=gpuu: this cluster has main"),
    (Site(), requests((5, 8))[0], "nodes=5: partition main has 4 usable nodes"),
    (Site(), Request(nodes=1, tasks_per_node=16, gpus_per_node=16, minutes=5), "gpus_per_node=16: .* 8 per"),
    (Site(cpus_per_task=5), requests((1, 8))[0], "cpus per node=40: partition main has 32 per node"),
    (Site(), Request(nodes=1, tasks_per_node=1, gpus_per_node=0, minutes=61), "minutes=61: .* 60 minutes"),
])  # fmt: skip
def test_what_the_cluster_cannot_give_is_refused_in_one_line(
    site: Site, one: Request, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        plan.fit([Array(request=one, members=(0,))], site, {"main": MAIN})
    assert "\n" not in str(caught.value)


SITES = {
    "plain": (Site(), 0),
    "everything": (
        Site(
            partition="gpu",
            account="project",
            qos="high",
            constraint="a100",
            gpu_type="a100",
            mem_per_cpu="4G",
            exclusive=True,
            parallel=2,
            environment={"NCCL_IB_HCA": "mlx5_0:1,mlx5_1:1", "WITH_QUOTE": "it's"},
            setup=("module load cuda/12.4",),
            sbatch={"reservation": "maintenance"},
        ),
        8,
    ),
}


@pytest.mark.parametrize("name", SITES)
def test_the_sbatch_text_is_the_golden_one(name: str) -> None:
    site, gpus = SITES[name]
    one = Request(nodes=2, tasks_per_node=8, gpus_per_node=gpus, minutes=30)
    array = Array(request=one, members=(0, 1, 2))
    after = "afterok:17" if gpus else None
    values = plan.parameters(array, site, name="table6", code=Path("/sweep/code"), dependency=after)
    text = plan.render(
        values, count=3, folder=Path("/sweep/jobs"), python=plan.interpreter(site, "/venv/python")
    )
    golden = GOLDEN / f"{name}.sbatch"
    assert text == golden.read_text(), f"new text, if it is meant so, belongs into {golden}"


def test_a_step_ends_as_a_whole_and_runs_in_the_container() -> None:
    one = Request(nodes=2, tasks_per_node=8, gpus_per_node=8, minutes=30)
    plain = plan.step_command(Site(srun=("--mpi=none",)), one, "/venv/python", output="o", error="e")
    assert plain == [
        "srun", "--unbuffered", "--kill-on-bad-exit=1", "--nodes=2", "--ntasks=16", "--ntasks-per-node=8",
        "--output=o", "--error=e", "--mpi=none", "/venv/python", "-u",
    ]  # fmt: skip
    pyxis = Site(container="pyxis", image="/i.sqsh", mounts=("/a:/a", "/b:/b"), python="python3")
    assert plan.step_command(pyxis, one, "x", output="o", error="e")[8:] == [
        "--container-image=/i.sqsh", "--container-mounts=/a:/a,/b:/b", "python3", "-u",
    ]  # fmt: skip
    apptainer = Site(container="apptainer", image="/i.sif", mounts=("/a:/a",), python="python3")
    assert plan.step_command(apptainer, one, "x", output="o", error="e")[8:] == [
        "apptainer", "exec", "--nv", "--bind=/a:/a", "/i.sif", "python3", "-u",
    ]  # fmt: skip
