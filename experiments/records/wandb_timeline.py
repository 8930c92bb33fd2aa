"""What wandb gets of one iteration: a picture, and the trace as an artifact that Perfetto opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bitpipe.draw import Panel, write
from bitpipe.schedule import ScheduleSpec, Timeline, placement_of
from experiments.records.record import Record

KEY = "timeline"
"""Under which the dashboard finds the picture."""


def log_timeline(run: Any, record: Record, folder: Path, step: int) -> None:
    """Log the picture of the record's timeline at ``step``, and its trace as an artifact.

    Both lie in the run's own folder, where ``wandb sync`` finds them later. Does nothing where
    the attempt kept no timeline.
    """
    if record.timeline is None or not (folder / record.timeline).is_file():
        return
    import wandb

    panel = _panel(record, folder)
    place = Path(run.dir).parent
    write([panel], place / "timeline.png")
    write([panel], place / "trace.json")
    run.log({KEY: wandb.Image(str(place / "timeline.png"), caption=panel.title)}, step=step)
    (place / "timeline.png").unlink()  # wandb keeps a copy among the run's files
    artifact = wandb.Artifact(f"trace-{run.id}", type="trace")
    artifact.add_file(str(place / "trace.json"), policy="immutable")  # else it is copied to the home folder
    run.log_artifact(artifact)


def _panel(record: Record, folder: Path) -> Panel:
    assert record.timeline is not None
    spec = ScheduleSpec(**record.identity["job"]["schedule"])
    return Panel.of_ranks(
        Timeline.of(json.loads((folder / record.timeline).read_text())),
        placement_of(spec),
        f"{spec.method} D={spec.depth} N={spec.micro_batches}",
        replicas=record.devices["replica"],
        devices=record.devices["device"],
    )
