"""What training asks of data: the same micro-batch for the same name, on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bitpipe.models.config import ModelConfig

if TYPE_CHECKING:
    from bitpipe.models.micro_batch import MicroBatch


class TokenSource(Protocol):
    """Micro-batches of one job. No state: any rank may ask for any of them in any order."""

    def micro_batch(self, step: int, index: int) -> MicroBatch:
        """Micro-batch ``index`` (global: w·N + j) of training step ``step``, both from 0.

        Its normaliser counts the loss tokens of the whole global mini-batch and is worked out
        on every rank alone, without communication.
        """
        ...


class Dataset(Protocol):
    """A validated description of data on disk: picklable, handed to every rank."""

    @property
    def name(self) -> str:
        """How people call it."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes when the samples change; part of a cell's identity."""
        ...

    def source(
        self, model: ModelConfig, *, micro_batch_size: int, micro_batches: int, seed: int
    ) -> TokenSource:
        """Open it for one job.

        Args:
            model: decides sequence length and task.
            micro_batch_size: B.
            micro_batches: N·W, those of one step over all replicas (empty ones not counted).
            seed: of sample order and masks.

        Raises:
            InputError: the data do not fit the model.
        """
        ...
