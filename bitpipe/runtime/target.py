"""What ranks compute on, how their messages travel, and what compiles their layers. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

from bitpipe.errors import InputError, choose

DEVICES = ("cpu", "cuda")
TRANSPORTS = ("gloo", "staged", "nccl")
COMPILERS = ("none", "eager", "aot_eager", "inductor")
_CARRIES = {"cpu": ("gloo", "staged"), "cuda": ("nccl", "staged")}


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where and how a run's ranks compute.

    Attributes:
        device: ``cpu``, or ``cuda``: one GPU per rank under NCCL; staged ranks may share one.
        transport: ``gloo`` between CPU memories, ``nccl`` between GPUs, ``staged``: copied to
            (pinned) host memory, sent by gloo, copied back. Staged works on a CPU too.
        compile: a backend of ``torch.compile`` for the layers, or ``none``.

    Raises:
        InputError: unknown values, or a transport that cannot carry the device's memory.
    """

    device: str = "cpu"
    transport: str = "gloo"
    compile: str = "none"

    def __post_init__(self) -> None:
        choose("device", self.device, DEVICES)
        choose("transport", self.transport, TRANSPORTS)
        choose("compile", self.compile, COMPILERS)
        carries = _CARRIES[self.device]
        if self.transport not in carries:
            raise InputError(
                "transport", self.transport, f"device={self.device} takes {' or '.join(carries)}"
            )
