"""Seeds from names: every random draw is a function of what it is for, not of who draws it."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def mix(*parts: int) -> int:
    """Fold whole numbers into 32 well-mixed bits (splitmix64, Steele et al. 2014).

    Equal parts in equal order give equal seeds on every rank, machine and Python version.
    Torch's CPU generator reads no more than 32 bits of its seed.
    """
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = (state ^ (part & _MASK)) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state >> 32
