"""The typed configuration that Hydra composes; :mod:`experiments.composing.compose` turns it into a cell.

``int_or_expression`` fields take a number or arithmetic over the fields before them, as
``micro_batches=4*depth``; the order is width and depth, micro_batch_size, global_batch,
micro_batches, method.chunks, method.cap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

ADHOC = "adhoc"
"""What is run without an experiment, or beside its grid."""


@dataclass
class MethodConfig:
    """How the pipeline is scheduled (group ``method``)."""

    name: str = MISSING  # a registered schedule, file:PATH or module:function
    label: str = "${.name}"  # what tables call it
    placement: str | None = None  # sequential, cyclic or v; null is the method's own
    chunks: Any = None  # v, chunks per device and direction; null is the method's own
    cap: Any = None  # most chunks of activations on a device; null is the method's own
    early_forward: bool = False  # the cap at which the middle bubbles vanish
    split_backward: bool = False  # input and weight gradient as two actions
    pad: bool = False  # empty micro-batches instead of an uneven split
    sync: str = "late"  # gradient all-reduce: eager or late
    layout: str = "sequential"  # ranks on nodes: sequential, megatron, replica_aware or released


@dataclass
class BackendConfig:
    """Who tells the time (group ``backend``)."""

    name: str = MISSING  # simulate, virtual, cuda, cpu or emulate
    iterations: int = 20  # training steps
    measured: int = 2  # how many of the last ones count
    precision: str = "fp16"  # fp32, fp64, bf16 or fp16
    links: str = "as_is"  # scaled: keep the cluster's ratio of communication to compute
    wandb: str = "disabled"  # mode where wandb.mode is null
    options: dict[str, Any] = field(default_factory=dict)  # further settings that change results


@dataclass
class ExperimentConfig:
    """What a sweep is (set by the files of group ``experiment``)."""

    name: str = ADHOC  # names the manifest, the table and the figure
    title: str = ""  # one line for people
    invalid: str = "refuse"  # record: impossible cells of a grid are results, not errors
    labels: dict[str, Any] = field(default_factory=dict)  # what its table calls a cell


@dataclass
class DataConfig:
    """What ranks train on."""

    path: str | None = None  # text file, folder or prepared data set; null is the built-in corpus
    cache: str = "data"  # folder for corpora prepared on the way, relative to the repository


@dataclass
class WandbConfig:
    """wandb's copy of a run. A null is what wandb's own environment variable says, if it is set."""

    mode: str | None = None  # offline, online or disabled; null: $WANDB_MODE, else the backend's own
    project: str | None = None  # its project; null: $WANDB_PROJECT, else bitpipe
    entity: str | None = None  # user or team; null: $WANDB_ENTITY, else your default
    group: str | None = None  # of the runs; null: $WANDB_RUN_GROUP, else the experiment's name
    tags: list[str] | None = None  # more tags, as [a,b]; null: $WANDB_TAGS, else none


@dataclass
class Config:
    """One cell, and how to run it."""

    experiment: ExperimentConfig = field(default_factory=ExperimentConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    model: dict[str, Any] = MISSING  # bitpipe.models.ModelConfig
    cluster: dict[str, Any] = MISSING  # bitpipe.cluster.Cluster
    backend: BackendConfig = field(default_factory=BackendConfig)
    calibration: dict[str, Any] | None = None  # of the cost model; used by simulate
    data: DataConfig = field(default_factory=DataConfig)

    depth: Any = 8  # D, devices of a pipeline group
    width: Any = 1  # W, data-parallel pipeline groups
    micro_batch_size: Any = 4  # B, samples
    micro_batches: Any = None  # N per iteration and group; null: from global_batch, else D
    global_batch: Any = None  # B̂ = B·N·W, samples; null: from micro_batches

    scale: str | None = None  # fit: shrink the model until every cell fits the cluster's memory

    iterations: int = "${backend.iterations}"  # type: ignore[assignment]
    measured: int = "${backend.measured}"  # type: ignore[assignment]
    precision: str = "${backend.precision}"
    learning_rate: float = 1e-4  # of Adam
    clip_norm: float | None = None  # bound of the global gradient norm; null: none
    seed: int = 0  # of weights, data order, masks and dropout

    results: str = "results"  # folder, relative to the repository
    rerun: bool = False  # run cells that have a finished record
    repeats: int | None = None  # measurements of a block; null: 3 for packed cuda on Slurm, else 1
    dry_run: bool = False  # list cells and shapes, start nothing
    draw: bool = True  # print the experiment's table and draw its figures at the end
    timelines: bool = True  # keep one iteration's timeline beside each record
    watchdog_s: float = 60.0  # seconds without progress until a run counts as hung
    max_lag: float = 0.02  # emulate: a run whose iterations end later than that, as a share of one, fails
    wandb: WandbConfig = field(default_factory=WandbConfig)

    # Sweeps on Slurm; slurm.submit.Options says more. The local launcher ignores them.
    site: str | None = None  # site file; null: $BITPIPE_SITE, then site.yaml
    wait: bool = True  # false returns after submission
    pack: bool = True  # a block is one job, on the same nodes
    canary: bool | None = None  # a short run per shape must pass first; null: for cuda
    preflight: bool | None = None  # look at every allocation first; null: for cuda
    max_gpu_hours: float | None = None  # refuse a larger sweep
    allow_dirty: bool = False  # submit uncommitted code too


OF_A_CELL = frozenset(
    {
        "method",
        "model",
        "cluster",
        "backend",
        "calibration",
        "data.path",
        "experiment.labels",
        "depth",
        "width",
        "micro_batch_size",
        "micro_batches",
        "global_batch",
        "iterations",
        "measured",
        "precision",
        "learning_rate",
        "clip_norm",
        "seed",
    }
)
"""What may differ between the cells of one sweep: it identifies them, or only names them. Every other
key says how the sweep is run and has one value in it (:mod:`experiments.composing.common`)."""


def register() -> None:
    """Make ``schema`` known to Hydra."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="schema", node=Config)
