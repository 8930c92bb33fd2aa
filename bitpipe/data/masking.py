"""BERT's masking: 15 % of the tokens are to be predicted; 80 % of these read [MASK], 10 % a
random token, 10 % stay (Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bitpipe.models.micro_batch import IGNORE
from bitpipe.models.seeding import mix

PREDICTED, MASKED, RANDOM = 0.15, 0.8, 0.1
MASKS = 2  # what a seed is for


class Masking:
    """Masks of whole training steps, so that every rank can count a step's loss tokens alone.

    A position's draw depends on (seed, step, number of the sample in the step, position): not
    on B, N or W, as long as B̂ is the same.
    """

    def __init__(
        self,
        *,
        mask: int,
        ordinary: tuple[int, int],
        seed: int,
        samples: int,
        sequence: int,
        middles: Callable[[int], NDArray[np.int64]] | None = None,
    ) -> None:
        """``ordinary`` is the range of ids that are no special tokens; ``samples`` is B̂;
        ``middles(step)`` tells the column of every sample's inner [SEP], if it has one."""
        self._mask = mask
        self._ordinary = ordinary
        self._seed = seed
        self._shape = (samples, sequence)
        self._middles = middles
        self._draw = lru_cache(maxsize=2)(self._drawn)

    def apply(
        self, rows: NDArray[np.int64], step: int, at: slice
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What the model reads and what it shall say, for samples ``at`` of ``step``."""
        chance, random, _ = self._draw(step)
        chance = chance[at]
        labels = np.where(chance < PREDICTED, rows, IGNORE)
        tokens = np.where(chance < PREDICTED * MASKED, self._mask, rows)
        swap = (chance >= PREDICTED * MASKED) & (chance < PREDICTED * (MASKED + RANDOM))
        return np.where(swap, random[at], tokens), labels

    def count(self, step: int) -> int:
        """Loss tokens of the whole global mini-batch (at least 1)."""
        return self._draw(step)[2]

    def _drawn(self, step: int) -> tuple[NDArray[np.float32], NDArray[np.int64], int]:
        generator = np.random.Generator(np.random.PCG64(mix(self._seed, MASKS, step)))
        # One generator per array: a sample's row must not depend on how many follow it.
        chance = generator.random(self._shape, dtype=np.float32)
        other = np.random.Generator(np.random.PCG64(mix(self._seed, MASKS, step, 1)))
        random = other.integers(*self._ordinary, self._shape, dtype=np.int64)
        chance[:, 0] = chance[:, -1] = 1.0  # [CLS] and [SEP] are never predicted
        if self._middles is not None:
            chance[np.arange(len(chance)), self._middles(step)] = 1.0
        return chance, random, max(1, int((chance < PREDICTED).sum()))
