"""What a model is, as numbers; the modules are in :mod:`bitpipe.models.transformer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from bitpipe.errors import InputError, choose

FAMILIES = ("bert", "gpt")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A transformer of the BERT (masked LM) or GPT (causal LM) family.

    Attributes:
        name: the name of its configuration.
        family: ``bert`` or ``gpt``.
        layers, heads, hidden, sequence: as in Table 4.
        vocabulary: rows of the embedding, padding included.
        dropout: probability after embedding, attention and MLP.
        tied_embeddings: whether the LM head's matrix is the token embedding.
        next_sentence: BERT's second loss (off unless asked).
    """

    name: str
    family: str
    layers: int
    heads: int
    hidden: int
    sequence: int
    vocabulary: int
    dropout: float = 0.1
    tied_embeddings: bool = True
    next_sentence: bool = False

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> ModelConfig:
        """Build a model from what a YAML file holds.

        Raises:
            InputError: a key is unknown or missing, or a value out of range.
        """
        for key in data:
            choose("model", str(key), (f.name for f in fields(cls)))
        for needed in fields(cls):
            if needed.default is MISSING and data.get(needed.name) is None:
                raise InputError(f"model.{needed.name}", "missing", "every model file must give it")
        return cls(**data)

    @property
    def shortest(self) -> int:
        """The shortest sequence that can be trained on: with a token to predict beside the special ones.

        BERT's samples are [CLS] text [SEP], or two texts of a token at least, each with its [SEP].
        """
        return 1 if self.family == "gpt" else 5 if self.next_sentence else 3

    def check_trainable(self) -> None:
        """Refuse a sequence in which there is nothing to predict.

        Raises:
            InputError: it is shorter than :attr:`shortest`.
        """
        if self.sequence < self.shortest:
            pair = " with next_sentence" if self.next_sentence else ""
            raise InputError(
                "model.sequence",
                self.sequence,
                f"{self.family}{pair} needs {self.shortest} tokens, one of them to predict",
                f"at least model.sequence={self.shortest}",
            )

    def __post_init__(self) -> None:
        choose("model.family", self.family, FAMILIES)
        for key in ("layers", "heads", "hidden", "sequence", "vocabulary"):
            value = getattr(self, key)
            if not isinstance(value, int) or value < 1:
                raise InputError(f"model.{key}", value, "a whole number from 1")
        if self.hidden % self.heads:
            raise InputError("model.heads", self.heads, f"must divide model.hidden={self.hidden}")
        if not 0 <= self.dropout < 1:
            raise InputError("model.dropout", self.dropout, "from 0 to below 1")


def partition(layers: int, stages: int) -> tuple[int, ...]:
    """How many transformer layers each stage holds; earlier stages take the remainder.

    Raises:
        InputError: a stage would hold no layer.
    """
    if stages > layers:
        raise InputError(
            "model.layers", layers, f"{stages} stages (depth × chunks) need at least {stages} layers"
        )
    each, more = divmod(layers, stages)
    return tuple(each + (stage < more) for stage in range(stages))
