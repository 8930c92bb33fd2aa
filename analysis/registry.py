"""Tables and figures by id: every module of :mod:`analysis.artefacts` registers its own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import analysis.artefacts
from analysis.drawing.output import Rendered
from analysis.load.results import Results
from bitpipe.errors import choose

Draw = Callable[[Results], Rendered]


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """One table or figure.

    Attributes:
        id: as on the command line, in ``conf/experiment`` and in file names.
        title: one line for lists and headings.
        draw: makes it from results; raises :class:`analysis.load.results.NoResults` where it needs
            records that are not there.
        rerun: the command that makes its records; empty where it needs none.
    """

    id: str
    title: str
    draw: Draw
    rerun: str


_registered: dict[str, Artefact] = {}


def artefact(id: str, *, title: str, needs_records: bool = True, rerun: str = "") -> Callable[[Draw], Draw]:
    """Register a function under the id of a table or figure.

    ``needs_records=False`` is for pictures that follow from the schedules alone, ``rerun`` for what is
    made by another command than an experiment.
    """

    def register(draw: Draw) -> Draw:
        if id in _registered:
            raise ValueError(f"two functions draw {id}")
        command = rerun or (f"python run.py +experiment={id} -m" if needs_records else "")
        _registered[id] = Artefact(id=id, title=title, draw=draw, rerun=command)
        return draw

    return register


@cache
def artefacts() -> Mapping[str, Artefact]:
    """All tables and figures, in the paper's order."""
    for module in pkgutil.iter_modules(analysis.artefacts.__path__):
        importlib.import_module(f"{analysis.artefacts.__name__}.{module.name}")
    known = {id: place for place, id in enumerate(ORDER)}
    return {id: _registered[id] for id in sorted(_registered, key=lambda id: (known.get(id, len(known)), id))}


def find(id: str) -> Artefact:
    """The artefact of that id.

    Raises:
        InputError: there is none; names the nearest.
    """
    return artefacts()[choose("artefact", id, artefacts())]


# The order of the paper, for lists and the report; an id that is not here comes last.
ORDER = (
    "fig1_partition",
    "fig2_bitpipe",
    "table2_mechanisms",
    "fig3_schedules",
    "table3_bubble_memory",
    "fig4_eager_sync",
    "fig5_mapping",
    "fig6_scaling_n",
    "fig7_scaling_v",
    "table4_models",
    "fig8_memory_pp",
    "fig9ab_throughput_pp",
    "table5_search",
    "fig9cd_throughput_dp",
    "fig10_memory_dp",
    "tradeoff_memory_throughput",
    "table6_ablation",
    "fig11_hyperparameters",
    "sensitivity",
)
