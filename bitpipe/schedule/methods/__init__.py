"""The registered methods. A new one is a file here and a line in ``METHODS``."""

from collections.abc import Mapping
from types import MappingProxyType

from bitpipe.schedule.methods.base import Method, Plan
from bitpipe.schedule.methods.bitpipe import BITPIPE
from bitpipe.schedule.methods.chimera import CHIMERA
from bitpipe.schedule.methods.chimera_doubled import CHIMERA_DOUBLED
from bitpipe.schedule.methods.dapple import DAPPLE
from bitpipe.schedule.methods.gpipe import GPIPE
from bitpipe.schedule.methods.interleaved import INTERLEAVED
from bitpipe.schedule.methods.mixpipe import MIXPIPE
from bitpipe.schedule.methods.zb_h1 import ZB_H1

_ALL = (GPIPE, DAPPLE, INTERLEAVED, CHIMERA, CHIMERA_DOUBLED, MIXPIPE, BITPIPE, ZB_H1)

METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _ALL})

__all__ = ["METHODS", "Method", "Plan"]
