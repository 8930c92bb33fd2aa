"""Drawings of timelines, placements and rank layouts; matplotlib is imported on demand.

:mod:`~bitpipe.draw.text`, :mod:`~bitpipe.draw.html` and :mod:`~bitpipe.draw.trace` need no
library. :mod:`~bitpipe.draw.timelines`, :mod:`~bitpipe.draw.places` and
:mod:`~bitpipe.draw.sheet` import matplotlib.
"""

from bitpipe.draw.output import SUFFIXES, check_suffix, write
from bitpipe.draw.panel import Panel

__all__ = ["SUFFIXES", "Panel", "check_suffix", "write"]
