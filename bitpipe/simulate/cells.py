"""Measured cells: jobs with the throughput that somebody measured or printed."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bitpipe.checkout import ROOT
from bitpipe.errors import InputError, choose
from bitpipe.job import Job
from bitpipe.models import ModelConfig
from bitpipe.schedule.spec import ScheduleSpec
from bitpipe.simulate import conf

ABLATION = ROOT / "results" / "paper" / "table6_ablation.csv"


@dataclass(frozen=True, kw_only=True)
class MeasuredCell:
    """One job and its throughput.

    Attributes:
        variant: the label of the method's configuration in ``conf/method/``.
        job: what was run.
        samples_per_s: what came out.
    """

    variant: str
    job: Job
    samples_per_s: float

    @property
    def row(self) -> tuple[str, int, int, int, int]:
        """What cells of one row of a table share."""
        spec = self.job.schedule
        return (
            self.job.model.name,
            spec.depth,
            spec.micro_batches,
            self.job.width,
            self.job.micro_batch_size,
        )

    def __str__(self) -> str:
        name, depth, micro_batches, width, size = self.row
        return f"{name} D={depth} N={micro_batches} W={width} B={size} {self.variant}"


@dataclass(frozen=True)
class Methods:
    """The method configurations by the label that tables use."""

    @cached_property
    def by_label(self) -> dict[str, dict[str, object]]:
        found = {}
        for name in conf.names("method"):
            data = conf.read("method", name)
            found[str(data.get("label", data["name"]))] = data
        return found

    def job(
        self,
        label: str,
        *,
        model: ModelConfig,
        depth: int,
        width: int,
        size: int,
        micro_batches: int,
        cap: int | None = None,
    ) -> Job:
        """A job of the paper's experiments: half precision, the method's own sync and layout.

        ``cap`` stands for the file's, which may be arithmetic that only the composer reads.
        """
        try:
            method = self.by_label[label]
        except KeyError:
            choose("variant", label, self.by_label)
            raise
        chunks, placement = method.get("chunks"), method.get("placement")
        cap = method.get("cap") if cap is None else cap  # type: ignore[assignment]
        if not isinstance(cap, int | None):
            raise InputError("method.cap", cap, "only a number can be read here", f"variant {label}")
        spec = ScheduleSpec(
            method=str(method["name"]),
            depth=depth,
            micro_batches=micro_batches,
            chunks=None if chunks is None else int(str(chunks)),
            placement=None if placement is None else str(placement),
            cap=cap,
            early_forward=bool(method.get("early_forward", False)),
        )
        return Job(
            schedule=spec,
            width=width,
            micro_batch_size=size,
            sync=str(method.get("sync", "late")),
            layout=str(method.get("layout", "sequential")),
            model=model,
            precision="fp16",
        )


def read_cells(path: Path = ABLATION) -> list[MeasuredCell]:
    """Read a table of measured throughput.

    Its columns are model, depth, global_batch, variant and samples_per_s, and data_parallel and
    micro_batch; N = B̂/(B·W) follows. Table 6 prints neither W nor B: they are taken from
    ``assumptions.csv`` beside it.

    Raises:
        InputError: the file, a column or a value is missing or wrong, or there is no cell.
    """
    methods = Methods()
    assumed = _assumed("table6") if path == ABLATION else {}
    cells = []
    for number, printed in enumerate(_rows(path), start=2):
        row = assumed | printed
        if None in row.values():
            raise InputError("cells", f"{path}:{number}", "the row has fewer values than the header")
        try:
            width, size, batch = (int(row[key]) for key in ("data_parallel", "micro_batch", "global_batch"))
            if min(width, size, batch) < 1:
                raise ValueError("data_parallel, micro_batch and global_batch must be positive")
            if batch % (width * size):
                raise ValueError(f"global_batch {batch} is no multiple of B·W = {width * size}")
            job = methods.job(
                row["variant"],
                model=conf.model(row["model"]),
                depth=int(row["depth"]),
                width=width,
                size=size,
                micro_batches=batch // (width * size),
            )
            value = float(row["samples_per_s"])
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"samples_per_s {value} is not a positive number")
        except KeyError as error:
            raise InputError("cells", path, f"column {error.args[0]} is missing") from None
        except (TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("cells", f"{path}:{number}", str(error)) from None
        cells.append(MeasuredCell(variant=row["variant"], job=job, samples_per_s=value))
    if not cells:
        raise InputError("cells", path, "has no cells", "expected a header and one row for each cell")
    return cells


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        if path.exists() and not path.is_file():
            raise InputError("cells", path, "expected a regular file")
        return list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()))
    except OSError as error:
        raise InputError("cells", path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError("cells", path, "expected a text file in UTF-8") from None
    except csv.Error as error:
        raise InputError("cells", path, f"cannot be read: {error}") from None


def _assumed(table: str) -> dict[str, str]:
    """What ``assumptions.csv`` says of a printed table."""
    prefix = f"{table}."
    rows = _rows(ABLATION.with_name("assumptions.csv"))
    return {row["key"].removeprefix(prefix): row["value"] for row in rows if row["key"].startswith(prefix)}


def select(
    cells: Sequence[MeasuredCell],
    *,
    variants: Sequence[str] = (),
    depths: Sequence[int] = (),
    micro_batches: Sequence[int] = (),
) -> list[MeasuredCell]:
    """Cells whose values are among those given; nothing given means all.

    Raises:
        InputError: no cell has one of the values, or none is left.
    """
    for variant in variants:
        choose("variants", variant, {cell.variant for cell in cells})
    for depth in depths:
        _choose_number("depths", depth, {cell.job.schedule.depth for cell in cells})
    for number in micro_batches:
        _choose_number("micro-batches", number, {cell.job.schedule.micro_batches for cell in cells})
    chosen = [
        cell
        for cell in cells
        if (not variants or cell.variant in variants)
        and (not depths or cell.job.schedule.depth in depths)
        and (not micro_batches or cell.job.schedule.micro_batches in micro_batches)
    ]
    if not chosen:
        raise InputError(
            "cells",
            f"variants {list(variants)}, depths {list(depths)}, micro-batches {list(micro_batches)}",
            "no cell has all of these",
        )
    return chosen


def _choose_number(key: str, value: int, choices: set[int]) -> None:
    if value not in choices:
        near = min(sorted(choices), key=lambda choice: abs(choice - value))
        allowed = f"allowed are {', '.join(map(str, sorted(choices)))}"
        raise InputError(key, value, allowed, f"nearest: {near}")
