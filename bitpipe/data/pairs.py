"""Sentence pairs for next-sentence prediction: in half of them the second is from elsewhere."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitpipe.models.seeding import mix

PAIRS = 3  # what a seed is for


class Draw(NamedTuple):
    """One step's pairs, one entry per sample.

    Attributes:
        first: tokens of the first sentence; the second has the rest of the span.
        elsewhere: 1 where the second sentence is not the next one.
        start: where in the corpus it is then taken from.
    """

    first: NDArray[np.int64]
    elsewhere: NDArray[np.int64]
    start: NDArray[np.int64]


class Pairs:
    """Draws that depend on (seed, step, number of the sample in the step) alone.

    As in Devlin et al. 2019, a "sentence" is any stretch of text. Both have between a quarter
    and three quarters of the sample, so that no padding is needed.
    """

    def __init__(self, *, seed: int, samples: int, span: int, tokens: int) -> None:
        """``samples`` is B̂, ``span`` both sentences' length, ``tokens`` the corpus' length."""
        self._seed = seed
        self._samples = samples
        self._span = span
        self._tokens = tokens
        self.draw = lru_cache(maxsize=2)(self._drawn)

    def middles(self, step: int) -> NDArray[np.int64]:
        """Columns of the inner [SEP]."""
        return self.draw(step).first + 1

    def _drawn(self, step: int) -> Draw:
        def generator(purpose: int) -> np.random.Generator:
            return np.random.Generator(np.random.PCG64(mix(self._seed, PAIRS, step, purpose)))

        quarter = max(1, self._span // 4)
        return Draw(
            first=generator(0).integers(quarter, self._span - quarter + 1, self._samples),
            elsewhere=generator(1).integers(0, 2, self._samples),
            start=generator(2).integers(0, self._tokens - self._span + 1, self._samples),
        )
