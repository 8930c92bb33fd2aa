"""Adam on flat tensors: torch's fused kernel without its optimizer class.

``torch.optim.Adam`` imports the compiler stack when it is first built, 1.4 CPU seconds on every
rank; the kernel needs none of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Adam:
    """Adam (Kingma and Ba 2015) with torch's defaults and no weight decay.

    Args:
        parameters: tensors with a ``grad``; both are read and the parameters written in place.
        learning_rate: of every step.
    """

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float) -> None:
        self._parameters = [parameter.detach() for parameter in parameters]
        self._gradients = [p.grad for p in parameters if p.grad is not None]
        self._first = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._second = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._steps = [torch.zeros((), dtype=torch.float32, device=p.device) for p in self._parameters]
        self._rate = learning_rate

    def step(self) -> None:
        """Update the parameters by one step."""
        torch._foreach_add_(self._steps, 1)
        torch._fused_adam_(
            self._parameters,
            self._gradients,
            self._first,
            self._second,
            [],
            self._steps,
            lr=self._rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    @property
    def bytes(self) -> int:
        """Bytes of both moments."""
        return sum(moment.nbytes for moment in (*self._first, *self._second))
