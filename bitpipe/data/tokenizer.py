"""Tokenizers, trained on the corpus they cut: WordPiece for BERT, byte-level BPE for GPT."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bitpipe.errors import InputError, choose

if TYPE_CHECKING:
    from tokenizers import Tokenizer

KINDS = {"bert": "wordpiece", "gpt": "bpe"}
PAD, UNKNOWN, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
END = "<|endoftext|>"
SPECIAL = {"wordpiece": (PAD, UNKNOWN, CLS, SEP, MASK), "bpe": (END,)}
_SMALLEST = {"wordpiece": 256, "bpe": 257}


def train(kind: str, texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Train a tokenizer of at most ``vocabulary`` entries, special tokens (first) included.

    Raises:
        InputError: unknown kind, or a vocabulary too small for it.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    choose("tokenizer", kind, SPECIAL)
    if vocabulary < _SMALLEST[kind]:
        raise InputError("model.vocabulary", vocabulary, f"{kind} needs at least {_SMALLEST[kind]} entries")
    special = list(SPECIAL[kind])
    if kind == "wordpiece":
        return _word_piece(texts, vocabulary, special)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return tokenizer


def _word_piece(texts: Iterable[str], vocabulary: int, special: list[str]) -> Tokenizer:
    """Lower-casing WordPiece, equal for equal text.

    Left alone, the trainer numbers the inner forms (``##x``) of single characters by the order
    of a hash table and breaks ties between merges by these numbers, so that every training ends
    differently. Here it gets them as special tokens, in a fixed order, and what it learns
    goes into a tokenizer without them being special.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    normalizer = normalizers.BertNormalizer(lowercase=True)

    def fresh(model: models.WordPiece) -> Tokenizer:
        tokenizer = Tokenizer(model)
        tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        return tokenizer

    kept = list(texts)
    counts: Counter[str] = Counter()
    for text in kept:
        counts.update(normalizer.normalize_str(text))
    common = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    alphabet = sorted(common[: vocabulary // 4])
    learner = fresh(models.WordPiece(unk_token=UNKNOWN))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        special_tokens=special + [f"##{character}" for character in alphabet],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    learner.train_from_iterator(kept, trainer)
    tokenizer = fresh(models.WordPiece(learner.get_vocab(), unk_token=UNKNOWN))
    tokenizer.add_special_tokens(special)
    return tokenizer


def load(path: Path) -> Tokenizer:
    """Read a ``tokenizer.json``. What looks like a special token in a text is cut like any other text.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    from tokenizers import Tokenizer

    if not path.is_file():
        raise InputError("data.tokenizer", path, "no such file")
    try:
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.encode_special_tokens = True
        return tokenizer
    except Exception as error:  # the library raises bare Exception
        raise InputError("data.tokenizer", path, f"not a tokenizer file ({error})") from None


def vocabulary_of(path: Path) -> dict[str, int]:
    """Entries and ids of a ``tokenizer.json`` or of a ``vocab.txt`` (one entry a line, as it stands), by id.

    Raises:
        InputError: it cannot be read, or an entry has two ids.
    """
    if path.suffix != ".txt":
        return dict(sorted(load(path).get_vocab().items(), key=lambda entry: entry[1]))
    try:
        with path.open(encoding="utf-8-sig") as file:  # whose lines end at line feeds and nowhere else
            entries = [line.rstrip("\n") for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("data.tokenizer", path, f"not a vocabulary file ({error})") from None
    while entries and not entries[-1]:
        entries.pop()
    found: dict[str, int] = {}
    for number, entry in enumerate(entries):
        if found.setdefault(entry, number) != number:
            where = f"lines {found[entry] + 1} and {number + 1}"
            raise InputError("data.tokenizer", path, f"entry {entry!r} stands twice, in {where}")
    return found
