"""How a cell is run, as against what it is: nothing here changes a result, or enters an id."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class WandbSettings:
    """Where wandb's copy of a run goes.

    Attributes:
        mode: ``offline``, ``online`` or ``disabled``.
        project, entity: as wandb knows them; entity None is the user's default.
        group: of the runs; None is the experiment's name.
        tags: more of them, separated by commas.
    """

    mode: str = "disabled"
    project: str = "bitpipe"
    entity: str | None = None
    group: str | None = None
    tags: str = ""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of a sweep; picklable, for jobs on other machines.

    Attributes:
        results: absolute path of the results folder.
        launcher: ``local`` or ``slurm``; for the record.
        data_path: text file, folder or prepared data set; None is the built-in corpus.
        data_cache: absolute path of a folder, shared by all nodes, for corpora prepared on the way.
        rerun: run cells again that have a finished record.
        repeats: how often a block's cells are measured, one rotation after another.
        timelines: keep one iteration's timeline beside each record.
        watchdog_s: seconds without progress of any rank before a run counts as hung.
        max_lag: by which share of its time an emulated iteration may end late; a run that exceeds
            it has failed, the machine being too busy for it.
        wandb: the sink.
    """

    results: Path
    launcher: str = "local"
    data_path: Path | None = None
    data_cache: Path = Path("data")
    rerun: bool = False
    repeats: int = 1
    timelines: bool = True
    watchdog_s: float = 60.0
    max_lag: float = 0.02
    wandb: WandbSettings = field(default_factory=WandbSettings)
