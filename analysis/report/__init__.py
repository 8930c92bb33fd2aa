"""One self-contained HTML page: claims, every table and figure, timelines, provenance."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from analysis.claims import rendered as claims_rendered
from analysis.comparing.grid import to_html
from analysis.drawing.output import Picture, Rendered, Table, plain_grid, write_text
from analysis.drawing.style import svg
from analysis.load.results import NoResults, Results
from analysis.registry import Artefact, artefacts
from bitpipe.draw.html import assets
from bitpipe.errors import InputError
from bitpipe.words import counted
from experiments.records.devices import computing_devices

TITLE = "BitPipe, reproduced"
LONG = 12  # tables with more rows are folded


@dataclass(kw_only=True)
class Item:
    """One table or figure as the page shows it."""

    id: str
    title: str
    rerun: str = ""
    missing: str = ""
    provenance: str = ""
    pictures: list[dict[str, str]] = field(default_factory=list)
    interactive: list[dict[str, str | Markup]] = field(default_factory=list)
    tables: list[dict[str, str | int | bool | Markup]] = field(default_factory=list)
    notes: tuple[str, ...] = ()


def write_report(results: Results, drawn: Mapping[str, Rendered] | None = None) -> Path:
    """Write ``report.html`` below the results folder; returns its path.

    Args:
        results: what to report.
        drawn: by id what was drawn of them already, the claims under ``claims``.

    Raises:
        NoResults: there is no record at all.
    """
    if results.cells.empty:
        raise NoResults(results.root, "any experiment")
    return write_text(results.root / "report.html", page(results, drawn or {}))


def page(results: Results, drawn: Mapping[str, Rendered]) -> str:
    """The page; needs no file, library or network beside it."""
    found = drawn["claims"] if "claims" in drawn else claims_rendered(results)
    claims = {table.name: table for table in found.tables}
    folder = files("analysis.report")
    problems = results.loaded.problems
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string((folder / "page.html.j2").read_text(encoding="utf-8"))
    items = [_item(artefact, results, drawn) for artefact in artefacts().values()]
    return template.render(
        missing=_missing(items),
        title=TITLE,
        style=Markup((folder / "style.css").read_text(encoding="utf-8")),
        assets=Markup(assets()),
        items=items,
        claims=_table(claims["claims"]),
        claims_summary=_table(claims["claims_summary"]),
        printed=_table(claims["printed_paper"]),
        provenance=_frame(provenance(results), "Where the records come from"),
        problems=_frame(problems, "Files that were left out") if len(problems) else "",
    )


def _missing(items: list[Item]) -> str:
    """Which items have no records, in one sentence; empty if all have."""
    absent = [item.id for item in items if item.missing]
    drawn = f"{len(items) - len(absent)} of {len(items)} artefacts are drawn"
    return f"{drawn}; missing: {', '.join(absent)}." if absent else ""


def provenance(results: Results) -> pd.DataFrame:
    """One row per origin and revision: how many cells, which backends, hosts, libraries, when."""
    rows = []
    documents = {path: one.document for path, one in results.loaded.readings.items() if one.document}
    for (origin, revision), group in results.cells.groupby(["origin", "revision"], dropna=False):
        told = [documents[path]["provenance"] for path in group["path"] if path in documents]
        libraries = sorted({f"{name} {v}" for one in told for name, v in one["versions"].items()})
        computed = sorted({name for one in told for name in computing_devices(one)})
        rows.append(
            {
                "origin": origin,
                "revision": str(revision)[:12],
                "changed_tree": bool(group["dirty"].fillna(False).any()),
                "cells": len(group),
                "backends": ", ".join(sorted(group["backend"].unique())),
                "clocks": ", ".join(sorted({one["clock"] for one in told})),
                "first": group["started"].min(),
                "last": group["started"].max(),
                "devices": ", ".join(computed),
                "hosts": ", ".join(sorted({host for one in told for host in one["hosts"]})),
                "versions": ", ".join(libraries),
            }
        )
    return pd.DataFrame(rows)


def _item(artefact: Artefact, results: Results, drawn: Mapping[str, Rendered]) -> Item:
    item = Item(id=artefact.id, title=artefact.title, rerun=artefact.rerun)
    try:
        rendered = drawn[artefact.id] if artefact.id in drawn else artefact.draw(results)
    except InputError as error:
        item.missing = str(error)
        return item
    except Exception as error:  # a fault in one drawing must not cost the other pages
        traceback.print_exc()
        item.missing = f"a fault of this program: {type(error).__name__}: {error}"
        return item
    _fill(item, rendered)
    if artefact.rerun:
        item.provenance = _provenance(results, artefact.id)
    return item


def _fill(item: Item, rendered: Rendered) -> None:
    item.pictures = [_picture(picture) for picture in rendered.pictures]
    item.interactive = [{"title": one.title, "html": Markup(one.html)} for one in rendered.interactive]
    for table in rendered.tables:
        rows = sum(len(block.rows) for block in table.printed.blocks)
        long = rows > LONG and table.grid is None
        item.tables.append({"title": table.title, "rows": rows, "long": long, "html": _table(table)})
    item.notes = rendered.notes


def _provenance(results: Results, id: str) -> str:
    try:
        rows = results.experiment(id)
    except InputError:
        return ""
    parts = []
    for origin, group in rows.groupby("origin", sort=False):
        revisions = ", ".join(sorted(str(name)[:12] for name in group["revision"].dropna().unique()))
        ok = int(group["status"].eq("ok").sum())
        parts.append(f"{ok} of {counted(len(group), f'{origin} cell')} ok, revision {revisions or 'unknown'}")
    return "; ".join(parts)


def _picture(picture: Picture) -> dict[str, str]:
    source = "data:image/svg+xml;base64," + base64.b64encode(svg(picture.figure)).decode()
    return {"title": picture.title, "alt": picture.alt, "source": source}


def _table(table: Table) -> Markup:
    return Markup(to_html(table.printed, table.title))


def _frame(frame: pd.DataFrame, title: str) -> Markup:
    return Markup(to_html(plain_grid(frame), title))
