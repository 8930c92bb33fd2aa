"""Training samples cut from a prepared corpus: masked LM for BERT, causal LM for GPT."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from bitpipe.data.corpus import Corpus, read_manifest
from bitpipe.data.masked import MaskedSource
from bitpipe.data.passes import Passes, check_index, span
from bitpipe.data.source import TokenSource
from bitpipe.data.tokenizer import KINDS
from bitpipe.errors import InputError
from bitpipe.models.config import ModelConfig
from bitpipe.models.micro_batch import MicroBatch


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
    model.check_trainable()
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
        import torch  # not before: a login node, which only asks for the data's name, may lack it

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
