"""Which piece of a corpus is the n-th sample of training, and how much text a sample takes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitpipe.models.config import ModelConfig
from bitpipe.models.seeding import mix

ORDER = 1  # what a seed is for


def span(model: ModelConfig) -> int:
    """Tokens of text that one sample consumes: BERT's leave room for [CLS] and one [SEP] or two."""
    if model.family == "gpt":
        return model.sequence
    return model.sequence - (3 if model.next_sentence else 2)


class Passes:
    """A seeded order of samples: number n of training is the n-th of a shuffled pass over the
    corpus, with a new shuffle every pass. Step t takes samples t·B̂ … (t+1)·B̂−1, its
    micro-batch g the g-th B of these; so the order does not depend on method, B, N or W.
    """

    def __init__(self, samples: int, seed: int) -> None:
        self.samples = samples
        """Samples of one pass."""
        self._seed = seed
        self._shuffle = lru_cache(maxsize=2)(self._shuffled)

    def __getitem__(self, number: int) -> int:
        """Which piece of the corpus sample ``number`` of training is."""
        turn, position = divmod(number, self.samples)
        return int(self._shuffle(turn)[position])

    def _shuffled(self, turn: int) -> NDArray[Any]:
        return np.random.Generator(np.random.PCG64(mix(self._seed, ORDER, turn))).permutation(self.samples)


def check_index(index: int, count: int) -> None:
    """A wrong index is a caller's bug, not a user's."""
    if not 0 <= index < count:
        raise IndexError(f"micro-batch {index} of {count}")
