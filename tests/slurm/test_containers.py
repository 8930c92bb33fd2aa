"""Containers end to end, but for the engine: stand-ins for apptainer and pyxis run what they are given.

They note how they were called, go to the working directory that was asked for, and put the image's
programs first on the path, as the real ones do.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from cluster_user import TWO_RANKS, User

from slurm.testcluster import TestCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

ENTER = """
import json, os, sys

def enter(options, command):
    with open({notes!r}, "a") as file:
        file.write(json.dumps(options) + "\\n")
    chosen = dict(option.partition("=")[::2] for option in options)
    os.chdir(chosen.get("--pwd") or chosen["--container-workdir"])
    os.environ["PATH"] = {image!r} + ":" + os.environ["PATH"]
    os.execvp(command[0], command)
"""
APPTAINER = """
arguments = sys.argv[1:]
assert arguments.pop(0) == "exec"
options = []
while arguments[0].startswith("-"):
    options.append(arguments.pop(0))
assert arguments.pop(0) == "/images/b.img"
enter(options, arguments)
"""
SRUN = """
if sys.argv[1] == "--inside":
    enter(json.loads(sys.argv[2]), sys.argv[3:])
end = next(k for k, word in enumerate(sys.argv) if k and not word.startswith("-"))
options, command = sys.argv[1:end], sys.argv[end:]
mine = [option for option in options if option.startswith("--container-")]
assert "--container-image=/images/b.img" in mine
rest = [option for option in options if option not in mine]
os.execv({srun!r}, ["srun", *rest, sys.executable, __file__, "--inside", json.dumps(mine), *command])
"""
PYTHON = '#!/bin/sh\nexport IN_THE_CONTAINER=1\nexec {python} -X frozen_modules=on "$@"\n'


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with what stands for the engine; ``notes`` has one line per call."""
    image, programs = tmp_path / "image", tmp_path / "programs"
    image.mkdir()
    programs.mkdir()
    notes = str(tmp_path / "notes")
    for name, text in {"apptainer": APPTAINER, "srun": SRUN}.items():
        enter = ENTER.format(notes=notes, image=str(image))
        body = text.format(srun=shutil.which("srun")) if name == "srun" else text
        (programs / name).write_text(f"#!{sys.executable}\n{enter}\n{body}")
        (programs / name).chmod(0o755)
    (image / "python3").write_text(PYTHON.format(python=sys.executable))
    (image / "python3").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("container", ["apptainer", "pyxis"])
def test_ranks_enter_the_container_and_their_supervisor_stays_outside(
    user: User, on_cluster: TestCluster, engine: Path, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if container == "apptainer":
        (engine / "programs" / "srun").unlink()
    monkeypatch.setenv("PATH", f"{engine / 'programs'}", prepend=":")
    user.settings(container=container, image="/images/b.img", mounts=["/srv:/srv"])
    done = user.run(*TWO_RANKS, "iterations=2", "measured=1", "draw=false")
    log = [path.read_text() for path in user.results.glob("slurm/*/*/jobs/*_log.*")]
    assert done.returncode == 0, done.stdout + done.stderr + "\n".join(log)

    calls = [json.loads(line) for line in (engine / "notes").read_text().splitlines()]
    assert len(calls) == 2  # one per rank, none for the supervisor
    code, results = user.folder.code, user.results
    for options in calls:
        if container == "apptainer":
            assert {f"--pwd={code}", f"--bind={results}:{results}", "--bind=/srv:/srv"} <= set(options)
            assert "--nv" not in options  # this backend asks for no GPUs
        else:
            mounts = next(o for o in options if o.startswith("--container-mounts="))
            assert f"--container-workdir={code}" in options
            assert f",{results}:{results}" in mounts
    (cell,) = user.folder.names
    (record,) = user.records(cell)
    assert record.provenance["slurm"]["container"] == f"{container}: /images/b.img"
    assert record.provenance["versions"]["torch"]


def test_an_engine_that_is_not_there_is_said(user: User) -> None:
    user.settings(container="apptainer", image="/images/b.img")
    done = user.run(*TWO_RANKS, "iterations=2", "measured=1", "draw=false")
    assert done.returncode == 1
    (cell,) = user.folder.names
    (record,) = user.records(cell)
    assert "apptainer" in record.cause.message
