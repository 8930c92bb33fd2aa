"""Models: configuration, arithmetic, and (imported on demand) the torch modules."""

from bitpipe.models.config import FAMILIES, ModelConfig, partition

__all__ = ["FAMILIES", "ModelConfig", "partition"]
