"""Token sources: prepared corpora, the built-in corpus, Megatron-format datasets."""

from bitpipe.data.open import default_cache, open_dataset
from bitpipe.data.source import Dataset, TokenSource

__all__ = ["Dataset", "TokenSource", "default_cache", "open_dataset"]
