"""Precisions and what they cost: the one table of them (without torch, whose dtypes are found by name)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class Precision:
    """What training in a precision takes.

    Half precision keeps its gradient sums, master weights and both moments in fp32: 18 bytes in all.

    Attributes:
        dtype: torch's name for it.
        element: bytes of a weight as it is computed with, and of an activation's element.
        gradient, state: bytes per parameter of its gradient sum, and of Adam with a master weight.
        rate: tensor-core rate of the A100 and its kin against half precision (fp32 as TF32).
    """

    dtype: str
    element: int
    gradient: int
    state: int
    rate: float

    @property
    def parameter(self) -> int:
        """Bytes of weight, gradient and optimizer state per resident parameter."""
        return self.element + self.gradient + self.state

    def costs_as(self, other: Precision | None) -> bool:
        """Whether both take the same bytes and time."""
        return other is not None and (self.element, self.rate) == (other.element, other.rate)

    @property
    def half(self) -> bool:
        """Whether weights have a master copy in fp32, and losses may need a scale."""
        return self.element < self.gradient


PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {
        "fp32": Precision(dtype="float32", element=4, gradient=4, state=8, rate=1 / 2),
        "fp64": Precision(dtype="float64", element=8, gradient=8, state=16, rate=1 / 16),
        "bf16": Precision(dtype="bfloat16", element=2, gradient=4, state=12, rate=1.0),
        "fp16": Precision(dtype="float16", element=2, gradient=4, state=12, rate=1.0),
    }
)
