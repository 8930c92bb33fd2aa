"""Daemons by pid file: is it ours and alive, start it, stop it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path


def pid_of(pid_file: Path, name: str) -> int | None:
    """The daemon's pid; None if the file is stale: gone, empty, or the pid belongs to another program."""
    try:
        pid = int(pid_file.read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return None
    return pid if name in command.decode(errors="replace") and state != "Z" else None


def spawn(command: list[str], *, log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a daemon in its own session, its output in ``log``."""
    with open(log, "ab") as out:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
            cwd="/",
        )


def wait_until(ready: Callable[[], bool], *, seconds: float, step: float = 0.2) -> bool:
    """Poll ``ready``; False if it never held."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            return False
        time.sleep(step)
    return True


def stop(pids: Iterable[int], *, grace: float = 5.0) -> None:
    """Ask to stop, then kill."""
    left = list(pids)
    for pid in left:
        _signal(pid, signal.SIGTERM)
    if not wait_until(lambda: not any(alive(pid) for pid in left), seconds=grace, step=0.05):
        for pid in left:
            _signal(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def free_ports(count: int, *, first: int = 17000) -> int:
    """First port of ``count`` neighbours on which nobody listens."""
    base = first
    while base + count < 32000:
        taken = [port for port in range(base, base + count) if not _free(port)]
        if not taken:
            return base
        base = taken[-1] + 1
    raise RuntimeError(f"no {count} free neighbouring ports from {first}")


def _free(port: int) -> bool:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def with_environment(*variables: str) -> list[int]:
    """Processes whose environment holds all of ``variables`` (KEY=value)."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            present = environ.read_bytes().split(b"\0")
            if all(variable.encode() in present for variable in variables):
                found.append(int(environ.parent.name))
    return found


def parent(pid: int) -> tuple[int, str]:
    """Pid and program name of the parent; (0, "") if there is none."""
    try:
        above = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return above, Path(f"/proc/{above}/comm").read_text().strip()
    except (OSError, ValueError):
        return 0, ""


def kill(pid: int) -> None:
    """Kill at once; gone already is fine."""
    _signal(pid, signal.SIGKILL)
