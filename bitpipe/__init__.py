"""BitPipe and the synchronous pipeline-parallel methods it is compared with.

A library: schedules and their checks (:mod:`bitpipe.schedule`), where ranks lie on a
cluster (:mod:`bitpipe.cluster`), models (:mod:`bitpipe.models`), and the two things that
execute a program: a simulator (:mod:`bitpipe.simulate`) and real ranks
(:mod:`bitpipe.runtime`).
"""

from bitpipe.errors import InputError
from bitpipe.origin import Origin

__all__ = ["InputError", "Origin", "__version__"]
__version__ = "0.1.0"
