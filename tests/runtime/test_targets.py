"""Devices and transports: the accelerator's code path on CPU tensors, and how it says no."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_equality import BOUND, reference_of
from training import RandomData, job_of, links_of, train_on_ranks, worst_difference

from bitpipe.errors import InputError
from bitpipe.runtime import device as cuda
from bitpipe.runtime.block import prepare, run_block
from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.target import Target
from bitpipe.runtime.transport.staged import Outbox
from bitpipe.schedule import Kind

STAGED = Target(device="cpu", transport="staged")


@pytest.mark.parametrize(
    ("method", "width", "changes"),
    [
        ("bitpipe", 1, {"clip_norm": 0.05}),
        ("bitpipe", 1, {"split_backward": True}),
        ("dapple", 2, {}),
        ("1f1b_int", 1, {}),
    ],
)
def test_staged_training_equals_one_process(
    pool_of: Callable[[int], Pool], method: str, width: int, changes: dict[str, Any]
) -> None:
    job = job_of(method, 4, 8, width=width, **changes)
    (run,) = prepare([job], clock="wall", links=[links_of(job)], data=RandomData(), target=STAGED)
    trained = pool_of(job.ranks).call(train_on_ranks, run)
    assert worst_difference(trained, reference_of(job, 1)) <= BOUND


def test_the_events_of_a_device_become_a_timeline(pool_of: Callable[[int], Pool]) -> None:
    job = job_of("bitpipe", 4, 4, iterations=2, width=1)
    (result,) = run_block(
        [job], clock="wall", links=[links_of(job)], data=RandomData(), target=STAGED, pool=pool_of(4)
    )
    assert (result.status, result.origin) == ("ok", "measured")
    timeline = result.timeline()
    compute = [event for event in timeline.events if event.action.is_compute]
    assert len(compute) == 4 * 4 * 2 * 2, "micro-batches × stages of a pipe, forward and backward"
    assert all(0 <= event.start <= event.end <= result.seconds[-1] for event in compute)
    assert not [event for event in timeline.events if event.action.kind in (Kind.SEND_F, Kind.SEND_B)]
    for rank in range(4):
        mine = sorted((e.start, e.end) for e in compute if e.device == rank)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(mine))
    peaks = result.vectors["peak_activation_bytes"]
    assert min(peaks) > 0


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_layers_compute_the_same(pool_of: Callable[[int], Pool], backend: str) -> None:
    job = job_of("bitpipe", 2, 2)
    target = Target(compile=backend)
    (run,) = prepare([job], clock="wall", links=[links_of(job)], data=RandomData(), target=target)
    trained = pool_of(2).call(train_on_ranks, run)
    assert worst_difference(trained, reference_of(job, 1)) <= BOUND


def test_a_compiled_backward_is_not_split() -> None:
    job = job_of("bitpipe", 2, 2, split_backward=True)
    with pytest.raises(InputError, match="compile=inductor: a compiled backward cannot be split"):
        prepare(
            [job],
            clock="wall",
            links=[links_of(job)],
            data=RandomData(),
            target=Target(compile="inductor"),
        )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"device": "cuda"}, "transport=gloo: device=cuda takes nccl or staged"),
        ({"transport": "nccl"}, "transport=nccl: device=cpu takes gloo or staged"),
        ({"device": "gpu"}, "device=gpu: allowed are cpu, cuda"),
        ({"compile": "inducto"}, "did you mean inductor?"),
    ],
)
def test_impossible_targets_are_refused_in_one_line(values: dict[str, str], message: str) -> None:
    with pytest.raises(InputError) as refused:
        Target(**values)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("clock", ["virtual", "deadline"])
def test_only_real_time_makes_sense_on_a_device(clock: str) -> None:
    job = job_of("dapple", 2, 2)
    with pytest.raises(InputError, match=f"clock={clock}"):
        prepare(
            [job],
            clock=clock,
            links=[links_of(job)],
            data=RandomData(),
            target=STAGED,
            nominal=[None],  # type: ignore[list-item]
        )


class Slow:
    """A copy that ends when it is told to, or when somebody waits for it."""

    def __init__(self) -> None:
        self.done = False

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.done = True


class SlowDevice(cuda.Host):
    """A device whose copies to the host take their time."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[Slow] = []

    def copy_out(self, source: torch.Tensor, host: torch.Tensor) -> Slow:
        super().copy_out(source, host)
        self.copies.append(Slow())
        return self.copies[-1]


class Work:
    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def wait(self) -> None:
        self.log.append(f"waited for {self.name}")


def test_messages_start_after_their_copies_in_order() -> None:
    device, log = SlowDevice(), list[str]()
    outbox = Outbox(device)

    def start(name: str) -> Any:
        def begin() -> Any:
            log.append(name)
            return Work(log, name)

        return begin

    tensor = torch.ones(2)
    staged = [outbox.put(tensor, torch.empty(2), start(name)) for name in "abc"]
    device.copies[1].done = True
    outbox.poll()
    assert log == [], "b is ready, but a comes first"
    device.copies[0].done = True
    outbox.poll()
    assert log == ["a", "b"]
    staged[2].wait()
    assert log == ["a", "b", "c", "waited for c"]


def train_slowly(world: Any, run: Any) -> Any:
    """Train with copies that never end by themselves."""
    import bitpipe.runtime.transport.transport as transport

    real, transport.Host = transport.Host, SlowDevice  # type: ignore[misc]
    try:
        return train_on_ranks(world, run)
    finally:
        transport.Host = real  # type: ignore[misc]


def test_a_rank_that_waits_first_sends_all_it_has(pool_of: Callable[[int], Pool]) -> None:
    """Copies that only end when waited for: nothing hangs, nothing is lost."""
    job = job_of("bitpipe", 4, 4)
    (run,) = prepare([job], clock="wall", links=[links_of(job)], data=RandomData(), target=STAGED)
    trained = pool_of(4).call(train_slowly, run)
    assert worst_difference(trained, reference_of(job, 1)) <= BOUND


def test_the_mailbox_counts_its_slots_on_the_device(pool_of: Callable[[int], Pool]) -> None:
    job = job_of("dapple", 4, 8, iterations=1, measured=1)
    plain, staged = (
        run_block(
            [job], clock="wall", links=[links_of(job)], data=RandomData(), target=target, pool=pool_of(4)
        )[0].vectors["buffer_bytes"]
        for target in (Target(), STAGED)
    )
    assert plain == staged


def test_without_cuda_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(InputError) as refused:
        cuda.Gpu()
    assert str(refused.value).startswith("device=cuda: this torch (")
    assert "is built without CUDA (device=cpu runs here)" in str(refused.value)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert cuda.obstacle() == "CUDA_VISIBLE_DEVICES=-1 hides every GPU"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert cuda.obstacle() == "no GPU is visible, or its driver is too old for CUDA 13.0"


@pytest.mark.skipif(cuda.obstacle() is None, reason="a GPU is here")
def test_a_job_for_gpus_ends_with_the_reason(pool_of: Callable[[int], Pool]) -> None:
    job = job_of("dapple", 2, 2, precision="bf16")
    target = Target(device="cuda", transport="nccl")
    (result,) = run_block(
        [job], clock="wall", links=[links_of(job)], data=RandomData(), target=target, pool=pool_of(2)
    )
    assert result.status == "failed"
    assert result.cause is not None
    assert f"device=cuda: {cuda.obstacle()}" in result.cause.message
