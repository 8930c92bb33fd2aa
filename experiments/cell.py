"""A cell: one point of one experiment, identified by what determines its result."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from bitpipe.cluster import Cluster
from bitpipe.job import Job

SCHEMA = 1
BACKENDS = ("simulate", "virtual", "cuda", "cpu", "emulate")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A job on a cluster through a backend.

    Attributes:
        job: what is trained and how it is scheduled.
        cluster: modelled (simulate, virtual, emulate) or expected (cuda) hardware.
        backend: one of :data:`BACKENDS`.
        data: name or content fingerprint of the token source; ``none`` for ``simulate``.
        calibration: name of the cost model's calibration, ``none`` where none is used.
        links: ``scaled`` (virtual: keep the modelled cluster's ratio of communication to
            compute) or ``as_is``.
        options: further settings that determine the result (transport, compile, …).
        labels: how an experiment calls this point (variant, row, column); not identity.
    """

    job: Job
    cluster: Cluster
    backend: str
    data: str = "none"
    calibration: str = "none"
    links: str = "scaled"
    options: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, Any] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """Everything that determines the result, as plain data."""
        values = asdict(self)
        del values["labels"]
        del values["cluster"]["sources"]
        return {"schema": SCHEMA, **values}

    @cached_property
    def id(self) -> str:
        """Twelve hex digits of the identity's hash."""
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]
