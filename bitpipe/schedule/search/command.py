"""``python -m bitpipe.schedule search``: its options, and what it says."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitpipe.errors import InputError
from bitpipe.schedule.costs import UNIT, Costs
from bitpipe.schedule.search.measured import read_costs
from bitpipe.schedule.search.searching import EFFORT, Found, search
from bitpipe.schedule.spec import ScheduleSpec

EXAMPLES = """\
examples:
  python -m bitpipe.schedule search bitpipe -D 8 -N 32 --transfer 0.1 --out searched.txt
  python -m bitpipe.schedule search bitpipe -D 4 -N 8 --exact 60
  python -m bitpipe.schedule search bitpipe -D 4 -N 8 --costs results/cells/ID/a1/timeline.json

The result fits into the memory of the method's own order, or into --cap. Train with it by
method.name=file:searched.txt (or any FILE that --out wrote as .txt).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that ``search`` has beyond those of ``show``."""
    parser.add_argument(
        "--costs", type=Path, metavar="FILE", help="timeline.json of a run, or JSON with forward, backward, …"
    )
    parser.add_argument("--transfer", type=float, metavar="T", help="per hop, in forwards of a stage")
    parser.add_argument("--backward", type=float, metavar="T", help="of a stage, in forwards of a stage")
    parser.add_argument(
        "--effort", type=int, default=EFFORT, metavar="ACTIONS", help="that each improvement may place"
    )
    parser.add_argument(
        "--exact", type=float, metavar="SECONDS", help="let OR-tools prove it best or say the gap"
    )
    parser.add_argument("--workers", type=int, default=2, metavar="THREADS", help="of the exact solver")


def run(spec: ScheduleSpec, arguments: argparse.Namespace) -> tuple[Found, Costs]:
    """Search as the command line says.

    Raises:
        InputError: an option has no meaning, or as :func:`bitpipe.schedule.search.search`.
    """
    costs = UNIT if arguments.costs is None else read_costs(arguments.costs, spec.depth)
    for key in ("transfer", "backward"):
        value = getattr(arguments, key)
        if value is not None:
            if not 0 <= value < float("inf"):
                raise InputError(key, value, "a time from 0, in units of a forward of 1/D of the model")
            costs = replace(costs, **{key: value})
    for key, least in (("effort", 0), ("workers", 1)):
        if getattr(arguments, key) < least:
            raise InputError(key, getattr(arguments, key), f"expected at least {least}")
    if arguments.exact is not None and not 0 < arguments.exact < float("inf"):
        raise InputError("exact", arguments.exact, "expected a time limit in seconds above 0")
    found = search(
        spec, costs, effort=arguments.effort, exact_seconds=arguments.exact, workers=arguments.workers
    )
    return found, costs


def outcome(found: Found) -> dict[str, Any]:
    """What a search found, for JSON."""
    return {
        "searched_makespan": found.makespan,
        "own_makespan": found.own_makespan,
        "searched_bound": found.bound,
        "remaining_gap": found.gap,
        "proved": found.proved,
        "rounded": found.rounded,
    }


def lines(found: Found) -> list[str]:
    """What a search found, for people; at the costs asked for."""
    gain = 100 * (found.own_makespan / found.makespan - 1)
    if found.proved or found.gap < 1e-9:
        verdict = "best possible" + (" (costs rounded to 1/1000)" if found.rounded else "")
    else:
        verdict = f"at most {found.gap:.6g} above the best possible"
    return [
        f"searched          {found.makespan:.6g} at these costs, {verdict}",
        f"own order         {found.own_makespan:.6g} at these costs: the search gains {gain:.3g} %",
    ]
