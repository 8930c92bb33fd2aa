"""Backward of a chunk, whole or in two halves, straight on the autograd engine.

The halves (zero bubble, Qi et al. 2024): the input gradient walks down the chunk and notes, for
every operation that reads parameters, the gradient of its output; the weight gradient later
runs those operations alone. Each operation computes what it computes in a whole backward, in
two parts, so nothing is calculated twice and sums keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

_engine = torch.autograd.Variable._execution_engine


def backward(root: GradientEdge, gradient: Tensor) -> None:
    """Accumulate the gradients of every leaf below ``root`` and free the graph."""
    _engine.run_backward((root,), (gradient,), False, False, (), True, True)


@dataclass(frozen=True)
class _Reader:
    """An operation that reads parameters: its output edges and its parameters' accumulators."""

    outputs: tuple[GradientEdge, ...]
    parameters: tuple[GradientEdge, ...]


class DeferredWeights:
    """The weight half of one backward, ready to run once its input half has run."""

    __slots__ = ("_gradients", "_readers")

    def __init__(self, readers: Sequence[_Reader], gradients: Sequence[Sequence[Tensor | None]]) -> None:
        self._readers = readers
        self._gradients = gradients

    def run(self) -> None:
        """Accumulate the weight gradients and let go of the activations."""
        for reader, gradients in zip(self._readers, self._gradients, strict=True):
            known = [pair for pair in zip(reader.outputs, gradients, strict=True) if pair[1] is not None]
            if known:
                edges, values = zip(*known, strict=True)
                _engine.run_backward(edges, values, True, False, reader.parameters, True, True)
        self._readers = self._gradients = ()


def backward_input(root: GradientEdge, gradient: Tensor, leaf: Tensor | None) -> DeferredWeights:
    """Compute ``leaf.grad`` (if there is a leaf) and what the weight half needs.

    A gradient that reaches a reading operation unchanged may share ``gradient``'s memory, which
    the caller may reuse for the next message: it is copied.

    A parameter that two operations of the chunk read (embedding and head in one chunk) cannot
    be told apart by operation; such a chunk's weight gradients are computed here, at once.
    """
    readers = _readers(root, leaf)
    if readers is None:
        backward(root, gradient)
        return DeferredWeights((), ())
    edges = [edge for reader in readers for edge in reader.outputs]
    wanted = edges if leaf is None else [torch.autograd.graph.get_gradient_edge(leaf), *edges]
    found = _engine.run_backward((root,), (gradient,), True, False, tuple(wanted), True, False)
    memory = gradient.untyped_storage().data_ptr()
    values = iter(
        value.clone() if value is not None and value.untyped_storage().data_ptr() == memory else value
        for value in found
    )
    if leaf is not None:
        leaf.grad = next(values)
    return DeferredWeights(readers, [[next(values) for _ in reader.outputs] for reader in readers])


def _readers(root: GradientEdge, leaf: Tensor | None) -> list[_Reader] | None:
    """The operations below ``root`` that read parameters, or None if two read the same one."""
    own = None if leaf is None else torch.autograd.graph.get_gradient_edge(leaf).node
    leads: dict[Node, Node | None] = {}  # operation → the one parameter that all it does leads to
    arrivals: dict[Node, set[int]] = {root.node: {root.output_nr}}
    order = _bottom_up(root.node, arrivals)
    for node in order:
        below = [child for child, _ in node.next_functions if child is not None]
        if not below and node is not own and hasattr(node, "variable"):
            leads[node] = node
        else:
            leads[node] = leads[below[0]] if len(below) == 1 else None
    readers: list[_Reader] = []
    taken: set[Node] = set()
    for node in order:
        if leads[node] is not None:
            continue
        parameters = [leads[child] for child, _ in node.next_functions if child is not None]
        found = {parameter for parameter in parameters if parameter is not None}
        if found & taken:
            return None
        taken |= found
        if found:
            outputs = tuple(GradientEdge(node, number) for number in sorted(arrivals[node]))
            readers.append(_Reader(outputs, tuple(GradientEdge(parameter, 0) for parameter in found)))
    return readers


def _bottom_up(root: Node, arrivals: dict[Node, set[int]]) -> list[Node]:
    """All operations below ``root``, each after those that it leads to; fills ``arrivals``."""
    order: list[Node] = []
    done: set[Node] = set()
    stack: list[Any] = [(root, None)]
    while stack:
        node, children = stack[-1]
        if children is None:
            children = iter(node.next_functions)
            stack[-1] = (node, children)
            done.add(node)
        for child, number in children:
            if child is None:
                continue
            arrivals.setdefault(child, set()).add(number)
            if child not in done:
                stack.append((child, None))
                break
        else:
            order.append(node)
            stack.pop()
    return order
