"""A command line before Hydra sees it, and Hydra's errors as one line each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bitpipe.errors import InputError, choose
from experiments.composing.choice import Machine, choose_backend, pinned_backend, value_of

GROUPS = ("experiment", "method", "model", "cluster", "calibration", "backend")
_PLAIN = re.compile(r"[\w.,-]+")


@dataclass(frozen=True, kw_only=True)
class Ready:
    """What goes to Hydra, and the sentence to print first."""

    arguments: tuple[str, ...]
    sentence: str


def prepare(arguments: Sequence[str], conf: Path, machine: Machine | None = None) -> Ready:
    """Check names, refuse what Hydra would get wrong in silence, choose backend and launcher.

    Raises:
        InputError: an unknown name in a group, two experiments at once, a launcher without ``-m``.
    """
    flags = [a for a in arguments if a.startswith("-")]
    # "experiment=x" is what people type first; Hydra insists on the plus.
    overrides = [re.sub(r"^experiment=", "+experiment=", a) for a in arguments if not a.startswith("-")]
    multirun = bool({"-m", "--multirun"} & set(flags))
    _names(overrides, conf)
    experiment = value_of(overrides, "experiment")
    if experiment and "," in experiment:
        _one_at_a_time(experiment, overrides)
    if set(flags) - {"-m", "--multirun"}:  # --cfg, --info and the like answer about Hydra itself
        return Ready(arguments=tuple(arguments), sentence="")
    pinned = pinned_backend(conf / "experiment" / f"{experiment}.yaml") if experiment else None
    choice = choose_backend(overrides, machine or Machine.here(), multirun=multirun, pinned=pinned)
    return Ready(arguments=(*flags, *overrides, *choice.overrides), sentence=choice.sentence)


def _names(overrides: Sequence[str], conf: Path) -> None:
    """Unknown names in a group, with the nearest that exists."""
    for group in GROUPS:
        value = value_of(overrides, group)
        if value and _PLAIN.fullmatch(value):
            known = [path.stem for path in (conf / group).glob("*.yaml")]
            for name in value.split(","):
                choose(group, name, known)


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
        return f"{override}: not KEY=VALUE in Hydra's grammar ({first})"
    if found := re.match(r"Ambiguous value for argument '(.*)'", first):
        return f"{found[1]}: several values need a sweep (add -m)"
    if found := re.match(r"Could not override '(.*)'", first):
        return f"{found[1]}: no such key{_nearest_key(found[1])}"
    if found := re.match(r"Could not append to config. An item is already at '(.*)'", first):
        return f"+{found[1]}: the key exists (leave out the plus)"
    if found := re.match(r"Error merging override (.*)", first):
        return f"{found[1]}: {reason}"
    if found := re.match(r"In .*: Could not find '(.*)/(.*)'", first):
        options = re.findall(r"^\t(\w+)$", rest, re.MULTILINE)
        return f"{found[1]}={found[2]}: allowed are {', '.join(options)}"
    return " ".join(filter(None, [first.strip(), reason.strip()]))


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
