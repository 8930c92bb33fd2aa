"""``python -m experiments.sensitivity``: what the paper leaves open, and how much hangs on it.

For every reading of what is not printed the cost model is fitted again, to the same cells with the same
parameters, and asked for what the paper does print: the twelve mean speedups, the best settings of Table 5,
how throughput grows with B in Fig. 11, and the ablations that no fit has seen.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean
from typing import Any

from bitpipe.cluster import Cluster
from bitpipe.errors import InputError
from bitpipe.job import Job
from bitpipe.models import ModelConfig
from bitpipe.simulate import Calibration, Verdict, conf, predict
from bitpipe.simulate.calibration import PARAMETERS
from bitpipe.simulate.cells import ABLATION, MeasuredCell, Methods, read_cells, select
from bitpipe.simulate.fit import error, fit, null_errors
from experiments.composing.expression import whole
from experiments.records.store import NotWritten, write_json

FILE = "sensitivity.json"
"""Below the results folder."""
SCHEMA = 1
PAPER = ABLATION.parent
ONE_NODE = ("compute_efficiency", "op_overhead")
METHODS = Methods()
MODELS = {"bert-64": ("bert_64", 4), "gpt-96": ("gpt_96", 1)}
"""Per printed name: our file, and samples per GPU (B̂ = 4·P and 1·P)."""
NODE = ((("bert-64", 4), "fig9a"), (("gpt-96", 1), "fig9b"))
"""(model, B) on one node, D = 8, W = 1, N = D, 2D, 4D."""
CHOSEN = {"bert-64": "fig9c", "gpt-96": "fig9d"}
OURS = "bitpipe"
COUNTS = {"fixed_batch": "N = B̂/(B·W)", "n_is_d": "N = D"}
FIG11 = (128, (4, 8, 16, 32), (1, 2, 4))
"""B̂ and the depths, and the micro-batch sizes between which a step is looked at."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One way to read what is not printed; what it does not name is as by default.

    Attributes:
        name: a few words.
        layouts: rank order per method.
        calibration: values of the base calibration.
        fitted: parameters fitted to the full cells of one node.
        bert: settings of BERT-64.
        borderline: whether what fills more than 77 of 80 GiB counts as fitting.
    """

    name: str
    layouts: Mapping[str, str] = field(default_factory=dict)
    calibration: Mapping[str, float] = field(default_factory=dict)
    fitted: tuple[str, ...] = ONE_NODE
    bert: Mapping[str, Any] = field(default_factory=dict)
    borderline: bool = True


READINGS = (
    Reading(name="default"),
    Reading(
        name="rank order: baselines w·D + d",
        layouts=dict.fromkeys(("dapple", "1f1b_int"), "sequential"),
    ),
    Reading(name="rank order: BitPipe as released", layouts={OURS: "released"}),
    Reading(
        name="rank order: BitPipe and MixPipe as released",
        layouts=dict.fromkeys((OURS, "mixpipe"), "released"),
    ),
    Reading(
        name="optimizer: 36 bytes at the full bandwidth",
        calibration={"optimizer_bytes": 36.0, "replica_bytes": 0.0, "memory_efficiency": 1.0},
    ),
    Reading(name="optimizer: its bytes fitted, too", fitted=(*ONE_NODE, "optimizer_bytes")),
    Reading(
        name="BERT: vocabulary 29056, binary head",
        bert={"vocabulary": 29056, "next_sentence": True},
    ),
    Reading(name="memory: borderline does not fit", borderline=False),
)
"""The first one is the default."""


@dataclass(frozen=True)
class Model:
    """The cost model as one reading has it, fitted once."""

    reading: Reading
    cluster: Cluster
    base: Calibration

    @classmethod
    @cache
    def of(cls, name: str) -> Model:
        """The model of the reading with this name."""
        reading = next(one for one in READINGS if one.name == name)
        base = replace(conf.calibration("physical"), **reading.calibration)  # type: ignore[arg-type]
        return cls(reading, conf.cluster("a800"), base)

    def config(self, printed: str) -> ModelConfig:
        """The model that the paper prints under this name."""
        config = _config(printed)
        return replace(config, **self.reading.bert) if config.family == "bert" else config

    def cells(self) -> list[MeasuredCell]:
        """Table 6 as this reading has it: the full method's rank order, unless the variant is about it."""
        layout = self.reading.layouts.get(OURS)
        found = []
        for cell in read_cells():
            job = replace(cell.job, model=self.config(cell.job.model.name))
            if layout and cell.variant != "without_m":
                job = replace(job, layout=layout)
            found.append(replace(cell, job=job))
        return found

    def fitted(self) -> tuple[Calibration, Calibration]:
        """Calibrations of one node and of several, each to the full method's cells alone."""
        full = select(self.cells(), variants=["full"])
        one = fit(select(full, depths=[4, 8]), self.cluster, self.base, self.reading.fitted).calibration
        across = select(full, depths=[16], micro_batches=[16])
        return one, fit(across, self.cluster, one, ["p2p_inter_efficiency"]).calibration

    def job(self, method: str, printed: str, depth: int, width: int, size: int, count: int) -> Job:
        """A job of a method of the paper, ours under its own name."""
        label = "full" if method == OURS else method
        cap = METHODS.by_label[label].get("cap")
        names = {"depth": depth, "micro_batches": count}
        job = METHODS.job(
            label,
            model=self.config(printed),
            depth=depth,
            width=width,
            size=size,
            micro_batches=count,
            cap=None if cap is None else whole("method.cap", cap, names),
        )
        return replace(job, layout=self.reading.layouts.get(method, job.layout))

    def throughput(self, job: Job, calibrations: tuple[Calibration, Calibration]) -> float | None:
        """Samples/s; None where the job is impossible or does not fit."""
        speed, verdict = self.predicted(job, calibrations)
        allowed = (Verdict.FITS, Verdict.BORDERLINE) if self.reading.borderline else (Verdict.FITS,)
        return speed if verdict in allowed else None

    def predicted(
        self, job: Job, calibrations: tuple[Calibration, Calibration]
    ) -> tuple[float, Verdict | None]:
        """Samples/s and whether it fits, None if it is impossible; readings share what they agree on."""
        calibration = calibrations[job.ranks > self.cluster.devices_per_node]
        values = {name: getattr(calibration, name) for name in VALUES}
        if job.ranks <= self.cluster.devices_per_node:
            job = replace(job, layout="sequential")  # one node: any order is as good
        key = (job, *values.values())
        if key not in _known:
            try:
                found = predict(job, self.cluster, calibration)
                _known[key] = found.samples_per_s, found.verdict
            except InputError:
                _known[key] = 0.0, None
        return _known[key]


