"""Checks a cluster before a sweep is trusted to it; every failure says how to mend it."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitpipe.errors import InputError
from experiments.records.store import NotWritten, write_json
from slurm import client, jobs, plan, preflight, site, snapshot, submit
from slurm.environment import scrubbed_here
from slurm.folder import SweepFolder
from slurm.quota import space

FREE_BYTES = 2 << 30
PROBE_MINUTES = 5
DRIVER = Path("/dev/nvidiactl")
NO_CONTROLLER = (
    "type it on a login node; export SLURM_CONF=/path/of/slurm.conf if that is elsewhere; see whether "
    "slurmctld is up with scontrol ping. Without a cluster: python -m slurm testcluster start, or "
    "hydra/launcher=local for run.py"
)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One answer.

    Attributes:
        name: what was checked.
        ok: True, False, or None for a remark.
        found: what was seen.
        fix: what to do if it is not ok.
    """

    name: str
    ok: bool | None
    found: str
    fix: str = ""

    def __str__(self) -> str:
        mark = {True: "ok  ", False: "FAIL", None: "note"}[self.ok]
        return f"{mark}  {self.name}: {self.found}" + (f"\n      fix: {self.fix}" if self.fix else "")


def examine(results: Path, site_file: str | None, *, timeout: float) -> int:
    """Run all checks and print them; 1 if one failed.

    Raises:
        InputError: a bad site file.
    """
    where, file = site.load(site_file)
    checks = [*login(results, where, file)]
    for check in checks:
        print(check, flush=True)
    if all(check.ok is not False for check in checks):
        for check in compute(results, where, timeout):
            checks.append(check)
            print(check, flush=True)
    failed = sum(check.ok is False for check in checks)
    print(f"{len(checks)} checks, {failed} failed")
    return 1 if failed else 0


def login(results: Path, where: site.Site, file: Path | None) -> list[Check]:
    """What can be seen from here."""
    try:
        offered = client.partitions()
    except client.NoAnswer as error:
        return [
            Check(name="controller", ok=False, found=f"{error.value}: {error.allowed}", fix=NO_CONTROLLER)
        ]
    checks = [
        Check(
            name="site file",
            ok=True if file else None,
            found=str(file) if file else "none; defaults are used",
            fix="" if file else "python -m slurm init",
        ),
        Check(name="controller", ok=True, found=f"answers; partitions {', '.join(offered)}"),
    ]
    known = all(name in offered for name in where.partitions)
    checks.append(
        Check(
            name="partition",
            ok=known,
            found=where.partition or "the default one",
            fix="" if known else f"set site.partition to one of {', '.join(offered)}",
        )
    )
    checks.append(accounting())
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWritten(results, error.strerror or str(error)) from error
    room = space(results)
    enough = room.free >= FREE_BYTES
    checks.append(
        Check(
            name="space and quota for results",
            ok=enough,
            found=room.found,
            fix="" if enough else "delete something, ask for quota, or results=FOLDER on another file system",
        )
    )
    return checks


def accounting() -> Check:
    """Whether sacct is to be asked, and whether it then answers."""
    if not client.accounting():
        return Check(
            name="accounting",
            ok=None,
            found="off: jobs that Slurm has forgotten have no cause",
            fix="collect within MinJobAge of a job's end",
        )
    try:
        client.call("sacctmgr", "-n", "-P", "show", "cluster", "format=Cluster")
    except InputError as error:
        return Check(
            name="accounting",
            ok=False,
            found=f"configured, but it does not answer: {error.allowed}",
            fix="ask for slurmdbd to be started; until then ends of jobs may be learnt late",
        )
    return Check(name="accounting", ok=True, found="sacct answers")


def compute(results: Path, where: site.Site, timeout: float) -> list[Check]:
    """A job with one task, then one on two nodes."""
    folder = SweepFolder.create(results, "doctor", time.strftime("%Y%m%d-%H%M%S"))
    snapshot.take(folder.code)
    write_json(folder.path / "seen-from-login.json", socket.gethostname())
    one = _run(folder, where, nodes=1, timeout=timeout)
    checks = [*of_probe(one, "one-task job")]
    if one and sum(p.nodes for p in client.partitions().values()) > 1:
        checks += of_probe(_run(folder, where, nodes=2, timeout=timeout), "two-node job")
    return checks


def of_probe(found: Mapping[str, Any], name: str) -> list[Check]:
    """A job's answer as checks. Pure."""
    if "problem" in found:
        return [Check(name=name, ok=False, found=found["problem"], fix=found["fix"])]
    checks = [Check(name=name, ok=True, found=f"ran on {found['host']} within {found['waited']:.0f} s")]
    shared = found["shared"]
    checks.append(
        Check(
            name="shared file system",
            ok=shared,
            found="results are seen from both sides"
            if shared
            else "the job does not see the login node's files",
            fix="" if shared else "put the repository and results on a file system that all nodes mount",
        )
    )
    same = found["python"] == sys.version.split()[0]
    checks.append(
        Check(
            name="Python on the compute nodes",
            ok=same and not found["missing"],
            found=f"{found['python']}"
            + (f", missing {', '.join(found['missing'])}" if found["missing"] else ""),
            fix="" if same and not found["missing"] else "set site.python, or load its module in site.setup",
        )
    )
    if found["gpus"]:
        checks.append(_gpus(found))
    checks.append(
        Check(
            name="internet on the compute nodes",
            ok=None,
            found="yes" if found["internet"] else "no",
            fix=""
            if found["internet"]
            else "keep wandb.mode=offline; wandb sync results/cells/*/a*/wandb/* here",
        )
    )
    measured = found.get("preflight")
    if measured:
        hosts = sorted({rank["host"] for rank in measured["ranks"]})
        whole = len(measured["ranks"]) == found["tasks"]
        checks.append(
            Check(
                name="PMI and collectives",
                ok=whole and not measured["problems"],
                found=f"{len(measured['ranks'])} ranks on {', '.join(hosts)}; "
                + ("; ".join(measured["problems"]) or "all-reduce and P2P answer"),
                fix=""
                if whole and not measured["problems"]
                else "site.srun: ['--mpi=none'], NCCL_SOCKET_IFNAME",
            )
        )
    return checks


