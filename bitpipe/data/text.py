"""Training samples cut from a prepared corpus: masked LM for BERT, causal LM for GPT."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bitpipe.data.corpus import Corpus, read_manifest
from bitpipe.data.source import TokenSource
from bitpipe.data.tokenizer import KINDS
from bitpipe.errors import InputError
from bitpipe.models.config import ModelConfig
from bitpipe.models.micro_batch import MicroBatch
from bitpipe.models.seeding import mix

ORDER = 1  # what a seed is for


@dataclass(frozen=True, kw_only=True)
class TextDataset:
    """A prepared corpus in ``folder``; see :class:`bitpipe.data.source.Dataset`."""

    folder: Path

    @cached_property
    def name(self) -> str:
        return read_manifest(self.folder).name

    @cached_property
    def fingerprint(self) -> str:
        return read_manifest(self.folder).fingerprint

    def source(
        self, model: ModelConfig, *, micro_batch_size: int, micro_batches: int, seed: int
    ) -> TokenSource:
        """Open it for one job.

        Raises:
            InputError: wrong tokenizer for the family, vocabulary larger than the model's, or
                too little text for one sample.
        """
        from bitpipe.data.masked import MaskedSource

        corpus = Corpus.open(self.folder)
        check_fit(corpus, model, self.folder)
        kind = CausalSource if model.family == "gpt" else MaskedSource
        return kind(corpus, model, micro_batch_size=micro_batch_size, micro_batches=micro_batches, seed=seed)


def check_fit(corpus: Corpus, model: ModelConfig, folder: Path) -> None:
    """Refuse a corpus that ``model`` cannot be trained on.

    Raises:
        InputError: see :meth:`TextDataset.source`.
    """
    manifest = corpus.manifest
    if manifest.tokenizer != KINDS[model.family]:
        raise InputError(
            "data.path",
            folder,
            f"cut by a {manifest.tokenizer} tokenizer; {model.family} needs {KINDS[model.family]}",
        )
    if manifest.vocabulary > model.vocabulary:
        raise InputError(
            "model.vocabulary",
            model.vocabulary,
            f"the data's tokenizer has {manifest.vocabulary} entries",
            f"at least model.vocabulary={manifest.vocabulary}",
        )
    needed = span(model) + (model.family == "gpt")
    if manifest.tokens < needed:
        raise InputError("data.path", folder, f"{manifest.tokens} tokens of text; one sample needs {needed}")


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


class CausalSource:
    """Causal LM: s tokens of text, labelled with their successors; every token counts."""

    def __init__(
        self, corpus: Corpus, model: ModelConfig, *, micro_batch_size: int, micro_batches: int, seed: int
    ) -> None:
        self._tokens = corpus.tokens
        self._sequence = model.sequence
        self._size = micro_batch_size
        self._count = micro_batches
        self.passes = Passes((len(corpus.tokens) - 1) // model.sequence, seed)

    def micro_batch(self, step: int, index: int) -> MicroBatch:
        """See :class:`bitpipe.data.source.TokenSource`."""
        check_index(index, self._count)
        s = self._sequence
        first = (step * self._count + index) * self._size
        starts = [self.passes[first + i] * s for i in range(self._size)]
        rows = torch.from_numpy(np.stack([self._tokens[at : at + s + 1].astype(np.int64) for at in starts]))
        return MicroBatch(
            tokens=rows[:, :-1].contiguous(),
            labels=rows[:, 1:].contiguous(),
            step=step,
            index=index,
            normaliser=self._size * self._count * s,
            samples=self._size * self._count,
        )


def check_index(index: int, count: int) -> None:
    """A wrong index is a caller's bug, not a user's."""
    if not 0 <= index < count:
        raise IndexError(f"micro-batch {index} of {count}")
