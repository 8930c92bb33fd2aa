"""``torch.compile`` of a chunk: its layers' arithmetic, compiled once for all of them."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from bitpipe.models.layer import Layer, transform
from bitpipe.models.transformer import Chunk


def compile_layers(chunks: Iterable[Chunk], backend: str) -> None:
    """Let every layer of ``chunks`` compute through one compiled function.

    Dropout masks are drawn outside of it, by the same generators as without. Shapes are static:
    a run has one micro-batch size. Compilation happens at the first forward and backward.

    Args:
        backend: of ``torch.compile``, as ``inductor`` or ``eager``.
    """
    compiled = torch.compile(transform, backend=backend, fullgraph=True, dynamic=False)
    for chunk in chunks:
        for layer in chunk.layers:
            assert isinstance(layer, Layer)
            layer.compute = compiled
