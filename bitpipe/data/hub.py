"""Parquet data sets of the Hugging Face hub, downloaded file by file as they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from bitpipe.data.documents import read_file
from bitpipe.errors import InputError

PREFIX = "hub:"


class Hub(Protocol):
    """What is asked of the hub."""

    def resolve(self, repository: str, revision: str) -> tuple[str, list[str]]:
        """The commit behind a revision, and its files."""
        ...

    def fetch(self, repository: str, commit: str, file: str) -> Path:
        """A local copy of a file, cached, resumed if interrupted."""
        ...


class HuggingFaceHub:
    """The hub through its own client, whose cache and environment variables apply."""

    def resolve(self, repository: str, revision: str) -> tuple[str, list[str]]:
        from huggingface_hub import HfApi

        found = HfApi().dataset_info(repository, revision=revision)
        return str(found.sha), [sibling.rfilename for sibling in found.siblings or ()]

    def fetch(self, repository: str, commit: str, file: str) -> Path:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(repository, file, repo_type="dataset", revision=commit))


class HubDocuments:
    """``hub:OWNER/NAME[/FOLDER][@REVISION]``: every Parquet file under FOLDER, in order.

    Only the files that are read are downloaded: with ``--max-tokens`` the first one or two.
    """

    def __init__(self, source: str, field: str = "text", hub: Hub | None = None) -> None:
        path, _, revision = source.removeprefix(PREFIX).partition("@")
        parts = path.strip("/").split("/")
        if len(parts) < 2 or not all(parts):
            raise InputError("source", source, "expected hub:OWNER/NAME, hub:OWNER/NAME/FOLDER, …@REVISION")
        self.field = field
        self.name = parts[1]
        self.repository = "/".join(parts[:2])
        self._hub = hub or HuggingFaceHub()
        folder = "/".join(parts[2:])
        try:
            self.commit, files = self._hub.resolve(self.repository, revision or "main")
        except Exception as error:  # whatever the client's transport raises
            raise InputError("source", source, f"the hub does not give it ({_first_line(error)})") from None
        below = f"{folder}/" if folder else ""
        self.files = sorted(file for file in files if file.startswith(below) and file.endswith(".parquet"))
        if not self.files:
            folders = sorted({file.rpartition("/")[0] for file in files if file.endswith(".parquet")})
            raise InputError("source", source, f"no Parquet files there; folders with some: {folders[:20]}")

    def fingerprint(self) -> str:
        text = "\n".join(["reader 2", self.repository, self.commit, self.field, *self.files])
        return hashlib.sha256(text.encode()).hexdigest()

    def __iter__(self) -> Iterator[str]:
        for file in self.files:
            try:
                local = self._hub.fetch(self.repository, self.commit, file)
            except Exception as error:
                raise InputError("source", f"{PREFIX}{self.repository}/{file}", _first_line(error)) from None
            yield from read_file(local, self.field)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
