"""Further options of sbatch in a site file: which there are, and what kind of value each takes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from bitpipe.errors import InputError
from slurm.site_text import text

FLAGS = frozenset({
    "contiguous", "hold", "ignore-pbs", "no-requeue", "overcommit", "oversubscribe", "reboot", "requeue",
    "spread-job", "use-min-nodes", "verbose",
})  # fmt: skip
"""Options without a value."""

OPTIONAL = frozenset({"nice", "no-kill", "propagate", "get-user-env", "x11", "exclusive"})
"""Options that may stand without a value."""

OURS = frozenset({
    "array", "chdir", "clusters", "dependency", "error", "help", "input", "job-name", "nodes", "ntasks",
    "ntasks-per-node", "open-mode", "output", "parsable", "quiet", "test-only", "uid", "usage", "version",
    "wait", "wrap",
})  # fmt: skip
"""What the sweep decides, cell by cell."""

OWN_KEY = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "constraint": "constraint",
    "cpus-per-task": "cpus_per_task",
    "mem-per-cpu": "mem_per_cpu",
}
"""Options that have a key of their own in the site file."""

_YES = ("true", "yes", "on")
_NO = ("false", "no", "off")


def converted(pairs: Iterable[tuple[str, Any]]) -> dict[str, str | bool | None]:
    """Options as submitit takes them: text, True for one without a value, None to leave one out.

    Args:
        pairs: name and text, list of texts, or None.

    Raises:
        InputError: no name of an option, one that the sweep decides, or a value of the wrong kind.
    """
    found: dict[str, str | bool | None] = {}
    for name, value in pairs:
        option = name.replace("_", "-")
        key = f"site.sbatch.{name}" if name.isprintable() else "site.sbatch"
        if not re.fullmatch(r"[a-z][a-z0-9]+(-[a-z0-9]+)*", option):
            raise InputError(
                "site.sbatch", repr(name)[:80], "expected the long name of an option, as reservation"
            )
        if option in OURS:
            raise InputError(
                key, _shown(value), "the sweep decides that itself, or could not follow it", "leave it out"
            )
        if option in found:
            raise InputError(key, _shown(value), "given twice")
        found.update(_option(key, option, value))
    return found


def _option(key: str, option: str, value: Any) -> dict[str, str | bool | None]:
    if value is None:
        return {option: None}
    if isinstance(value, str | bool | int | float):
        one = text(key, value)
    elif isinstance(value, list | tuple):
        one = ",".join(text(key, entry) for entry in value)
    else:
        raise InputError(key, _shown(value), "expected one value or a list")
    if option in FLAGS:
        stands = truth(key, one)
        if option in ("requeue", "no-requeue"):  # one decision: jobs are requeued unless told otherwise
            again = stands if option == "requeue" else not stands
            return {"requeue": True if again else None, "no-requeue": None if again else True}
        return {option: True if stands else None}
    if option in OPTIONAL and one.lower() in _YES + _NO:
        return {option: True if one.lower() in _YES else None}
    if option == "time" and minutes(one) is None:
        raise InputError(key, one[:80], "a time limit as minutes, hours:minutes:seconds or days-hours")
    if not one:
        raise InputError(key, "''", "expected a value")
    return {option: one}


def truth(key: str, one: str) -> bool:
    """A yes or no, in any of YAML's words for it.

    Raises:
        InputError: it is none.
    """
    if one.lower() in _YES + _NO:
        return one.lower() in _YES
    near = difflib.get_close_matches(one.lower(), _YES + _NO, n=1)
    raise InputError(key, one[:80], "true or false", f"did you mean {near[0]}?" if near else "")


def minutes(limit: str) -> int | None:
    """Slurm's notation of a time limit in whole minutes, rounded up; None for anything else.

    ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``, ``days-hours[:minutes[:seconds]]``, up to
    a year.
    """
    found = re.fullmatch(
        r"(?:([0-9]{1,3})-)?([0-9]{1,6})(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?", limit, re.ASCII
    )
    if not found:
        return None
    days, first, second, third = (int(part) if part else 0 for part in found.groups())
    if found[1]:
        seconds = ((days * 24 + first) * 60 + second) * 60 + third
    elif found[4]:
        seconds = (first * 60 + second) * 60 + third
    else:
        seconds = first * 60 + second
    whole = -(-seconds // 60)
    return whole if 0 < whole <= 525600 else None


def _shown(value: Any) -> str:
    one = str(value)
    return one if one.isprintable() and len(one) <= 80 else repr(one)[:80]
