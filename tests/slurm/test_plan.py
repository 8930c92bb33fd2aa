"""From blocks to arrays to sbatch text, without a cluster."""

from __future__ import annotations

import shlex
import subprocess
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
    options = Options(max_gpu_hours=0.1, canary=False)
    with pytest.raises(InputError, match=r"max_gpu_hours=0.1: .*0\.5 GPU-hours"):
        submit.planned([block(depth=4, backend="cuda")], Site(), options, max_array_size=10)


def test_jobs_without_gpus_take_no_gpu_hours() -> None:
    made = submit.planned([block(depth=4)], Site(), Options(max_gpu_hours=0.1), max_array_size=10)
    assert made.cost == "0.5 rank-hours"
    mixed = [block(depth=4), block(depth=8, backend="cuda")]
    both = submit.planned(mixed, Site(), Options(canary=False), max_array_size=10)
    assert both.cost == "1.1 GPU-hours and 0.5 rank-hours"


def test_a_time_limit_of_the_site_file_enters_request_budget_and_checks() -> None:
    """`time: 1:30:00` was 90 hours to sbatch, and nothing to the budget."""
    site = Site.of({"sbatch": {"time": "1:30:00"}})
    one = plan.request(block(depth=4, backend="cuda"), site)
    assert one.minutes == 90
    with pytest.raises(InputError, match=r"max_gpu_hours=5: the sweep may take 6\.0 GPU-hours"):
        submit.planned(
            [block(depth=4, backend="cuda")],
            site,
            Options(max_gpu_hours=5, canary=False),
            max_array_size=10,
        )
    with pytest.raises(InputError, match="minutes=90: partition main has a limit of 60 minutes"):
        plan.fit([Array(request=one, members=(0,))], site, {"main": MAIN})
    assert "time" not in rendered(site, one, "x").partition("--time=90")[2].partition("# setup")[0]
    assert "#SBATCH --time=90\n" in rendered(site, one, "x")


def test_several_partitions_are_one_request_that_one_of_them_can_meet() -> None:
    small = replace(MAIN, name="small", nodes=1, default=False)
    two = [Array(request=requests((2, 8))[0], members=(0,))]
    plan.fit(two, Site(partition="small,main"), {"main": MAIN, "small": small})
    with pytest.raises(InputError, match="nodes=2: partition small has 1 nodes"):
        plan.fit(two, Site(partition="small"), {"main": MAIN, "small": small})
    with pytest.raises(InputError, match=r"site\.partition=mian: this cluster has main, small"):
        plan.fit(two, Site(partition="small,mian"), {"main": MAIN, "small": small})


def test_nodes_of_four_gpus_name_the_setting_that_fits() -> None:
    four = replace(MAIN, gpus_per_node=4)
    eight = Request(nodes=1, tasks_per_node=8, gpus_per_node=8, minutes=5)
    with pytest.raises(InputError, match=r"4 per node \(cluster\.devices_per_node=4 puts"):
        plan.fit([Array(request=eight, members=(0,))], Site(), {"main": four})


def test_a_line_of_the_set_up_that_fails_ends_the_job_and_is_named() -> None:
    one = requests((1, 1))[0]
    script = rendered(Site(setup=("true", "X=1\nfalse", "echo never")), one, "x").partition("# command")[0]
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "site.setup: X=1 false: ended with status 1\n"


@pytest.mark.parametrize(("site", "one", "complaint"), [
    (Site(partition="gpuu"), requests((1, 4))[0], r"site\.partition=gpuu: this cluster has main"),
    (Site(), requests((5, 8))[0], "nodes=5: partition main has 4 nodes"),
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


def rendered(site: Site, one: Request, name: str, after: str | None = None) -> str:
    """The sbatch text of three jobs, and below it their step's command line."""
    array = Array(request=one, members=(0, 1, 2))
    values = plan.parameters(array, site, name=name, code=Path("/sweep/code"), dependency=after)
    python = plan.interpreter(site, "/venv/python")
    return plan.render(values, count=3, folder=Path("/sweep/jobs"), python=python)


def step(site: Site, one: Request) -> str:
    return shlex.join(
        plan.step_command(
            site,
            one,
            "/venv/python",
            output="/job/rank%t/out.txt",
            error="/job/rank%t/err.txt",
            code=Path("/results/sweep/code"),
            visible=[Path("/results"), Path("/data")],
        )
    )


CONTAINER = {"mounts": ("/scratch:/scratch",), "host_python": "/shared/venv/bin/python"}
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
            srun=("--mpi=none",),
            cpus_per_task=4,
        ),
        8,
    ),
    "apptainer": (Site(container="apptainer", image="/images/b.sif", **CONTAINER), 8),
    "pyxis": (Site(container="pyxis", image="/images/b.sqsh", python="/opt/venv/bin/python", **CONTAINER), 8),
}


@pytest.mark.parametrize("name", SITES)
def test_the_script_and_its_step_are_the_golden_ones(name: str) -> None:
    """The supervisor runs on the host, its ranks in the container, and both run the snapshot."""
    site, gpus = SITES[name]
    one = Request(nodes=2, tasks_per_node=8, gpus_per_node=gpus, minutes=30)
    text = rendered(site, one, "table6", "afterok:17" if gpus else None)
    text += f"\n# a step of the job\n{step(site, one)}\n"
    golden = GOLDEN / f"{name}.sbatch"
    assert text == golden.read_text(), f"new text, if it is meant so, belongs into {golden}"


def test_a_container_without_an_interpreter_named_has_its_own_python() -> None:
    one = requests((1, 2))[0]
    site = Site(container="apptainer", image="/i.sif")
    assert step(site, one).endswith("/i.sif python3 -u")
    assert "--nv" not in step(site, one)  # no GPUs were asked for
    assert plan.interpreter(site, "/venv/python") == "exec /venv/python"
    named = replace(site, python="/opt/python")
    assert step(named, one).endswith("/i.sif /opt/python -u")
    assert plan.interpreter(named, "/venv/python") == "exec /venv/python"
    assert plan.interpreter(Site(python="/opt/python"), "/venv/python") == "exec /opt/python"
