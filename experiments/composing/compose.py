"""From a composed configuration to a cell and the settings to run it with."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bitpipe.checkout import ROOT
from bitpipe.cluster import Cluster
from bitpipe.errors import InputError, choose
from bitpipe.job import Job
from bitpipe.models import ModelConfig
from bitpipe.schedule.own import FILE, is_own
from bitpipe.schedule.spec import ScheduleSpec
from bitpipe.simulate.unit_calibration import calibration_of
from experiments.cell import BACKENDS, Cell
from experiments.composing.config import Config
from experiments.composing.expression import evaluate, whole
from experiments.composing.settings import RunSettings, WandbSettings


def without_hydra(config: DictConfig) -> DictConfig:
    """The application's part of a configuration."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def plain(config: DictConfig) -> dict[str, Any]:
    """The application's part as plain data, interpolations resolved.

    Args:
        config: with or without Hydra's part.

    Raises:
        InputError: an interpolation that leads nowhere, a value that must be given, a key that
            was deleted, or a number that is not finite.
    """
    try:
        own = without_hydra(config) if "hydra" in config else config
        values = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise InputError("config", error.full_key or "?", str(error).splitlines()[0]) from error
    assert isinstance(values, dict)
    _complete(Config, "", values)
    _finite("", values)
    return {str(key): value for key, value in values.items()}


def _complete(kind: type[Any], prefix: str, values: Mapping[Any, Any]) -> None:
    """Refuse a configuration that lacks a key of its schema: ``~key`` takes one away."""
    kinds = get_type_hints(kind)
    for one in fields(kind):
        key = f"{prefix}{one.name}"
        if one.name not in values:
            raise InputError(key, "(deleted)", "every key has a value", f"without ~{key} it is the default")
        if is_dataclass(kinds[one.name]):
            part = values[one.name]
            if not isinstance(part, Mapping):
                raise InputError(key, part, "a group of keys", f"set {key}.KEY")
            _complete(kinds[one.name], f"{key}.", part)


def _finite(key: str, value: Any) -> None:
    """Refuse infinities and NaN, wherever they stand: no quantity here may be one."""
    if isinstance(value, float) and not isfinite(value):
        raise InputError(key, value, "must be finite")
    if isinstance(value, dict):
        for name, part in value.items():
            _finite(f"{key}.{name}" if key else str(name), part)
    if isinstance(value, list):
        for place, part in enumerate(value):
            _finite(f"{key}[{place}]", part)


def cell_of(config: Mapping[str, Any]) -> Cell:
    """Build the cell that a plain configuration describes.

    Impossible combinations are left to :mod:`experiments.composing.validate`. A ``global_batch`` that
    B·W does not divide yields the cell with the next smaller N and keeps the wish among its
    options, so that it has an identity under which it can be reported.

    Its ``data`` is still ``none``: opening the data may take long, and comes after everything
    else was found right.

    Args:
        config: what :func:`plain` returns.

    Raises:
        InputError: a value that means nothing, whatever the others are.
    """
    backend = config["backend"]["name"]
    for key in config:
        choose("key", key, (f.name for f in fields(Config)))
    choose("backend", backend, BACKENDS)
    job, options = _job(config)
    modelled = backend == "simulate" or config["backend"]["links"] == "scaled"
    calibration = config["calibration"]
    if modelled and calibration is None:
        raise InputError(
            "calibration", "null", f"backend={backend} needs a cost model", "try calibration=physical"
        )
    return Cell(
        job=job,
        cluster=Cluster.from_mapping(config["cluster"]),
        backend=backend,
        calibration=calibration_of(calibration) if modelled else None,
        links=config["backend"]["links"],
        options={**config["backend"]["options"], **options, **_own_order(job)},
        labels=config["experiment"]["labels"] or {"method": config["method"]["label"]},
    )


def settings_of(
    config: Mapping[str, Any], launcher: str = "local", environment: Mapping[str, str] = os.environ
) -> RunSettings:
    """Build the settings; relative paths are relative to the repository.

    What the configuration leaves open of wandb is what ``WANDB_*`` of ``environment`` say.

    Raises:
        InputError: no results folder, an unknown wandb mode, or fewer than one repeat.
    """
    if not config["results"]:
        raise InputError("results", "", "a folder, relative to the repository", "the default is results")
    path = config["data"]["path"]
    return RunSettings(
        results=(ROOT / config["results"]).resolve(),
        launcher=launcher,
        data_path=Path(path).expanduser().resolve() if path else None,
        data_cache=(ROOT / config["data"]["cache"]).resolve(),
        rerun=config["rerun"],
        repeats=_repeats(config, launcher),
        timelines=config["timelines"],
        watchdog_s=config["watchdog_s"],
        max_lag=config["max_lag"],
        wandb=_wandb(config["wandb"], config["backend"]["wandb"], environment),
    )


_MODES = {"dryrun": "offline", "run": "online"}  # wandb's older words


