"""Writing a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside ``path`` to write, which replaces it at the end; makes the folder.

    Whoever reads ``path`` sees the old file or the new one. If writing fails, the old one stays and
    nothing half-written is left.

    Raises:
        OSError: the file system refuses.
    """
    half = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield half
        half.replace(path)
    finally:
        with contextlib.suppress(OSError):
            half.unlink()
