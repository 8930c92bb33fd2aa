"""Records (the documents of :mod:`experiments.records.record`) to rows of the frames."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.load.reading import Reading
from experiments.records.devices import ran_on, same_device
from experiments.records.migrate import migrate
from experiments.records.record import RecordError, check

# Axes along which experiments compare. All other settings make up a row's context: two cells
# are only compared where those are equal.
AXES = frozenset({"schedule", "width", "micro_batch_size", "sync", "layout"})


def cell_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """One row of :data:`analysis.load.schema.CELLS`, without its source."""
    identity = record["identity"]
    job = identity["job"]
    schedule = job["schedule"]
    metrics = record["metrics"]
    peaks = [peak for peak in record["devices"].get("peak_memory_bytes", ()) if peak is not None]
    low, high = throughput_interval(metrics, job["measured"])
    return {
        "cell": record["cell"],
        "attempt": record["attempt"],
        "experiment": record["experiment"],
        "status": record["status"],
        "reason": (record["cause"] or {}).get("message"),
        "origin": record["origin"],
        "backend": identity["backend"],
        **{
            key: schedule.get(key)
            for key in ("method", "placement", "depth", "micro_batches", "chunks", "cap")
        },
        "early_forward": schedule.get("early_forward"),
        **{key: job.get(key) for key in ("width", "micro_batch_size", "sync", "layout", "precision")},
        **{key: job.get(key) for key in ("learning_rate", "clip_norm", "seed", "iterations", "measured")},
        "ranks": job["width"] * schedule["depth"],
        "global_batch": job["micro_batch_size"] * schedule["micro_batches"] * job["width"],
        "model": job["model"]["name"],
        **{key: job["model"][key] for key in ("layers", "hidden", "sequence", "vocabulary")},
        **_hardware(record),
        "devices_per_node": identity["cluster"]["devices_per_node"],
        **{key: identity.get(key) for key in ("data", "links")},
        "calibration": (identity["calibration"] or {}).get("name"),
        "calibrated": metrics.get("calibrated"),
        "samples_per_s": metrics.get("samples_per_s"),
        "samples_per_s_low": low,
        "samples_per_s_high": high,
        "iteration_s": metrics.get("iteration_seconds"),
        "bubble_ratio": metrics.get("bubble_ratio"),
        "peak_memory_bytes": max(peaks, default=None),
        "loss": next(iter(reversed(metrics.get("losses") or [])), None),
        "revision": record["provenance"]["revision"],
        "dirty": record["provenance"]["dirty"],
        "host": ",".join(record["provenance"]["hosts"]),
        "started": record["started"],
        "context": context(identity | {"ran": _hardware(record)["device_name"]}),
        "labels": dict(record["labels"]),
        "metrics": dict(metrics),
    }


def _hardware(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a row is labelled with: of a measured cell what ran, else what was modelled.

    A measured cell's ``cluster`` is the file's name only where its devices are those of the file.
    """
    cluster = record["identity"]["cluster"]
    asked, memory = cluster["device"]["name"], cluster["device"]["memory_bytes"]
    ran = ran_on(record["provenance"])
    if record["origin"] != "measured" or record["status"] != "ok":
        return {"cluster": cluster["name"], "device_name": asked, "device_memory_bytes": memory}
    name = ", ".join(ran) or "unknown device"
    as_asked = bool(ran) and all(same_device(one, asked) for one in ran)
    return {
        "cluster": cluster["name"] if as_asked else name,
        "device_name": name,
        "device_memory_bytes": memory if as_asked else None,
    }


def throughput_interval(metrics: Mapping[str, Any], measured: int) -> tuple[float | None, float | None]:
    """The record's own 95% interval (over repeats, or virtual: resamples), else a range over iterations.

    The range is over the second half of the iterations, and at least the counted ones: those alone
    (often two) would make a run look steadier than it is. (None, None) for fewer than two iterations.
    """
    if "samples_per_s_low" in metrics:
        return metrics.get("samples_per_s_low"), metrics.get("samples_per_s_high")
    every = metrics.get("iterations_seconds") or ()
    times = [time for time in every[-max(measured, (len(every) + 1) // 2) :] if time]
    batch = metrics.get("global_batch")
    if len(times) < 2 or not batch:
        return None, None
    return batch / max(times), batch / min(times)


def device_rows(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row of :data:`analysis.load.schema.DEVICES` per global rank."""
    vectors = record["devices"]
    return [
        {"cell": record["cell"], "attempt": record["attempt"], "rank": rank}
        | {name: values[rank] for name, values in vectors.items() if rank < len(values)}
        for rank in range(max(map(len, vectors.values()), default=0))
    ]


def context(identity: Mapping[str, Any]) -> str:
    """Hash of all settings that two compared cells must share: everything but :data:`AXES`."""
    rest = {key: value for key, value in identity.items() if key != "job"}
    rest["job"] = {key: value for key, value in identity["job"].items() if key not in AXES}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def read_record(path: Path) -> Reading:
    """Read one record file; never raises for what the file holds."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise RecordError("not a record")
        document = migrate(document)
        check(document)
    except OSError as error:
        return Reading(problems=[f"not readable, skipped: {error.strerror}"])
    except UnicodeDecodeError:
        return Reading(problems=["not text, skipped"])
    except json.JSONDecodeError as error:
        return Reading(problems=[f"not JSON, skipped: {error}" if error.doc else "empty file, skipped"])
    except (RecordError, RecursionError, TypeError, ValueError, KeyError, AttributeError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        return Reading(problems=[f"skipped: {line}"])
    return Reading(document=document)
