"""The tidy schema: every column, its type and its meaning, whatever a frame was read from.

Records under ``results/``, wandb's offline files and the wandb API all end in these frames.
Units are in the names: ``_s`` seconds, ``_bytes`` bytes, ``samples_per_s`` samples a second.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

CELLS: dict[str, tuple[str, str]] = {
    "cell": ("string", "id of the cell: hash of what determines its result"),
    "attempt": ("Int64", "which attempt: the newest finished one, else the newest"),
    "experiment": ("string", "the sweep that ran it"),
    "status": ("string", "ok, oom, invalid, failed, timeout, preempted, cancelled, running or missing"),
    "reason": ("string", "one line, where the status is not ok"),
    "origin": ("string", "measured, virtual, emulated or simulated"),
    "backend": ("string", "simulate, virtual, emulate, cpu or cuda"),
    "method": ("string", "schedule method"),
    "placement": ("string", "sequential, cyclic or v; missing: the method's own"),
    "depth": ("Int64", "D, devices of a pipeline group"),
    "width": ("Int64", "W, data-parallel pipeline groups"),
    "ranks": ("Int64", "P = W·D"),
    "micro_batch_size": ("Int64", "B, samples"),
    "micro_batches": ("Int64", "N per iteration and group"),
    "global_batch": ("Int64", "B·N·W, samples per iteration"),
    "chunks": ("Int64", "v, chunks per device and direction; missing: the method's own"),
    "cap": ("Int64", "most chunks of activations on a device; missing: none"),
    "early_forward": ("boolean", "whether the middle bubbles are filled (section 1.5)"),
    "sync": ("string", "eager, late or none"),
    "layout": ("string", "sequential, megatron, replica_aware or released"),
    "model": ("string", "model configuration"),
    **dict.fromkeys(("layers", "hidden", "sequence", "vocabulary"), ("Int64", "of the model")),
    "cluster": ("string", "cluster file; of a measured cell on other devices than its own, their names"),
    "device_name": ("string", "what ran (measured), else the modelled device"),
    "device_memory_bytes": ("Float64", "of the cluster's device; missing where others ran"),
    "devices_per_node": ("Int64", "of the cluster"),
    "precision": ("string", "of compute"),
    "learning_rate": ("Float64", "of Adam"),
    "clip_norm": ("Float64", "global gradient norm bound; missing: none"),
    "seed": ("Int64", "of weights, data order, masks and dropout"),
    "data": ("string", "token source"),
    "calibration": ("string", "of the cost model, its name"),
    "calibrated": ("boolean", "whether it was fitted to such devices, and across nodes if need be"),
    "links": ("string", "scaled or as_is"),
    "iterations": ("Int64", "training steps"),
    "measured": ("Int64", "how many of the last steps count"),
    "samples_per_s": ("Float64", "throughput"),
    "samples_per_s_low": ("Float64", "95% interval over repeats or resamples, else range of the second half"),
    "samples_per_s_high": ("Float64", "upper end"),
    "iteration_s": ("Float64", "mean seconds of a counted step"),
    "bubble_ratio": ("Float64", "idle share of the devices' time up to the last compute action"),
    "peak_memory_bytes": ("Float64", "largest peak over devices"),
    "loss": ("Float64", "of the last step"),
    "revision": ("string", "git revision that made the record"),
    "dirty": ("boolean", "whether the working tree had changes"),
    "host": ("string", "hosts, joined by commas"),
    "started": ("string", "UTC, ISO 8601"),
    "source": ("string", "records, wandb-offline or wandb-online"),
    "path": ("string", "file or run that the row was read from, relative to the results folder"),
    "context": ("string", "hash of every setting that two compared cells must share"),
    "labels": ("object", "how the sweep that ran it calls this point: mapping"),
    "metrics": ("object", "all metrics of the record: mapping"),
}
DEVICES: dict[str, tuple[str, str]] = {
    "cell": ("string", "id of the cell"),
    "attempt": ("Int64", "which attempt"),
    "rank": ("Int64", "global rank"),
    "replica": ("Int64", "data-parallel replica"),
    "device": ("Int64", "device within its pipeline group"),
    "node": ("Int64", "node"),
    "peak_memory_bytes": ("Float64", "peak over an iteration"),
}
STEPS: dict[str, tuple[str, str]] = {
    "path": ("string", "file or run"),
    "cell": ("string", "id of the cell; missing for a wandb run that left no record"),
    "attempt": ("Int64", "which attempt"),
    "step": ("Int64", "training step, from 0"),
    "rank": ("Int64", "global rank; missing where ranks are reduced (wandb)"),
}
PROBLEMS: dict[str, tuple[str, str]] = {
    "path": ("string", "file or run"),
    "problem": ("string", "one line: what was found and what was left out"),
}


def conform(frame: pd.DataFrame, schema: dict[str, tuple[str, str]], *, extra: bool = False) -> pd.DataFrame:
    """The frame with exactly the schema's columns and types; with ``extra``, others follow."""
    columns = {
        name: (frame[name] if name in frame else pd.Series(pd.NA, index=frame.index)).astype(_dtype(kind))
        for name, (kind, _) in schema.items()
    }
    if extra:
        columns |= {str(name): frame[name] for name in frame.columns if name not in schema}
    return pd.DataFrame(columns, index=frame.index)


def _dtype(kind: str) -> Any:
    return pd.api.types.pandas_dtype(kind)
