"""A cell: one point of one experiment, identified by what determines its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from bitpipe.cluster import Cluster, RankLayout
from bitpipe.job import Job
from bitpipe.origin import Origin
from bitpipe.simulate.calibration import Calibration
from bitpipe.simulate.unit_calibration import UnitCalibration

SCHEMA = 1
BACKENDS = ("simulate", "virtual", "cuda", "cpu", "emulate")  # in the order in which help names them
IDENTITY_OPTIONS = ("global_batch", "schedule")
"""Options that no backend reads: a batch that could not be kept, the text of a user's own schedule."""
ORIGINS = {
    "simulate": Origin.SIMULATED,
    "virtual": Origin.VIRTUAL,
    "cuda": Origin.MEASURED,
    "cpu": Origin.MEASURED,
    "emulate": Origin.EMULATED,
}
CLOCKS = {"simulate": "model", "virtual": "virtual", "cuda": "wall", "cpu": "wall", "emulate": "deadline"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A job on a cluster through a backend.

    Attributes:
        job: what is trained and how it is scheduled.
        cluster: modelled (simulate, virtual, emulate) or expected (cuda) hardware.
        backend: one of :data:`BACKENDS`.
        data: name and content fingerprint of the token source; ``none`` for ``simulate``.
        calibration: of the cost model that predicts (simulate) or that gives links their weight
            (scaled links); else None.
        links: ``scaled`` (virtual: keep the modelled cluster's ratio of communication to
            compute) or ``as_is``.
        options: further settings that determine the result (transport, compile, …).
        labels: how an experiment calls this point (variant, row, column); not identity.
    """

    job: Job
    cluster: Cluster
    backend: str
    data: str = "none"
    calibration: Calibration | UnitCalibration | None = None
    links: str = "scaled"
    options: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, Any] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """Everything that determines the result, as plain data.

        Not the number of nodes that the cluster has beyond those that the job fills, nor any
        remark on where a value comes from.
        """
        values = asdict(self)
        del values["labels"], values["cluster"]["sources"]
        if self.job.ranks <= self.cluster.size:  # else that it is too small is the result
            del values["cluster"]["nodes"]
        if self.calibration is not None:
            for remark in ("sources", "cells"):
                values["calibration"].pop(remark, None)
        if isinstance(self.calibration, UnitCalibration):  # the paper's costs, that older cells do not name
            for cost in ("forward", "input_grad", "weight_grad"):
                if getattr(self.calibration, cost) == getattr(UnitCalibration, cost):
                    del values["calibration"][cost]
        return {"schema": SCHEMA, **values}

    @cached_property
    def id(self) -> str:
        """Twelve hex digits of the identity's hash."""
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def backend_options(self) -> dict[str, Any]:
        """How its backend is to run it: options without what only tells this point from others."""
        return {key: value for key, value in self.options.items() if key not in IDENTITY_OPTIONS}

    @property
    def origin(self) -> Origin:
        """What kind of evidence this cell's numbers will be."""
        return ORIGINS[self.backend]

    @property
    def layout(self) -> RankLayout:
        """Where its ranks lie."""
        return RankLayout(
            name=self.job.layout,
            width=self.job.width,
            depth=self.job.schedule.depth,
            devices_per_node=self.cluster.devices_per_node,
        )

    def __str__(self) -> str:
        """For progress lines: what differs between cells, in a fixed order."""
        job = self.job
        labels = " ".join(str(value) for value in self.labels.values())
        return (
            f"{labels or job.schedule.method} {job.model.name} D={job.schedule.depth} W={job.width} "
            f"N={job.schedule.micro_batches} B={job.micro_batch_size}"
        )
