"""A command line before Hydra sees it, and Hydra's errors as one line each."""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from bitpipe.errors import InputError, choose
from experiments.composing.choice import Machine, choose_backend, pinned_backend, value_of

_NO_NAME = re.compile(r"null|true|false|[-+.\d]+|\{.*\}|\[.*\]", re.IGNORECASE)  # of a group's file
_ANSWERS = ("cfg", "info")  # flags with which Hydra shows a configuration instead of running it
GONE = {
    "backend.options.steady": "gone, leave it out: virtual operations now count what they cost on average "
    "over all cells of the block"
}
"""Keys that once were, and what became of them."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """What goes to Hydra, and the sentence to print first; to stderr where stdout is a configuration."""

    arguments: tuple[str, ...]
    sentence: str
    answers: bool = False


def prepare(arguments: Sequence[str], conf: Path, machine: Machine | None = None) -> Ready:
    """Refuse what Hydra would get wrong in silence, choose backend and launcher.

    With ``--cfg`` or ``--info`` the choices are those of the run that they ask about, ``-m`` included.

    Raises:
        InputError: a key that is gone, flags that Hydra does not know, two experiments at once,
            a launcher without ``-m``.
    """
    flags, overrides, options = _split(arguments)
    # "experiment=x" is what people type first; Hydra insists on the plus.
    overrides = [re.sub(r"^experiment=", "+experiment=", override) for override in overrides]
    _gone(overrides)
    if options.hydra_help or options.shell_completion:  # these answer about Hydra itself
        return Ready(arguments=(*overrides, *flags), sentence="")
    for group in (path.name for path in conf.iterdir() if path.is_dir()):
        if _NO_NAME.fullmatch(value_of(overrides, group) or ""):
            choose(group, value_of(overrides, group) or "", (p.stem for p in (conf / group).glob("*.yaml")))
    multirun = options.multirun or (value_of(overrides, "hydra.mode") or "").upper() == "MULTIRUN"
    experiment = value_of(overrides, "experiment")
    if experiment and "," in experiment:
        _one_at_a_time(experiment, overrides)
    pinned = _pinned(experiment, _folders(options.config_dir, overrides, conf)) if experiment else None
    choice = choose_backend(overrides, machine or Machine.here(), multirun=multirun, pinned=pinned)
    answers = any(getattr(options, name) for name in _ANSWERS)
    if answers:  # Hydra takes one of these flags and -m, not both
        flags = [flag for flag in flags if flag not in ("-m", "--multirun")]
    return Ready(arguments=(*overrides, *choice.overrides, *flags), sentence=choice.sentence, answers=answers)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str], argparse.Namespace]:
    """Flags with their values, overrides, and what Hydra's own parser makes of the flags."""
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise InputError("arguments", " ".join(arguments), message, "python run.py --help")

    parser.error = refuse  # type: ignore[method-assign]
    options = parser.parse_intermixed_args(list(arguments))
    flags, overrides = [], list(options.overrides)
    left = list(overrides)
    for argument in arguments:
        if argument in left:
            left.remove(argument)
        elif argument != "--":
            flags.append(argument)
    return flags, overrides, options


def _folders(config_dir: str | None, overrides: Sequence[str], conf: Path) -> list[Path]:
    """Where Hydra looks for a group's files, in its order."""
    added = re.findall(r"[^\[\],\s'\"]+", value_of(overrides, "hydra.searchpath") or "")
    places = [Path(place.removeprefix("file://")) for place in added if not place.startswith("pkg://")]
    return [*([Path(config_dir)] if config_dir else []), conf, *places]


def _pinned(experiment: str, folders: Sequence[Path]) -> str | None:
    """The backend that the experiment's file pins, wherever it lies."""
    files = (folder / "experiment" / f"{experiment}.yaml" for folder in folders)
    return next((pinned_backend(file) for file in files if file.is_file()), None)


def _gone(overrides: Sequence[str]) -> None:
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key in GONE:
            raise InputError(key, value, GONE[key])