def _gpus(found: Mapping[str, Any]) -> Check:
    """What a job that asked for GPUs sees of them."""
    name = "GPUs on the compute nodes"
    if found["cuda"]:
        return Check(name=name, ok=True, found=f"asked for {found['gpus']}, PyTorch sees {found['cuda']}")
    if not found["driver"]:
        return Check(
            name=name,
            ok=None,
            found=f"asked for {found['gpus']}, but {found['host']} has no NVIDIA driver",
            fix="backend=virtual; or a partition with NVIDIA GPUs in the site file",
        )
    return Check(
        name=name,
        ok=False,
        found=f"asked for {found['gpus']}, PyTorch sees none though the driver is there",
        fix="a PyTorch with CUDA for site.python; site.gpu_type, if the cluster wants gres by type",
    )


def _run(folder: SweepFolder, where: site.Site, *, nodes: int, timeout: float) -> dict[str, Any]:
    """Submit a probe and wait for its answer; the answer, or a problem with its fix."""
    import submitit

    gpus = 1 if where.gpus == "always" or (where.gpus == "cuda" and offers_gpus(where)) else 0
    request = plan.Request(nodes=nodes, tasks_per_node=1, gpus_per_node=gpus, minutes=PROBE_MINUTES)
    array = plan.Array(request=request, members=(0,))
    python = plan.interpreter(where, sys.executable)
    executor = submitit.SlurmExecutor(folder=folder.jobs_folder, max_num_timeout=0, python=python)
    executor.update_parameters(**plan.parameters(array, where, name="doctor", code=folder.code))
    answer = folder.path / f"answer-{nodes}.json"
    begin = time.monotonic()
    try:
        with submit.refusals(folder), scrubbed_here():
            job = executor.submit(Probe(folder=folder.path, request=request, site=where, answer=answer))
    except InputError as error:
        return {"problem": f"sbatch refuses: {error.allowed}", "fix": "change the site file accordingly"}
    while time.monotonic() - begin < timeout:
        if answer.exists():
            found: dict[str, Any] = json.loads(answer.read_text())
            return {**found, "waited": time.monotonic() - begin}
        state = jobs.states([job.job_id])[job.job_id]
        if not state.active and not answer.exists():
            time.sleep(1)  # a shared file system may lag behind
            if not answer.exists():
                return {
                    "problem": f"job {job.job_id} ended {state.state} without an answer",
                    "fix": _log_of(job),
                }
        time.sleep(0.5)
    state = jobs.states([job.job_id])[job.job_id]
    client.call("scancel", job.job_id)
    return {
        "problem": f"job {job.job_id} is {state.state} after {timeout:.0f} s ({state.reason})",
        "fix": "choose another partition, account or QoS in the site file, or wait with --timeout",
    }


def offers_gpus(where: site.Site) -> bool:
    """Whether a partition that jobs may go to has GPUs, whatever this machine has."""
    offered = client.partitions()
    chosen = [offered[name] for name in where.partitions if name in offered]
    return any(p.gpus_per_node for p in chosen or [p for p in offered.values() if p.default])


def _cuda_devices() -> int:
    import torch

    return torch.cuda.device_count()


def _log_of(job: Any) -> str:
    path = Path(job.paths.stderr)
    last = path.read_text(errors="replace").strip().splitlines()[-1:] if path.exists() else []
    return f"its log ends: {last[0]}" if last else f"no log at {path}: is the folder shared?"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a probing job does."""

    folder: Path
    request: plan.Request
    site: site.Site
    answer: Path

    def __call__(self) -> None:
        import importlib.util
        import subprocess

        missing = [name for name in ("torch", "numpy", "submitit") if importlib.util.find_spec(name) is None]
        found: dict[str, Any] = {
            "host": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
            "python": sys.version.split()[0],
            "missing": missing,
            "shared": (self.folder / "seen-from-login.json").exists(),
            "internet": _reaches("api.wandb.ai", 443),
            "tasks": self.request.nodes * self.request.tasks_per_node,
            "gpus": self.request.gpus_per_node,
            "cuda": _cuda_devices() if "torch" not in missing else 0,
            "driver": DRIVER.exists(),
        }
        if self.request.nodes > 1 and "torch" not in missing:
            step = self.folder / "preflight"
            step.mkdir(exist_ok=True)
            log = str(step / "rank%t.txt")
            command = plan.step_command(
                self.site,
                self.request,
                sys.executable,
                output=log,
                error=log,
                code=SweepFolder(self.folder).code,
                visible=[self.folder],
            )
            backend = "cuda" if found["cuda"] else "virtual"
            subprocess.run([*command, "-m", "slurm.preflight", str(step), backend], timeout=200, check=False)
            result = step / preflight.FILE
            if result.exists():
                found["preflight"] = json.loads(result.read_text())
            else:
                last = (step / "rank0.txt").read_text(errors="replace").strip().splitlines()[-1:]
                found = {
                    "problem": f"the ranks of two nodes did not meet: {last[0] if last else 'no output'}",
                    "fix": "site.srun: ['--mpi=none']; site.environment: {GLOO_SOCKET_IFNAME: …}",
                }
        write_json(self.answer, found)


def _reaches(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=3).close()
    except OSError:
        return False
    return True
