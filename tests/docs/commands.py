"""Whether a command line names things that exist, without running it."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from bitpipe.errors import InputError
from experiments.composing.choice import Machine
from experiments.composing.command_line import _keys as config_keys
from experiments.composing.command_line import prepare

ROOT = Path(__file__).resolve().parents[2]
_TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)
_PLACEHOLDER = re.compile(r"[A-Z]{2,}")  # NAME, DIR: the reader's own
_RUN_FLAGS = {"-m", "--multirun", "--help", "-h", "--cfg", "job", "--hydra-help"}


def problem(line: str) -> str:
    """What is wrong with a command line; empty if nothing is, or if it is none of ours."""
    words = shlex.split(re.sub(r"\[(-{0,2}\w+)\]", r"\1", line), comments=True)  # [-f]: may be left out
    while words and re.fullmatch(r"\w+=\S*", words[0]):
        words.pop(0)
    if words[:1] == ["make"]:
        return _make(words[1:])
    if words[:2] == ["python", "run.py"]:
        return _run(words[2:])
    if words[:2] == ["python", "-m"] and words[2] in _PARSERS:
        return _parse(words[2], words[3:])
    if words[:1] == ["python"] and words[1].endswith(".py") and not (ROOT / words[1]).exists():
        return "no such script"
    return ""


def _make(words: Sequence[str]) -> str:
    known = set(_TARGET.findall((ROOT / "Makefile").read_text()))
    unknown = [word for word in words if "=" not in word and word not in known]
    return f"no such target: {unknown}" if unknown else ""


def _run(words: Sequence[str]) -> str:
    try:
        prepare(words, ROOT / "conf", Machine(gpus=0, sbatch=True))
    except InputError as error:
        # A worked example may choose what it has just written; it is run, and fails there.
        return "" if error.key in ("model", "cluster", "method", "experiment") else str(error)
    keys = {word.partition("=")[0].lstrip("+~") for word in words if "=" in word}
    first = {key.partition(".")[0].partition("/")[0] for key in config_keys()} | {"hydra"}
    unknown = sorted(key for key in keys if key.partition(".")[0].partition("/")[0] not in first)
    flags = [word for word in words if "=" not in word and word not in _RUN_FLAGS]
    return " ".join(
        [*(f"no such key: {key}" for key in unknown), *(f"no such flag: {flag}" for flag in flags)]
    )


def _parse(module: str, words: Sequence[str]) -> str:
    """Let the module's own parser read the words; it exits where it does not understand."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            _PARSERS[module]()(list(words))
    except InputError as error:
        return str(error)
    except SystemExit as end:
        return said.getvalue() if end.code else ""
    return ""


@cache
def _analysis() -> Callable[[list[str]], object]:
    from analysis.__main__ import COMMANDS, _parser
    from analysis.registry import artefacts

    def parse(words: list[str]) -> object:
        arguments = _parser().parse_args(words)
        known = {*COMMANDS, *artefacts()}
        if arguments.what not in {*known, "fig_depth"} and not _PLACEHOLDER.fullmatch(arguments.what):
            # (fig_depth is what docs/extend.md adds, and runs)
            raise InputError("what", arguments.what, "no such table, figure or command")
        return arguments

    return parse


def _slurm() -> Callable[[list[str]], object]:
    from slurm.commands import _parser

    return _parser().parse_args


def _schedule() -> Callable[[list[str]], object]:
    from bitpipe.schedule.__main__ import _parser

    return _parser().parse_args


def _data() -> Callable[[list[str]], object]:
    from bitpipe.data.__main__ import _parser

    return _parser().parse_args


_PARSERS: dict[str, Callable[[], Callable[[list[str]], object]]] = {
    "analysis": _analysis,
    "slurm": _slurm,
    "bitpipe.schedule": _schedule,
    "bitpipe.data": _data,
}
