"""Token sources: prepared corpora, the built-in corpus, Megatron-format datasets."""
