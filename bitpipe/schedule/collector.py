"""Pausing the garbage collector while a pass builds many small tuples."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """No collection inside. A large program is a million tuples without a cycle among them, and

    the collector would scan them over and over: it doubles the time of lowering.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
