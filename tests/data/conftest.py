"""A prepared built-in corpus per family, shared by the tests of this room."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bitpipe.data.documents import FileDocuments
from bitpipe.data.prepare import prepare
from bitpipe.models import ModelConfig


def small(family: str, **changes: int | str | bool) -> ModelConfig:
    values = {
        "name": "test",
        "family": family,
        "layers": 2,
        "heads": 2,
        "hidden": 16,
        "sequence": 32,
        "vocabulary": 512,
    }
    return ModelConfig(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


WORDS = ["the", "a", "layer", "rank", "stage", "moves", "waits", "sends", "reads", "writes", "and", "two"]


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small corpus of made-up sentences, prepared by us for each family."""
    folder = tmp_path_factory.mktemp("megatron")
    choice = np.random.default_rng(0).choice
    with (folder / "text.jsonl").open("w") as stream:
        for _ in range(60):
            sentences = [" ".join(choice(WORDS, 8)) + "." for _ in range(7)]
            stream.write(json.dumps({"text": " ".join(sentences)}) + "\n")
    documents = FileDocuments(folder / "text.jsonl")
    prepare(documents, folder / "gpt", kind="bpe", vocabulary=300)
    prepare(documents, folder / "bert", kind="wordpiece", vocabulary=256)
    return {"gpt": folder / "gpt", "bert": folder / "bert"}
