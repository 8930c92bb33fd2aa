"""Masked LM: [CLS] text [SEP], or [CLS] sentence [SEP] sentence [SEP] with next-sentence loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitpipe.data.corpus import Corpus
from bitpipe.data.masking import Masking
from bitpipe.data.pairs import Pairs
from bitpipe.data.passes import Passes, check_index, span
from bitpipe.data.tokenizer import CLS, MASK, SEP
from bitpipe.models.config import ModelConfig
from bitpipe.models.micro_batch import MicroBatch


class MaskedSource:
    """Micro-batches for BERT, in the order of :class:`bitpipe.data.passes.Passes`."""

    def __init__(
        self, corpus: Corpus, model: ModelConfig, *, micro_batch_size: int, micro_batches: int, seed: int
    ) -> None:
        special = corpus.manifest.special
        self._cls, self._sep = special[CLS], special[SEP]
        self._tokens = corpus.tokens
        self._sequence = model.sequence
        self._span = span(model)
        self._size = micro_batch_size
        self._count = micro_batches
        self._samples = micro_batch_size * micro_batches
        self.passes = Passes(len(corpus.tokens) // self._span, seed)
        self._pairs: Pairs | None = None
        if model.next_sentence:
            self._pairs = Pairs(seed=seed, samples=self._samples, span=self._span, tokens=len(corpus.tokens))
        self._masking = Masking(
            mask=special[MASK],
            ordinary=(len(special), corpus.manifest.vocabulary),
            seed=seed,
            samples=self._samples,
            sequence=model.sequence,
            middles=self._pairs.middles if self._pairs is not None else None,
        )

    def micro_batch(self, step: int, index: int) -> MicroBatch:
        """See :class:`bitpipe.data.source.TokenSource`."""
        import torch  # not before: a login node, which only asks for the data's name, may lack it

        check_index(index, self._count)
        at = slice(index * self._size, (index + 1) * self._size)
        starts = [self.passes[step * self._samples + n] * self._span for n in range(at.start, at.stop)]
        rows = np.empty((self._size, self._sequence), np.int64)
        rows[:, 0], rows[:, -1] = self._cls, self._sep
        segments = follows = None
        if self._pairs is None:
            for row, start in zip(rows, starts, strict=True):
                row[1:-1] = self._tokens[start : start + self._span]
        else:
            segments = torch.from_numpy(self._fill_pairs(rows, starts, step, at))
            follows = torch.from_numpy(self._pairs.draw(step).elsewhere[at])
        tokens, labels = self._masking.apply(rows, step, at)
        return MicroBatch(
            tokens=torch.from_numpy(tokens),
            labels=torch.from_numpy(labels),
            step=step,
            index=index,
            normaliser=self._masking.count(step),
            segments=segments,
            follows=follows,
            samples=self._samples,
        )

    def _fill_pairs(
        self, rows: NDArray[np.int64], starts: list[int], step: int, at: slice
    ) -> NDArray[np.int64]:
        """Write both sentences into ``rows``; returns the segment of every position."""
        assert self._pairs is not None
        draw = self._pairs.draw(step)
        segments = np.zeros_like(rows)
        for i, (row, start) in enumerate(zip(rows, starts, strict=True)):
            n = at.start + i
            first = int(draw.first[n])
            second = int(draw.start[n]) if draw.elsewhere[n] else start + first
            row[1 : 1 + first] = self._tokens[start : start + first]
            row[1 + first] = self._sep
            row[2 + first : -1] = self._tokens[second : second + self._span - first]
            segments[i, 2 + first :] = 1
        return segments