def _wandb(given: Mapping[str, Any], backend: str, environment: Mapping[str, str]) -> WandbSettings:
    """The configuration before the environment before what the backend has."""

    def told(key: str, variable: str) -> str | None:
        return given[key] or environment.get(variable) or None

    if given["mode"]:
        mode = choose("wandb.mode", given["mode"], ("offline", "online", "disabled"))
    elif environment.get("WANDB_DISABLED", "").lower() in ("true", "1", "yes", "on"):
        mode = "disabled"
    elif word := environment.get("WANDB_MODE"):
        word = word.lower()
        mode = choose("WANDB_MODE", _MODES.get(word, word), ("offline", "online", "disabled"))
    else:
        mode = choose("backend.wandb", backend, ("offline", "online", "disabled"))
    project, entity = told("project", "WANDB_PROJECT") or "bitpipe", told("entity", "WANDB_ENTITY")
    for key, name in (("wandb.project", project), ("wandb.entity", entity or "")):
        if len(name) > 128 or any(sign in name for sign in "/\\#?%:"):
            raise InputError(key, name, "at most 128 characters, none of / \\ # ? % :")
    tags = given["tags"] if given["tags"] is not None else environment.get("WANDB_TAGS", "").split(",")
    return WandbSettings(
        mode=mode,
        project=project,
        entity=entity,
        group=told("group", "WANDB_RUN_GROUP"),
        tags=",".join(tag.strip() for tag in map(str, tags) if tag.strip()),
    )


def _repeats(config: Mapping[str, Any], launcher: str) -> int:
    """How often cells are measured; a prediction is made once."""
    backend, given = config["backend"]["name"], config["repeats"]
    packed = launcher == "slurm" and config["pack"] and backend == "cuda"
    repeats = whole("repeats", (3 if packed else 1) if given is None else given, {})
    return 1 if backend == "simulate" else repeats


def _job(config: Mapping[str, Any]) -> tuple[Job, dict[str, Any]]:
    method = config["method"]
    # One of depth and width may follow from the other, as width=32//depth.
    names = {key: config[key] for key in ("depth", "width") if isinstance(config[key], int)}
    for key in ("depth", "width", "micro_batch_size"):
        names[key] = whole(key, config[key], {name: names[name] for name in names if name != key})
    micro_batches, options = _micro_batches(config, names)
    names["micro_batches"] = micro_batches
    chunks = method["chunks"]
    if chunks is not None:
        names["chunks"] = chunks = whole("method.chunks", chunks, names)
    cap = method["cap"]
    job = Job(
        schedule=ScheduleSpec(
            method=method["name"],
            depth=names["depth"],
            micro_batches=micro_batches,
            chunks=chunks,
            placement=method["placement"],
            cap=None if cap is None else whole("method.cap", cap, names),
            early_forward=method["early_forward"],
            split_backward=method["split_backward"],
            pad=method["pad"],
        ),
        width=names["width"],
        micro_batch_size=names["micro_batch_size"],
        sync=method["sync"],
        layout=method["layout"],
        model=ModelConfig.from_mapping(config["model"]),
        precision=config["precision"],
        learning_rate=config["learning_rate"],
        clip_norm=config["clip_norm"],
        seed=config["seed"],
        iterations=config["iterations"],
        measured=config["measured"],
    )
    return job, options


def _own_order(job: Job) -> dict[str, str]:
    """The text that a user's own schedule comes from, as a hash: an edited file is another cell.

    Nothing for a function of this repository, whose revision the record names.
    """
    method = job.schedule.method
    if not is_own(method) or method.startswith("bitpipe."):
        return {}
    try:
        if method.startswith(FILE):
            path = Path(method.removeprefix(FILE))
        else:
            found = find_spec(method.partition(":")[0])
            path = Path(found.origin or "") if found else Path()
        text = path.read_bytes()
    except (Exception, SystemExit):  # importing a parent package runs it; validation says what is wrong
        return {}
    return {"schedule": hashlib.sha256(text).hexdigest()[:12]}


def _micro_batches(config: Mapping[str, Any], names: dict[str, int]) -> tuple[int, dict[str, Any]]:
    """N, and what must be remembered if B̂ does not allow it."""
    given, total = config["micro_batches"], config["global_batch"]
    if total is None:
        return whole("micro_batches", "depth" if given is None else given, names), {}
    names["global_batch"] = total = whole("global_batch", total, names)
    samples = names["micro_batch_size"] * names["width"]
    if given is not None:
        count = whole("micro_batches", given, names)
        if count * samples != total:
            raise InputError(
                "global_batch",
                total,
                f"micro_batches={given} makes it B·N·W = {count * samples}; give one of the two",
            )
        return count, {}
    exact = evaluate("micro_batches", f"{total}/{samples}", {})
    count = max(1, int(exact))
    return count, {} if count == exact else {"global_batch": total}
