"""A training job: all that simulator and runtime need to know, and nothing about clusters."""

from __future__ import annotations

from dataclasses import dataclass

from bitpipe.models.config import ModelConfig
from bitpipe.schedule.spec import ScheduleSpec

SYNCS = ("eager", "late", "none")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One schedule on W pipeline groups, training one model.

    Attributes:
        schedule: the pipeline schedule (method, D, N, …).
        width: W, data-parallel pipeline groups.
        micro_batch_size: B, samples per micro-batch.
        sync: when a stage's gradient all-reduce starts: ``eager`` right after its last
            backward (section 1.4.1), ``late`` after all compute; ``none`` for schedule tests.
        layout: rank layout, one of :data:`bitpipe.cluster.LAYOUTS` (section 1.4.2).
        model: what is trained.
        precision: of parameters' compute copies and activations.
        learning_rate: of Adam.
        clip_norm: global gradient norm bound, or None.
        seed: of initial weights, data order, masks and dropout.
        iterations: training steps.
        measured: how many of the last iterations count (the paper: 20 steps, the last 2).
    """

    schedule: ScheduleSpec
    width: int
    micro_batch_size: int
    sync: str
    layout: str
    model: ModelConfig
    precision: str = "fp32"
    learning_rate: float = 1e-4
    clip_norm: float | None = None
    seed: int = 0
    iterations: int = 20
    measured: int = 2

    @property
    def ranks(self) -> int:
        """P = W·D."""
        return self.width * self.schedule.depth

    @property
    def global_batch(self) -> int:
        """B̂ = B·N·W, in samples; empty micro-batches carry none."""
        return self.micro_batch_size * self.schedule.micro_batches * self.width