def _one_at_a_time(experiment: str, overrides: Sequence[str]) -> None:
    rest = " ".join(o for o in overrides if not o.startswith("+experiment="))
    commands = [f"python run.py +experiment={name} {rest}".strip() + " -m" for name in experiment.split(",")]
    raise InputError("+experiment", experiment, "one experiment at a time", f"type: {'; '.join(commands)}")


def one_line(error: Exception, conf: Path) -> str | None:
    """What to print for an error that the user can mend; None for a defect of ours.

    One line, but for a schedule of one's own that is wrong: below it stands the place.
    """
    import yaml

    from bitpipe.schedule.errors import ProgramError
    from experiments.running.outcome import SweepFailed

    if isinstance(error, (InputError, SweepFailed, ProgramError)):
        return str(error)
    if isinstance(error, yaml.YAMLError):  # names file, line and column, in several lines
        return " ".join(str(error).split())
    if isinstance(error, UnicodeDecodeError) and (file := _not_utf8(conf)):
        return f"{file}: not UTF-8 ({error.reason})"
    if not _theirs(error):
        return None
    first, _, rest = str(error).partition("\n")
    reason = str(error.__cause__ or rest).partition("\n")[0]
    if override := getattr(error, "override", None):  # not even an override
        hint = f"type {quoted}" if (quoted := _quoted(override)) else first
        return f"{override}: not KEY=VALUE in Hydra's grammar ({hint})"
    if found := re.match(r"Ambiguous value for argument '(.*)'", first):
        return f"{found[1]}: several values need a sweep (add -m)"
    if found := re.match(r"Could not override '(.*)'", first):
        return f"{found[1]}: no such key{_nearest_key(found[1])}"
    if found := re.match(r"Could not append to config. An item is already at '(.*)'", first):
        return f"+{found[1]}: the key exists (leave out the plus)"
    if found := re.match(r"Error merging override (.*)", first):
        return f"{found[1]}: {reason}"
    if found := re.match(r"In .*: Could not find '(.*)/(.*)'", first):
        options = re.findall(r"^\t(\S+)$", rest, re.MULTILINE)
        if found[2].endswith((".yaml", ".yml")):  # Hydra cuts a path at its last slash
            group, name = found[1].partition("/")[0], Path(found[2]).stem
            value = f"{found[1]}/{found[2]}".removeprefix(f"{group}/")
            own = f"one of your own: --config-dir FOLDER {group}={name}, with FOLDER/{group}/{name}.yaml"
            return f"{group}={value}: allowed are {', '.join(options)} ({own})"
        near = difflib.get_close_matches(found[2], options, n=1, cutoff=0.4)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"{found[1]}={found[2]}: allowed are {', '.join(options)}{hint}"
    return " ".join(filter(None, [first.strip(), reason.strip()]))


def _quoted(override: str) -> str | None:
    """The override with its value in quotes, for a shell; None if that is no override either."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, equals, value = override.partition("=")
    if not equals or not value:
        return None
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    candidate = f'{key}="{escaped}"'
    try:
        OverridesParser.create().parse_override(candidate)
    except HydraException:
        return None
    return shlex.quote(candidate)


def _not_utf8(conf: Path) -> Path | None:
    """The first configuration file that is no UTF-8 text; Python's own error does not name it."""
    for path in sorted(conf.rglob("*.yaml")):
        try:
            path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return path
    return None


def _theirs(error: Exception) -> bool:
    """Whether Hydra or OmegaConf raised it, which they do about input."""
    frame = error.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    raised = str(frame.tb_frame.f_globals.get("__name__", "")) if frame else ""
    return any(name.partition(".")[0] in ("hydra", "omegaconf") for name in (type(error).__module__, raised))


def _nearest_key(key: str) -> str:
    near = difflib.get_close_matches(key, _keys(), n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near else ""


def _keys() -> list[str]:
    """Every key of the typed configuration, nested ones with dots."""
    from dataclasses import fields

    from experiments.composing import config

    parts = {
        "experiment": config.ExperimentConfig,
        "method": config.MethodConfig,
        "backend": config.BackendConfig,
        "data": config.DataConfig,
        "wandb": config.WandbConfig,
    }
    keys = [field.name for field in fields(config.Config)]
    for prefix, part in parts.items():
        keys += [f"{prefix}.{field.name}" for field in fields(part)]
    return keys
