"""wandb's copy of an attempt: a sink, never the only record, and never a reason to fail.

It is written after the attempt, from the same rows as the ranks' own logs, so it can neither
slow a measurement down nor end it. The first thing that goes wrong ends it; the record says what that
was. A wandb that hangs, wherever that is, is given up after :data:`PATIENCE_S`; then, and after a failure
that took long, for the rest of this process. ``wandb sync --yes DIR`` uploads an offline run later.
"""

from __future__ import annotations

import getpass
import hashlib
import http.client
import netrc
import os
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import psutil

from experiments.composing.settings import WandbSettings
from experiments.records.record import Record, plain
from experiments.records.wandb_timeline import log_timeline

PATIENCE_S = 25.0
"""For all that wandb does about one attempt."""
IMPATIENCE_S = 5.0
"""A wandb that takes longer to fail is not asked again: a sweep has many attempts."""
PROBE_S = 5.0
_given_up: list[str] = []
ENVIRONMENT = {
    "WANDB_SILENT": "true",
    "WANDB_CONSOLE": "off",
    "WANDB_X_DISABLE_STATS": "true",
    "WANDB_X_TRANSACTION_LOG_FLUSH_INTERVAL": "1",
    "WANDB_INIT_TIMEOUT": "20",
    "WANDB_FINISH_TIMEOUT": "20",  # 0 would wait for ever
    "WANDB_X_SERVICE_WAIT": "20",
}
"""Set before wandb is imported, unless the user has set them."""


def publish(
    record: Record, rows: Sequence[Mapping[str, Any]], folder: Path, settings: WandbSettings
) -> dict[str, Any]:
    """Write one run: configuration, one row per iteration, summary, tags, one iteration's timeline.

    Args:
        record: the attempt.
        rows: per iteration what the ranks logged, reduced over ranks.
        folder: the attempt's folder; the run goes to ``wandb`` below it.
        settings: where to.

    Returns:
        The record's ``wandb`` entry: what happened. Nothing is raised.
    """
    if settings.mode == "disabled":
        return {"state": "off"}
    for key, value in ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    if _given_up:
        return {"state": "broken", "directory": None, "error": f"switched off: {_given_up[0]}"}
    found: list[dict[str, Any]] = []
    work = threading.Thread(
        target=lambda: found.append(_published(record, rows, folder, settings)), daemon=True
    )
    begun = time.monotonic()
    work.start()
    work.join(PATIENCE_S)
    if work.is_alive():
        _given_up.append(f"wandb had not finished {record.cell}-a{record.attempt} after {PATIENCE_S:g} s")
        _kill_service()  # what waits for it wakes up with an error, also when this process ends
        return {"state": "broken", "directory": None, "error": _given_up[0]}
    if found[0]["state"] == "broken" and time.monotonic() - begun > IMPATIENCE_S:
        _given_up.append(f"wandb took {time.monotonic() - begun:.0f} s to fail: {found[0]['error']}"[:500])
    return found[0]


def _published(
    record: Record, rows: Sequence[Mapping[str, Any]], folder: Path, settings: WandbSettings
) -> dict[str, Any]:
    mode, note = settings.mode, None
    try:
        if mode == "online":
            note = _why_offline()
            mode = "offline" if note else mode
        directory = _write(record, rows, folder, settings, mode)
    except Exception as error:  # whatever it is, the attempt's own result stands
        return {"state": "broken", "directory": None, "error": f"{type(error).__name__}: {error}"[:500]}
    return {"state": mode, "directory": directory, "error": note}


def _kill_service() -> None:
    """Kill wandb's own process below this one."""
    for child in psutil.Process().children(recursive=True):
        try:
            if child.name().startswith("wandb"):
                child.kill()
        except psutil.Error:
            continue


def _write(
    record: Record,
    rows: Sequence[Mapping[str, Any]],
    folder: Path,
    settings: WandbSettings,
    mode: str,
) -> str:
    import wandb

    identity, schedule = record.identity, record.identity["job"]["schedule"]
    run = wandb.init(
        mode="online" if mode == "online" else "offline",
        dir=folder,
        project=settings.project,
        entity=settings.entity,
        group=limited(settings.group or record.experiment, 128),
        job_type=identity["backend"],
        id=run_id(record, folder),
        name=limited(
            f"{schedule['method']} D{schedule['depth']} N{schedule['micro_batches']} {record.cell}", 128
        ),
        tags=_tags(record, settings),
        config=plain({**identity, **_about(record)}),
        reinit="finish_previous",
        settings=wandb.Settings(
            save_code=False, disable_git=True, disable_job_creation=True, x_disable_meta=True
        ),
    )
    try:
        directory = Path(run.dir).resolve()
        if not directory.is_relative_to(folder.resolve()):  # wandb moves to the temp dir in silence
            raise OSError(f"the attempt's folder cannot be written, wandb chose {directory.parent.name}")
        for step, row in enumerate(rows):
            run.log(plain(dict(row)), step=step)
        run.summary.update(_summary(record))
        log_timeline(run, record, folder, max(0, len(rows) - 1))
    finally:
        run.finish(exit_code=0 if record.status == "ok" else 1)
    return str(directory.parent.relative_to(folder.resolve()))