VALUES = (*PARAMETERS, "replica_bytes", "memory_efficiency")
_known: dict[tuple[Any, ...], tuple[float, Verdict | None]] = {}


@cache
def _config(printed: str) -> ModelConfig:
    return conf.model(printed)


def sensitivity(readings: Sequence[Reading] = READINGS) -> Iterator[dict[str, Any]]:
    """One document per reading, and one per reading of N where that matters."""
    for reading in readings:
        model = Model.of(reading.name)
        calibrations = model.fitted()
        common = {
            "reading": reading.name,
            "default": reading is READINGS[0],
            "fitted": {name: getattr(calibrations[1], name) for name in calibrations[1].fitted},
            "held_out": _held_out(model, calibrations[0]),
            "fig11": _fig11(model, calibrations),
        }
        for count in COUNTS:
            speedups = _speedups(model, calibrations, count)
            off = [abs(one["error"]) for one in speedups]
            yield common | {
                "micro_batches": count,
                "speedups": speedups,
                "mean_error": fmean(off),
                "worst_error": max(off),
                "table5": _table5(model, calibrations, count),
            }


def nulls() -> dict[str, float]:
    """What models that know nothing reach: a constant per baseline; an ablation is as the full method."""
    by_method: dict[str, list[float]] = {}
    for row in _printed("speedups"):
        by_method.setdefault(row["compared_with"], []).append(float(row["mean_speedup_of_bitpipe"]))
    off = [abs(fmean(values) / value - 1) for values in by_method.values() for value in values]
    cells = select(read_cells(), depths=[4, 8])
    held = null_errors(select(cells, variants=["without_v", "without_e"]), select(cells, variants=["full"]))
    return {
        "speedups_mean_error": fmean(off),
        "speedups_worst_error": max(off),
        "held_out_mean_error": fmean(map(abs, held)),
        "held_out_worst_error": max(map(abs, held)),
    }


