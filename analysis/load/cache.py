"""Readings of files that have not changed, from two Parquet files.

Keyed by path, size and modification time. One pair of files for a whole folder, not one per
run: hundreds of runs then load in a fraction of a second. A cache that cannot be read or
written is as good as none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis.load.reading import Reading
from bitpipe.files import replacing

VERSION = 3  # of what readers make of a file; a change empties every cache
_KEY = ["path", "size", "mtime_ns"]


@dataclass(frozen=True)
class Cache:
    """Readings of the files below ``root``, kept in ``<root>/.cache/<name>-*.parquet``."""

    root: Path
    name: str

    def read(
        self, paths: Iterable[Path], reader: Callable[[Path], Reading]
    ) -> tuple[dict[str, Reading], pd.DataFrame]:
        """Read every file, from the cache where its size and time are unchanged.

        Returns:
            per path relative to the root its reading, in the order of ``paths``, without steps;
            and the steps of all in one frame, with a column ``path``.
        """
        keys = {}
        for path in paths:
            stat = path.stat()
            keys[str(path.relative_to(self.root))] = (stat.st_size, stat.st_mtime_ns)
        known, steps = self._load(keys)
        fresh = {name: reader(self.root / name) for name in keys if name not in known}
        readings = {name: known[name] if name in known else fresh[name] for name in keys}
        if fresh:
            more = [one.steps.assign(path=name) for name, one in fresh.items() if len(one.steps)]
            steps = pd.concat([steps[steps["path"].isin(list(known))], *more], ignore_index=True)
            self._save(keys, readings, steps)
        return readings, steps

    @property
    def _files(self) -> tuple[Path, Path]:
        stem = f"{self.name}-{VERSION}"
        folder = self.root / ".cache"
        return folder / f"{stem}-documents.parquet", folder / f"{stem}-steps.parquet"

    def _load(self, keys: dict[str, tuple[int, int]]) -> tuple[dict[str, Reading], pd.DataFrame]:
        try:
            documents, steps = (pd.read_parquet(path) for path in self._files)
            rows = list(documents.itertuples(index=False, name=None))
            known = {
                path: Reading(document=json.loads(document), problems=json.loads(problems))
                for path, size, mtime_ns, document, problems in rows
                if keys.get(path) == (size, mtime_ns)
            }
            if "path" in steps:
                return known, steps
        except Exception:  # absent, torn or foreign: whatever pyarrow makes of it, read afresh
            pass
        return {}, pd.DataFrame({"path": pd.Series(dtype="str")})

    def _save(
        self, keys: dict[str, tuple[int, int]], readings: dict[str, Reading], steps: pd.DataFrame
    ) -> None:
        rows = [
            (name, *keys[name], json.dumps(reading.document), json.dumps(reading.problems))
            for name, reading in readings.items()
        ]
        try:
            documents = pd.DataFrame(rows, columns=[*_KEY, "document", "problems"])
            for frame, path in zip((documents, steps), self._files, strict=True):
                with replacing(path) as half:
                    frame.to_parquet(half, index=False)
        except Exception:  # no space, or what Parquet has no type for: read afresh next time
            return
