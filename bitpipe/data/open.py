"""From what a user names to a data set that is ready: prepared if it has to be."""

from __future__ import annotations

import os
from pathlib import Path

from bitpipe.data.corpus import MANIFEST, verify
from bitpipe.data.documents import BUILTIN, BuiltinDocuments, Documents, FileDocuments
from bitpipe.data.prepare import fingerprint, prepare
from bitpipe.data.source import Dataset
from bitpipe.data.tokenizer import KINDS
from bitpipe.models.config import ModelConfig


def default_cache() -> Path:
    """Where prepared corpora are kept: ``$XDG_CACHE_HOME/bitpipe`` or ``~/.cache/bitpipe``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bitpipe"


def open_dataset(path: str | Path | None, model: ModelConfig, *, cache: Path | None = None) -> Dataset:
    """Make the data at ``path`` ready for ``model`` and check that they fit.

    Args:
        path: None or ``builtin`` for the corpus that every Python carries; a text, JSON-lines or
            Parquet file; a folder of such files; a folder written by
            ``python -m bitpipe.data prepare``; or the prefix of a Megatron-format data set.
        model: decides the tokenizer and what a sample is.
        cache: where corpora prepared on the way are kept (shared by all nodes of a job);
            :func:`default_cache` if not given.

    Raises:
        InputError: nothing there, unreadable, too little text, or a wrong tokenizer.
    """
    # These bring torch, which preparing does not need.
    from bitpipe.data.megatron import is_prefix, open_megatron
    from bitpipe.data.text import TextDataset

    cache = cache or default_cache()
    folder = Path(path) if path is not None and str(path) != BUILTIN else None
    if folder is not None and not folder.is_dir() and is_prefix(folder):
        drawn = open_megatron(folder, model, cache)
        drawn.source(model, micro_batch_size=1, micro_batches=1, seed=0)
        return drawn
    if folder is None or not (folder / MANIFEST).is_file():
        documents: Documents = BuiltinDocuments() if folder is None else FileDocuments(folder)
        kind, vocabulary = KINDS[model.family], model.vocabulary
        pinned = fingerprint(documents, kind=kind, vocabulary=vocabulary)
        folder = cache / f"{documents.name}-{kind}-{vocabulary}-{pinned}"
        prepare(documents, folder, kind=kind, vocabulary=vocabulary)
    verify(folder, deep=True, cache=cache)
    dataset = TextDataset(folder=folder)
    dataset.source(model, micro_batch_size=1, micro_batches=1, seed=0)
    return dataset