def _held_out(model: Model, calibration: Calibration) -> dict[str, float]:
    cells = select(model.cells(), depths=[4, 8], variants=["without_v", "without_e"])
    off = [abs(error(cell, model.cluster, calibration)) for cell in cells]
    return {"cells": len(off), "mean_error": fmean(off), "worst_error": max(off)}


def _speedups(
    model: Model, calibrations: tuple[Calibration, Calibration], count: str
) -> list[dict[str, Any]]:
    """The twelve means; a setting that does not fit counts as the paper has it: it ran."""
    known: dict[tuple[str, str], list[float]] = {}
    for (printed, size), figure in NODE:
        for number, method in product((8, 16, 32), (OURS, "dapple", "1f1b_int", "chimera")):
            job = model.job(method, printed, 8, 1, size, number)
            known.setdefault((figure, method), []).append(model.predicted(job, calibrations)[0])
    for row in _printed("table5_best"):
        method, (_, per_gpu) = row["method"].replace("-", "_"), MODELS[row["model"]]
        width, depth, size = (int(row[key]) for key in ("data_parallel", "depth", "micro_batch"))
        number = depth if count == "n_is_d" else per_gpu * int(row["gpus"]) // (size * width)
        job = model.job(method, row["model"], depth, width, size, number)
        known.setdefault((CHOSEN[row["model"]], method), []).append(model.predicted(job, calibrations)[0])
    found = []
    for row in _printed("speedups"):
        figure, method = row["figure"], row["compared_with"].replace("-", "_")
        ours, theirs = known[figure, OURS], known[figure, method]
        ratio = fmean(a / b for a, b in zip(ours, theirs, strict=True))
        paper = float(row["mean_speedup_of_bitpipe"])
        found.append(
            {
                "figure": figure,
                "compared_with": method,
                "speedup": ratio,
                "paper": paper,
                "error": ratio / paper - 1,
            }
        )
    return found


def _table5(model: Model, calibrations: tuple[Calibration, Calibration], count: str) -> dict[str, int]:
    """In how many of the 24 searches the printed choice is the fastest."""
    space = {(row["model"], row["parameter"]): row["candidates"] for row in _printed("table5_space")}
    hits = searches = 0
    for row in _printed("table5_best"):
        method, gpus, per_gpu = row["method"].replace("-", "_"), int(row["gpus"]), MODELS[row["model"]][1]
        names = ("data_parallel", "depth", "micro_batch")
        best, chosen = 0.0, None
        for width, depth, size in product(*(map(int, space[row["model"], n].split()) for n in names)):
            if width * depth != gpus:
                continue
            number, rest = (depth, 0) if count == "n_is_d" else divmod(per_gpu * gpus, size * width)
            if rest or not number:
                continue
            speed = model.throughput(
                model.job(method, row["model"], depth, width, size, number), calibrations
            )
            if speed is not None and speed > best:
                best, chosen = speed, (width, depth, size)
        searches += 1
        hits += chosen == tuple(int(row[n]) for n in names)
    return {"hits": hits, "searches": searches}


def _fig11(model: Model, calibrations: tuple[Calibration, Calibration]) -> dict[str, int]:
    """How many steps from one B to the next raise BitPipe's throughput at 32 GPUs."""
    batch, depths, sizes = FIG11
    rises = steps = 0
    for depth in depths:
        width = 32 // depth
        speeds = [
            model.throughput(
                model.job(OURS, "bert-64", depth, width, size, batch // (size * width)), calibrations
            )
            for size in sizes
        ]
        for less, more in pairwise(speeds):
            steps += 1
            rises += less is not None and more is not None and more > less
    return {"rises": rises, "steps": steps}


def _printed(name: str) -> list[dict[str, str]]:
    with (PAPER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main(argv: Sequence[str] | None = None) -> int:
    """Work out every reading and write :data:`FILE`; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.sensitivity", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder (default: results)")
    arguments = parser.parse_args(argv)
    began = time.perf_counter()
    rows = list(sensitivity())
    document = {"schema": SCHEMA, "origin": "simulated", "nulls": nulls(), "rows": rows}
    path = arguments.results / FILE
    try:
        write_json(path, document)
    except NotWritten as wrong:
        print(wrong, file=sys.stderr)
        return 2
    print(f"{len(READINGS)} readings in {time.perf_counter() - began:.0f} s: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
