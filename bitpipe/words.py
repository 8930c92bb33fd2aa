"""Words in messages."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 cell``, ``2 cells``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def part(some: int, every: int, noun: str) -> str:
    """``1 of 1 cell is``, ``1 of 3 cells are``."""
    return f"{some} of {counted(every, noun)} {'is' if every == 1 else 'are'}"
