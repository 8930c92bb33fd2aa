"""Megatron-format data sets: checked here, drawn by megatron-core, mapped by every rank."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bitpipe.data import tokenizer as tokenizers
from bitpipe.data.corpus import known_sha256, sha256
from bitpipe.data.indexed import Index, read_index, read_tokens
from bitpipe.data.megatron_build import Task
from bitpipe.data.passes import check_index
from bitpipe.data.prepare import locked
from bitpipe.data.source import TokenSource
from bitpipe.errors import InputError
from bitpipe.models.config import ModelConfig
from bitpipe.models.micro_batch import IGNORE, MicroBatch

if TYPE_CHECKING:
    from torch import Tensor

MOST_TOKENS, MOST_SAMPLES = 5_000_000, 4096
"""What is drawn at most; training that needs more starts over. No figure of the paper does."""
_LONGEST_SENTENCE = 512
_META = "samples.json"


@dataclass(frozen=True, kw_only=True)
class MegatronDataset:
    """Samples that megatron-core drew, in ``folder``; see :class:`bitpipe.data.source.Dataset`.

    Their order and masks are those of Megatron-LM with its default seed; a job's seed decides
    weights and dropout only.
    """

    folder: Path

    @cached_property
    def _meta(self) -> dict[str, Any]:
        path = self.folder / _META
        try:
            meta = json.loads(path.read_text())
            kinds = [type(meta[key]) for key in ("name", "fingerprint", "family", "sequence", "largest")]
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(
                "data.path", path, f"not what was drawn ({error})", "remove its folder"
            ) from None
        if kinds != [str, str, str, int, int]:
            raise InputError("data.path", path, "not what was drawn", "remove its folder")
        return dict(meta)

    @property
    def name(self) -> str:
        return str(self._meta["name"])

    @property
    def fingerprint(self) -> str:
        return str(self._meta["fingerprint"])

    def source(
        self, model: ModelConfig, *, micro_batch_size: int, micro_batches: int, seed: int
    ) -> TokenSource:
        """Open it for one job.

        Raises:
            InputError: the samples were drawn for another sequence length or task, or hold
                tokens beyond the model's vocabulary.
        """
        drawn = tuple(self._meta[key] for key in ("family", "sequence", "next_sentence"))
        wanted = (model.family, model.sequence, model.next_sentence)
        if drawn != wanted:
            raise InputError("data.path", self.folder, f"samples of {drawn} where {wanted} are asked for")
        if self._meta["largest"] >= model.vocabulary:
            raise InputError(
                "model.vocabulary",
                model.vocabulary,
                f"the data hold token {self._meta['largest']}",
                f"at least model.vocabulary={self._meta['largest'] + 1}",
            )
        return MegatronSource(self.folder, micro_batch_size=micro_batch_size, micro_batches=micro_batches)


class MegatronSource:
    """Step t takes the samples t·B̂ … (t+1)·B̂−1 of those drawn, from the start again at the end."""

    def __init__(self, folder: Path, *, micro_batch_size: int, micro_batches: int) -> None:
        self._arrays = {path.stem: _array(path) for path in sorted(folder.glob("*.npy"))}
        if not {"tokens", "labels"} <= self._arrays.keys():
            raise InputError("data.path", folder, "samples are missing", "remove the folder")
        self._size = micro_batch_size
        self._count = micro_batches
        self._samples = micro_batch_size * micro_batches
        self._loss_tokens = (self._arrays["labels"] != IGNORE).sum(axis=1)

    def micro_batch(self, step: int, index: int) -> MicroBatch:
        """See :class:`bitpipe.data.source.TokenSource`."""
        import torch  # not before: a login node, which only asks for the data's name, may lack it

        check_index(index, self._count)
        drawn = len(self._loss_tokens)
        whole = np.arange(step * self._samples, (step + 1) * self._samples) % drawn
        rows = whole[index * self._size : (index + 1) * self._size]

        def part(name: str, kind: type = np.int64) -> Tensor | None:
            array = self._arrays.get(name)
            return None if array is None else torch.from_numpy(array[rows].astype(kind))

        tokens, labels = part("tokens"), part("labels")
        assert tokens is not None
        assert labels is not None
        return MicroBatch(
            tokens=tokens,
            labels=labels,
            step=step,
            index=index,
            normaliser=max(1, int(self._loss_tokens[whole].sum())),
            segments=part("segments"),
            keep=part("keep", np.bool_),
            follows=part("follows"),
            samples=self._samples,
        )


def _array(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise InputError("data.path", path, f"damaged ({error})", "remove its folder") from None


def is_prefix(path: Path) -> bool:
    """Whether ``path`` names a Megatron-format data set: its prefix, its .bin or its .idx."""
    prefix = prefix_of(path)
    return any(prefix.with_name(prefix.name + suffix).is_file() for suffix in (".bin", ".idx"))


def prefix_of(path: Path) -> Path:
    """``path`` without .bin or .idx."""
    return path.with_suffix("") if path.suffix in (".bin", ".idx") else path


def open_megatron(
    path: Path, model: ModelConfig, cache: Path, *, samples: int = MOST_SAMPLES
) -> MegatronDataset:
    """Check a Megatron-format data set and have megatron-core draw samples from it, once.

    The tokenizer is looked for beside the data: ``PREFIX.tokenizer.json``, ``tokenizer.json`` or
    ``vocab.txt``. BERT needs one (special tokens, word pieces), GPT does not.

    Raises:
        InputError: corrupt or truncated files, no tokenizer, tokens beyond the model's or the
            tokenizer's vocabulary, too little text, or megatron-core is not installed.
    """
    model.check_trainable()
    prefix = prefix_of(path).resolve()
    index = read_index(prefix)
    tokenizer = _find_tokenizer(prefix)
    entries = _check_vocabulary(prefix, index, tokenizer, model)
    _check_size(prefix, index, model)
    if importlib.util.find_spec("megatron") is None:
        raise InputError(
            "data.path",
            path,
            "Megatron-format data need megatron-core",
            "pip install 'bitpipe-bench[megatron]'",
        )
    samples = min(MOST_TOKENS // model.sequence, samples)
    pinned = _fingerprint(prefix, tokenizer, model, samples, cache)
    folder = cache / f"{prefix.name}-megatron-{pinned}"
    if not (folder / _META).is_file():
        with locked(folder):
            if not (folder / _META).is_file():
                partial = folder.with_name(folder.name + ".partial")
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                task = Task(
                    prefix=str(prefix),
                    out=str(partial),
                    family=model.family,
                    sequence=model.sequence,
                    samples=samples,
                    tokenizer=str(tokenizer) if tokenizer else None,
                    next_sentence=model.next_sentence,
                )
                _draw(task, prefix)
                largest = int(np.load(partial / "tokens.npy", mmap_mode="r").max())
                meta = {
                    "name": prefix.name,
                    "fingerprint": pinned,
                    "family": model.family,
                    "sequence": model.sequence,
                    "next_sentence": model.next_sentence,
                    "largest": max(largest, entries - 1),
                }
                (partial / _META).write_text(json.dumps(meta, indent=2) + "\n")
                partial.rename(folder)
    return MegatronDataset(folder=folder)


def _find_tokenizer(prefix: Path) -> Path | None:
    for name in (f"{prefix.name}.tokenizer.json", "tokenizer.json", "vocab.txt"):
        if (prefix.parent / name).is_file():
            return prefix.parent / name
    return None


def _check_vocabulary(prefix: Path, index: Index, tokenizer: Path | None, model: ModelConfig) -> int:
    """Entries of the tokenizer, 0 if there is none."""
    tokens = read_tokens(prefix, index)[:MOST_TOKENS]
    largest, smallest = (int(tokens.max()), int(tokens.min())) if len(tokens) else (0, 0)
    if smallest < 0:
        raise InputError("data.path", prefix, f"holds the negative token {smallest}: corrupt")
    vocabulary = tokenizers.vocabulary_of(tokenizer) if tokenizer else {}
    if tokenizer and largest >= len(vocabulary):
        raise InputError(
            "data.path", prefix, f"holds token {largest}; its tokenizer {tokenizer} has {len(vocabulary)}"
        )
    needed = max(largest + 1, len(vocabulary))
    if needed > model.vocabulary:
        raise InputError(
            "model.vocabulary",
            model.vocabulary,
            f"the data at {prefix} need {needed}",
            f"at least model.vocabulary={needed}",
        )
    if model.family == "bert":
        if tokenizer is None:
            raise InputError(
                "data.path", prefix, "BERT needs the data's tokenizer.json or vocab.txt beside the .bin"
            )
        for name in tokenizers.SPECIAL["wordpiece"]:
            if name not in vocabulary:
                raise InputError("data.tokenizer", tokenizer, f"lacks the special token {name}")
    return len(vocabulary)


def _check_size(prefix: Path, index: Index, model: ModelConfig) -> None:
    """Refuse what megatron-core would search for samples in vain, for ever."""
    if model.family == "gpt":
        if index.tokens <= model.sequence:
            raise InputError(
                "data.path", prefix, f"{index.tokens} tokens; one sample needs {model.sequence + 1}"
            )
        return
    least = 2 if model.next_sentence else 1
    # Megatron skips documents with a sentence of more than 512 tokens.
    too_long = np.concatenate([[0], np.cumsum(index.lengths > _LONGEST_SENTENCE)])
    bounds = index.documents
    usable = (np.diff(bounds) >= least) & (np.diff(too_long[bounds]) == 0)
    if not usable.any():
        raise InputError(
            "data.path",
            prefix,
            f"no document of at least {least} sentences, none longer than {_LONGEST_SENTENCE} tokens",
            "preprocess it with --split-sentences" if least == 2 else "",
        )


def _fingerprint(prefix: Path, tokenizer: Path | None, model: ModelConfig, samples: int, cache: Path) -> str:
    """Of index, tokens, tokenizer and what samples look like."""
    digest = hashlib.sha256()
    for suffix in (".idx", ".bin"):
        digest.update(known_sha256(prefix.with_name(prefix.name + suffix), cache).encode())
    digest.update(sha256(tokenizer).encode() if tokenizer else b"")
    digest.update(repr((model.family, model.sequence, model.next_sentence, samples)).encode())
    return digest.hexdigest()[:16]


def _draw(task: Task, prefix: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bitpipe.data.megatron_build", task.text()],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError("data.path", prefix, f"megatron-core cannot draw samples from it: {why}")
