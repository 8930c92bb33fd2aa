"""wandb runs through its public API: the whole history of every run, never a sample."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

from analysis.load.reading import Reading
from analysis.load.wandb_offline import steps_frame
from bitpipe.errors import InputError

_EXITS = {"finished": 0, "failed": 1, "crashed": None, "killed": 1, "running": None}


def read_online(project: str, timeout_s: int = 20) -> dict[str, Reading]:
    """Per run address ``entity/project/id`` what the server holds.

    Raises:
        InputError: the server cannot be reached, or knows no such project.
    """
    import wandb

    if project.count("/") != 1:
        raise InputError("project", project, "expected ENTITY/PROJECT")
    try:
        _probe(str(wandb.setup().settings.base_url))
        runs = wandb.Api(timeout=timeout_s).runs(project, lazy=False)
        return {f"{project}/{run.id}": _read(run) for run in runs}
    except (ValueError, OSError, wandb.Error) as error:
        raise InputError("project", project, f"wandb: {str(error).splitlines()[0]}") from None


def _probe(address: str) -> None:
    """Raise OSError within seconds where no server listens; wandb itself tries for minutes."""
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    socket.create_connection((parts.hostname or "", port), timeout=5).close()


def _read(run: Any) -> Reading:
    rows = list(run.scan_history())
    reading = Reading(steps=steps_frame(rows))
    expected = (getattr(run, "_attrs", None) or {}).get("historyLineCount")
    if isinstance(expected, int) and expected != len(rows):
        reading.problems.append(f"the server counts {expected} rows of steps, {len(rows)} came")
    reading.document = {
        "id": run.id,
        "config": dict(run.config),
        "summary": dict(run.summary_metrics),
        "group": run.group,
        "tags": list(run.tags),
        "project": run.project,
        "rows": len(rows),
        "exit_code": _EXITS.get(run.state),
        "state": run.state,
    }
    return reading
