"""The registered methods. A new one is a file here and a line in ``METHODS``."""

from collections.abc import Mapping
from types import MappingProxyType

from bitpipe.schedule.methods.base import Method, Plan
from bitpipe.schedule.methods.bitpipe import BITPIPE
from bitpipe.schedule.methods.breadth_first import BREADTH_FIRST
from bitpipe.schedule.methods.chimera import CHIMERA
from bitpipe.schedule.methods.chimera_doubled import CHIMERA_DOUBLED
from bitpipe.schedule.methods.dapple import DAPPLE
from bitpipe.schedule.methods.dualpipe import DUALPIPE
from bitpipe.schedule.methods.dualpipe_v import DUALPIPE_V
from bitpipe.schedule.methods.gems import GEMS
from bitpipe.schedule.methods.gpipe import GPIPE
from bitpipe.schedule.methods.hanayo import HANAYO
from bitpipe.schedule.methods.interleaved import INTERLEAVED
from bitpipe.schedule.methods.mixpipe import MIXPIPE
from bitpipe.schedule.methods.v_half import V_HALF
from bitpipe.schedule.methods.v_min import V_MIN
from bitpipe.schedule.methods.zb_h1 import ZB_H1
from bitpipe.schedule.methods.zb_h2 import ZB_H2
from bitpipe.schedule.methods.zb_v import ZB_V

_ALL = (
    GPIPE,
    DAPPLE,
    INTERLEAVED,
    BREADTH_FIRST,
    CHIMERA,
    CHIMERA_DOUBLED,
    MIXPIPE,
    BITPIPE,
    GEMS,
    DUALPIPE,
    HANAYO,
    ZB_H1,
    ZB_H2,
    ZB_V,
    DUALPIPE_V,
    V_HALF,
    V_MIN,
)

METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _ALL})

__all__ = ["METHODS", "Method", "Plan"]
