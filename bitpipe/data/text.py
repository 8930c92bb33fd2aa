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
from bitpipe.data.masking import Masking
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
    ) -> TextSource:
        """Open it for one job.

        Raises:
            InputError: wrong tokenizer for the family, vocabulary larger than the model's, or
                too little text for one sample.
        """
        corpus = Corpus.open(self.folder)
        check_fit(corpus, model, self.folder)
        return TextSource(
            corpus,
            model,
            micro_batch_size=micro_batch_size,
            micro_batches=micro_batches,
            seed=seed,
        )


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
    """Tokens of text that one sample consumes: BERT's leave room for [CLS] and [SEP]."""
    return model.sequence - 2 if model.family == "bert" else model.sequence


class TextSource:
    """Samples in a seeded order, the same for every method, partition and rank.

    Sample n of training is number n of a shuffled pass over the corpus (a new shuffle every
    pass); step t takes samples t·B̂ … (t+1)·B̂−1, micro-batch g the g-th B of these.
    """

    def __init__(
        self,
        corpus: Corpus,
        model: ModelConfig,
        *,
        micro_batch_size: int,
        micro_batches: int,
        seed: int,
    ) -> None:
        self._tokens = corpus.tokens
        self._size = micro_batch_size
        self._count = micro_batches
        self._seed = seed
        self._span = span(model)
        self._sequence = model.sequence
        self._causal = model.family == "gpt"
        self.samples = (len(corpus.tokens) - self._causal) // self._span
        """Samples of one pass over the corpus."""
        self._masking: Masking | None = None
        if not self._causal:
            special = corpus.manifest.special
            self._cls, self._sep = special["[CLS]"], special["[SEP]"]
            self._masking = Masking(
                mask=special["[MASK]"],
                ordinary=(len(special), corpus.manifest.vocabulary),
                seed=seed,
                samples=micro_batch_size * micro_batches,
                sequence=model.sequence,
            )
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def micro_batch(self, step: int, index: int) -> MicroBatch:
        """See :class:`bitpipe.data.source.TokenSource`."""
        if not 0 <= index < self._count:
            raise IndexError(f"micro-batch {index} of {self._count}")
        first = (step * self._count + index) * self._size
        rows = np.stack([self._row(first + i) for i in range(self._size)])
        if self._masking is None:
            tokens = torch.from_numpy(rows)
            return MicroBatch(
                tokens=tokens[:, :-1].contiguous(),
                labels=tokens[:, 1:].contiguous(),
                step=step,
                index=index,
                normaliser=self._size * self._count * self._sequence,
                samples=self._size * self._count,
            )
        at = slice(index * self._size, (index + 1) * self._size)
        tokens_, labels = self._masking.apply(rows, step, at)
        return MicroBatch(
            tokens=torch.from_numpy(tokens_),
            labels=torch.from_numpy(labels),
            step=step,
            index=index,
            normaliser=self._masking.count(step),
            samples=self._size * self._count,
        )

    def _row(self, sample: int) -> NDArray[np.int64]:
        epoch, position = divmod(sample, self.samples)
        start = int(self._order(epoch)[position]) * self._span
        if self._causal:
            return self._tokens[start : start + self._span + 1].astype(np.int64)
        row = np.empty(self._sequence, np.int64)
        row[0], row[-1] = self._cls, self._sep
        row[1:-1] = self._tokens[start : start + self._span]
        return row

    def _shuffled(self, epoch: int) -> NDArray[Any]:
        return np.random.Generator(np.random.PCG64(mix(self._seed, ORDER, epoch))).permutation(self.samples)
