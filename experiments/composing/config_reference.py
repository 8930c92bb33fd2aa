"""Writes ``docs/configuration.md`` from the typed configuration and the files in ``conf/``.

python -m experiments.composing.config_reference            # writes the file
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import Field, fields
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml
from omegaconf import MISSING

from bitpipe.checkout import ROOT
from bitpipe.cluster import Cluster, Device, Link
from bitpipe.models import ModelConfig
from experiments.composing import config

FILE = ROOT / "docs" / "configuration.md"
GROUPS = ("experiment", "method", "model", "cluster", "backend", "calibration")
_PARTS = (
    ("method", config.MethodConfig),
    ("backend", config.BackendConfig),
    ("experiment", config.ExperimentConfig),
    ("data", config.DataConfig),
    ("wandb", config.WandbConfig),
)
_HEAD = """\
# Configuration

This page is written by `python -m experiments.composing.config_reference`; a test checks that it is current.

Every key can be set on the command line, as `depth=8` or `method.cap=12`, or in a file below `conf/`.
`python run.py --cfg job` prints the whole configuration of one cell, with the backend that a run would take;
folders of your own join in with `--config-dir FOLDER`. A key that does not exist is refused with the nearest
one that does. A sweep may vary the keys that identify a cell; every other key has one value in it.
`width` and `depth`, `micro_batch_size`, `global_batch`, `micro_batches`,
`method.chunks` and `method.cap` take a number, or arithmetic over those before them in this order, as
`micro_batches=4*depth` or `width=32//depth`. Keys of Slurm (from `site` on) are explained in
[slurm.md](slurm.md); the keys of a site file are in `site.example.yaml`.
"""


def text() -> str:
    """The page."""
    parts = [_HEAD, _top()]
    for name, kind in _PARTS:
        parts.append(f"## `{name}.KEY`\n\n{_sentence(kind)}\n\n{_table(_rows(kind, f'{name}.'))}")
    parts.append(
        "## `model.KEY`\n\nOne file of `conf/model` gives these; `model.layers=8` changes one.\n\n"
        + _attributes(ModelConfig, "model.")
    )
    parts.append(
        "## `cluster.KEY`\n\nOne file of `conf/cluster` gives these, with a source for each. Links "
        "(`p2p_intra` …) have a bandwidth in bytes per second and a latency in seconds.\n\n"
        + _attributes(Cluster, "cluster.")
        + "\n"
        + _attributes(Device, "cluster.device.")
        + "\n"
        + _attributes(Link, "cluster.p2p_intra.")
    )
    parts += [_group(name) for name in GROUPS]
    return "\n".join(parts)


def main() -> None:
    """Write the page."""
    FILE.write_text(text(), encoding="utf-8")
    print(FILE.relative_to(ROOT))


def _top() -> str:
    rows = [row for row in _rows(config.Config, "") if not row[0].startswith(tuple(n for n, _ in _PARTS))]
    return "## Top level\n\n" + _table(rows)


def _rows(kind: type[Any], prefix: str) -> list[tuple[str, str, str]]:
    """(key, default, comment) of a dataclass whose fields have comments behind them."""
    said = _comments(kind)
    return [
        (f"{prefix}{one.name}", _default(one), said[one.name]) for one in fields(kind) if one.name in said
    ]


def _comments(kind: type[Any]) -> dict[str, str]:
    lines = inspect.getsource(kind).splitlines()
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            comment = re.search(r"  # (?!type:)(.*)$", lines[node.lineno - 1])
            if comment:
                found[node.target.id] = comment[1]
            elif "${backend." in lines[node.lineno - 1]:
                found[node.target.id] = f"of the backend, unless set here: see `backend.{node.target.id}`"
    return found


def _default(one: Field[Any]) -> str:
    if one.default is NO_DEFAULT:
        return "{}"
    if one.default == MISSING:
        return "a file gives it"
    if one.default is None:
        return "null"
    return str(one.default).lower() if isinstance(one.default, bool) else str(one.default)


def _attributes(kind: type[Any], prefix: str) -> str:
    """A table of the fields that a dataclass's docstring describes."""
    doc = inspect.getdoc(kind) or ""
    section = doc.partition("Attributes:")[2]
    said: dict[str, str] = {}
    last: tuple[str, ...] = ()
    for line in section.splitlines():
        if found := re.match(r"    (\w[\w, ]*): (.*)", line):
            last = tuple(name.strip() for name in found[1].split(","))
            said |= dict.fromkeys(last, found[2])
        elif line.startswith("        "):
            said |= {name: f"{said[name]} {line.strip()}" for name in last}
    rows = [
        (f"{prefix}{one.name}", _required(one), said.get(one.name, "").replace("``", "`"))
        for one in fields(kind)
    ]
    return _table(rows)


def _required(one: Field[Any]) -> str:
    missing = one.default is NO_DEFAULT and one.default_factory is NO_DEFAULT
    return "required" if missing else _default(one)


def _group(name: str) -> str:
    rows = [(path.stem, _about(path)) for path in sorted((ROOT / "conf" / name).glob("*.yaml"))]
    body = "\n".join(f"| `{stem}` | {_escaped(said)} |" for stem, said in rows)
    how = "+experiment=NAME -m" if name == "experiment" else f"{name}=NAME"
    return f"## Files of `{name}`\n\nChosen by `{how}`.\n\n| name | what |\n|---|---|\n{body}\n"


def _about(path: Path) -> str:
    """A file's title or the first sentence of its comment; for a calibration, what was fitted."""
    content = path.read_text(encoding="utf-8")
    values = yaml.safe_load(content)
    if "experiment" in values:
        return str(values["experiment"]["title"])
    if values.get("fitted"):
        return f"fitted: {', '.join(values['fitted'])}"
    comment = takewhile(lambda line: line.startswith("#"), content.splitlines())
    return re.split(r"(?<=\.) ", " ".join(line.removeprefix("# ") for line in comment))[0]


def _table(rows: list[tuple[str, str, str]]) -> str:
    body = "\n".join(f"| `{key}` | `{default}` | {_escaped(said)} |" for key, default, said in rows)
    return f"| key | default | meaning |\n|---|---|---|\n{body}\n"


def _sentence(kind: type[Any]) -> str:
    return (inspect.getdoc(kind) or "").splitlines()[0].replace("``", "`")


def _escaped(said: str) -> str:
    return said.replace("|", "\\|")


if __name__ == "__main__":
    main()
