"""``scale=fit``: models shrunk to the user's devices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bitpipe.cluster import Cluster
from bitpipe.errors import InputError
from bitpipe.job import Job
from bitpipe.simulate import conf, predict
from bitpipe.simulate.cells import Methods
from bitpipe.simulate.memory import BORDERLINE, GIB
from bitpipe.simulate.shrink import peak_bytes, shrink

METHODS = Methods()
BERT = conf.model("bert_64")


def cluster(gib: float, devices: int = 8) -> Cluster:
    a800 = conf.cluster("a800")
    device = replace(a800.device, memory_bytes=gib * GIB)
    return replace(a800, nodes=1, devices_per_node=devices, device=device)


def job(label: str, depth: int) -> Job:
    return METHODS.job(label, model=BERT, depth=depth, width=1, size=4, micro_batches=depth)


@pytest.mark.parametrize(("devices", "gib"), [(4, 40), (8, 24), (8, 16), (8, 4)])
def test_the_shrunk_model_fits_every_job_and_the_next_larger_one_does_not(devices: int, gib: float) -> None:
    users = cluster(gib, devices)
    jobs = [job(label, devices) for label in ("dapple", "full")]
    model = shrink(jobs, users)
    room = BORDERLINE * gib * GIB
    assert max(peak_bytes(replace(one, model=model), users) for one in jobs) <= room
    stages = 2 * devices
    assert model.layers % stages == 0
    if model.hidden == BERT.hidden:
        larger = replace(model, layers=model.layers + stages)
    else:
        assert model.layers == stages, "layers shrink first"
        larger = replace(model, hidden=model.hidden + 40, heads=model.heads + 1)
    assert model.hidden // model.heads == BERT.hidden // BERT.heads
    assert max(peak_bytes(replace(one, model=larger), users) for one in jobs) > room


def test_the_peak_is_the_prediction_s() -> None:
    users = cluster(80)
    found = predict(job("full", 8), users, conf.calibration("physical"))
    assert peak_bytes(job("full", 8), users) == max(found.peak_memory_bytes)


def test_a_model_that_fits_stays_as_it_is() -> None:
    assert shrink([job("full", 8)], cluster(80)) is BERT


def test_devices_that_hold_nothing_are_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="still needs"):
        shrink([job("full", 8)], cluster(0.05))
