"""What a rank keeps from the forward of a chunk until its backward needs it no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Key = tuple[int, int, int]
"""(micro-batch, stage, pipe)."""


class Stash:
    """Activations of micro-batches in chunks, and how many of them there were at once.

    The count is of what was really put in and taken out, in layers of the model times
    micro-batches; layers / D of them are one Ma (Table 3). It costs a fraction of a microsecond
    per action, outside what clocks time.

    Attributes:
        peak: most layers × micro-batches at once, since the start of the run.
    """

    __slots__ = ("_kept", "_layers", "_now", "peak")

    def __init__(self, layers: Mapping[int, int]) -> None:
        """``layers[stage]``: how many layers the stage has."""
        self._layers = layers
        self._kept: dict[Key, Any] = {}
        self._now = 0
        self.peak = 0

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, key: Key, value: Any = None) -> None:
        """Keep ``value``.

        Raises:
            KeyError: something is kept there already.
        """
        if key in self._kept:
            raise KeyError(key)
        self._kept[key] = value
        self._now += self._layers[key[1]]
        if self._now > self.peak:
            self.peak = self._now

    def take(self, key: Key) -> Any:
        """Let go of what was put there.

        Raises:
            KeyError: nothing is kept there.
        """
        value = self._kept.pop(key)
        self._now -= self._layers[key[1]]
        return value