def _about(record: Record) -> dict[str, Any]:
    """What the record says besides its results; with the summary, a reader has the record again."""
    names = ("cell", "attempt", "experiment", "labels", "costs", "provenance", "started", "finished")
    return {name: getattr(record, name) for name in names}


def run_id(record: Record, folder: Path) -> str:
    """Of an attempt's run: another one for every results folder and user, so that no two are one to wandb."""
    place = f"{_user()} {folder.resolve()}"
    return f"{record.cell}-a{record.attempt}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in a container
        return str(os.getuid())


def limited(text: str, most: int) -> str:
    """A name that wandb takes: printable, neither empty nor longer than ``most``; different texts stay so."""
    plain_text = " ".join("".join(c if c.isprintable() else " " for c in text).split()) or "-"
    if len(plain_text) <= most:
        return plain_text
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
    return f"{plain_text[: most - 9]}~{digest}"


def _tags(record: Record, settings: WandbSettings) -> list[str]:
    job = record.identity["job"]
    names = [record.origin, record.status, job["schedule"]["method"], job["model"]["name"]]
    own = [tag for tag in settings.tags.split(",") if tag]
    tags = [limited(str(name), 64) for name in [*names, *record.labels.values(), *own]]
    return list(dict.fromkeys(tags))


def _summary(record: Record) -> dict[str, Any]:
    """Scalars as they are; the vectors over devices once, here."""
    summary: dict[str, Any] = {"status": record.status.value, "origin": record.origin.value}
    if record.cause:
        summary["cause"] = record.cause.message
    summary |= {f"metrics/{name}": value for name, value in record.metrics.items()}
    summary |= {f"devices/{name}": list(values) for name, values in record.devices.items()}
    peaks = [peak for peak in record.devices.get("peak_memory_bytes", ()) if peak is not None]
    if peaks:  # dashboards cannot draw a vector
        summary |= {"memory/min_bytes": min(peaks), "memory/mean_bytes": fmean(peaks)}
        summary["memory/max_bytes"] = max(peaks)
    result: dict[str, Any] = plain(summary)
    return result


def _why_offline() -> str | None:
    """Why an online run is written offline instead; None if the server answers."""
    import wandb

    settings = wandb.setup().settings
    address = urlsplit(str(settings.base_url))
    if not (settings.api_key or _in_netrc(address.hostname or "")):
        return "no API key: written offline, upload with wandb sync"
    proxies = {"http": settings.http_proxy, "https": settings.https_proxy}
    if why := unreachable(str(settings.base_url), {k: str(v) for k, v in proxies.items() if v}):
        return f"server not reachable ({why}): written offline, upload with wandb sync"
    return None


def unreachable(address: str, proxies: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """Why a server does not answer; None if it does, with whatever status.

    Args:
        address: its URL.
        proxies: URL per scheme, before those of ``http_proxy``, ``https_proxy`` and ``no_proxy``.
    """
    ways: dict[str, str] = {}
    try:
        host = urlsplit(address).hostname or ""
        ways = {} if urllib.request.proxy_bypass(host) else {**urllib.request.getproxies(), **proxies}
        opener = urllib.request.build_opener(urllib.request.ProxyHandler(ways))
        opener.open(address, timeout=PROBE_S).close()
    except urllib.error.HTTPError as error:  # it has answered, or the proxy has for it
        return f"the proxy says {error.code}" if ways and error.code in (407, 502, 503, 504) else None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return None if isinstance(reason, ssl.SSLError) else str(reason)
    return None


def missing_copies(records: Iterable[Record]) -> str | None:
    """One line on the copies that wandb did not get or was not sent; None if none is missing."""
    entries = [record.wandb for record in records if record.wandb.get("state") not in (None, "off")]
    broken = [entry for entry in entries if entry["state"] in ("broken", "pending")]
    kept = [entry for entry in entries if entry["state"] == "offline" and entry.get("error")]
    if broken:
        why = broken[0].get("error") or "the run ended before it was written"
        return f"wandb: {len(broken)} of {len(entries)} copies are missing ({why}); the records are complete"
    if kept:
        return f"wandb: {len(kept)} of {len(entries)} copies wait on this disk ({kept[0]['error']})"
    return None


def _in_netrc(host: str) -> bool:
    """Whether ``wandb login`` has left a key for the server."""
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
