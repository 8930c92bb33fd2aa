"""Let megatron-core draw samples, and write them down: ``python -m bitpipe.data.megatron_build``.

A process of its own: importing megatron-core takes seconds and a process group, and no rank
should pay for either. Everything that can be wrong with the input was checked before.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bitpipe.data import tokenizer as tokenizers
from bitpipe.models.micro_batch import IGNORE

MEGATRON_SEED = 1234
"""Megatron-LM's default ``--seed``."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Which samples to draw.

    Attributes:
        prefix: of the .bin and .idx.
        out: folder for the arrays.
        family: ``bert`` or ``gpt``.
        sequence: s.
        samples: how many.
        tokenizer: ``tokenizer.json`` or ``vocab.txt``, or None (GPT needs none).
        next_sentence: draw sentence pairs.
    """

    prefix: str
    out: str
    family: str
    sequence: int
    samples: int
    tokenizer: str | None
    next_sentence: bool

    def text(self) -> str:
        return json.dumps(asdict(self))


class _Tokenizer:
    """What megatron-core asks of a tokenizer while it draws samples."""

    def __init__(self, path: str | None) -> None:
        self.unique_identifiers = {"class": "bitpipe", "path": path}
        vocabulary = tokenizers.vocabulary_of(Path(path)) if path else {}
        self.inv_vocab = {number: text for text, number in vocabulary.items()}
        self.vocab_size = len(vocabulary) or None
        self.eod = vocabulary.get(tokenizers.END, -1)
        self.cls, self.sep, self.mask, self.pad = (
            vocabulary.get(name, -1)
            for name in (tokenizers.CLS, tokenizers.SEP, tokenizers.MASK, tokenizers.PAD)
        )


def build(task: Task) -> Any:
    """The data set that Megatron-LM's own pretraining scripts would build, with their defaults."""
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder

    common: dict[str, Any] = {
        "random_seed": MEGATRON_SEED,
        "sequence_length": task.sequence,
        "blend": ([task.prefix], None),
        "split": "1,0,0",
        "path_to_cache": str(Path(task.out) / "megatron"),
        "tokenizer": _Tokenizer(task.tokenizer),
    }
    if task.family == "gpt":
        from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

        kind = GPTDataset
        config = GPTDatasetConfig(
            **common,
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            create_attention_mask=False,
        )
    else:
        from megatron.core.datasets.bert_dataset import (
            BERTMaskedWordPieceDataset,
            BERTMaskedWordPieceDatasetConfig,
        )

        kind = BERTMaskedWordPieceDataset
        config = BERTMaskedWordPieceDatasetConfig(
            **common,
            masking_probability=0.15,
            short_sequence_probability=0.1,
            masking_max_ngram=3,
            masking_do_full_word=True,
            masking_do_permutation=False,
            masking_use_longer_ngrams=False,
            masking_use_geometric_distribution=False,
            classification_head=task.next_sentence,
        )
    return BlendedMegatronDatasetBuilder(kind, [task.samples, 0, 0], lambda: True, config).build()[0]


def arrays(task: Task, dataset: Any) -> dict[str, Any]:
    """The first samples of ``dataset`` as arrays (samples, …), named as in a micro-batch."""
    count = min(task.samples, len(dataset))
    rows = [dataset[number] for number in range(count)]

    def column(name: str) -> Any:
        return np.stack([np.asarray(row[name]) for row in rows]).astype(np.int64)

    labels = np.where(column("loss_mask") > 0, column("labels"), IGNORE).astype(np.int32)
    if task.family == "gpt":
        return {"tokens": column("tokens").astype(np.int32), "labels": labels}
    found = {
        "tokens": column("text").astype(np.int32),
        "labels": labels,
        "segments": column("types").astype(np.int8),
        "keep": column("padding_mask") == 1,
    }
    if task.next_sentence:
        found["follows"] = np.array([row["is_random"] for row in rows], np.int8)
    return found


def main(text: str) -> None:
    """Draw and write one .npy per array."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    task = Task(**json.loads(text))
    import torch.distributed as dist

    cache = Path(task.out) / "megatron"
    cache.mkdir()
    meeting = (cache / "meeting").resolve().as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    for name, array in arrays(task, build(task)).items():
        np.save(Path(task.out) / f"{name}.npy", array)
    dist.destroy_process_group()
    shutil.rmtree(cache)


if __name__ == "__main__":
    main(sys.argv[1])
