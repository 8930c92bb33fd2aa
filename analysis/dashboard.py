"""A wandb workspace and report for a project, as code: publishing again updates them.

Both have fixed names, so that a second publication finds the first. Panel identifiers, random
in ``wandb_workspaces``, are drawn from a fixed seed: the same code gives the same document.
"""

from __future__ import annotations

import base64
import json
import random
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from bitpipe.errors import InputError

METHOD, MODEL = "job.schedule.method", "job.model.name"
DEVICES = "provenance.devices"  # what ran: runs of different devices never share a group
THROUGHPUT, BATCH, BUBBLE = "metrics/samples_per_s", "metrics/global_batch", "metrics/bubble_ratio"
MEMORY = ("memory/min_bytes", "memory/mean_bytes", "memory/max_bytes")
TIMEOUT_S = 20.0

_FIND = """
query FindView($entityName: String!, $name: String!, $viewType: String!, $viewName: String!) {
  project(name: $name, entityName: $entityName) {
    allViews(viewType: $viewType, viewName: $viewName) { edges { node { id name } } }
  }
}"""
_SAVE = """
mutation UpsertView2($id: ID, $entityName: String, $projectName: String, $type: String, $name: String,
                     $displayName: String, $description: String, $spec: String) {
  upsertView(input: {id: $id, entityName: $entityName, projectName: $projectName, name: $name,
                     displayName: $displayName, description: $description, type: $type, spec: $spec,
                     createdUsing: WANDB_SDK}) {
    view { id name }
    inserted
  }
}"""


@dataclass(frozen=True, kw_only=True)
class View:
    """One thing that wandb keeps: a workspace or a report.

    Attributes:
        kind: ``project-view`` or ``runs``, as wandb calls them.
        name: by which it is found again.
        title: for people.
        spec: its document.
    """

    kind: str
    name: str
    title: str
    spec: dict[str, Any]


def build(project: str) -> tuple[View, View]:
    """The workspace and the report for ``entity/project``, without any request.

    Raises:
        InputError: the project is not named ENTITY/PROJECT, or ``wandb-workspaces`` is missing.
    """
    entity, name = _split(project)
    try:
        reports: Any = import_module("wandb_workspaces.reports.v2")
        workspaces: Any = import_module("wandb_workspaces.workspaces")
    except ImportError:
        raise InputError(
            "dashboard", project, "needs wandb-workspaces", "pip install 'bitpipe-bench[dashboard]'"
        ) from None
    with _fixed_identifiers():
        workspace = workspaces.Workspace(
            entity=entity,
            project=name,
            name="BitPipe",
            sections=[
                workspaces.Section(name=title, panels=panels, is_open=True)
                for title, panels in _panels(reports).items()
            ],
        )._to_model()
        sections: list[Any] = [
            reports.P(text="Throughput, memory, bubbles and timelines of this project's runs.")
        ]
        # Without a project of its own a run set is that of the report's, and needs no login.
        runs = reports.Runset(name="all runs", groupby=[f"config.{DEVICES}", f"config.{METHOD}"])
        for title, panels in _panels(reports).items():
            sections += [reports.H2(text=title), reports.PanelGrid(runsets=[runs], panels=panels)]
        report = reports.Report(
            project=name,
            entity=entity,
            title="BitPipe: throughput, memory, bubbles",
            description="Written by python -m analysis dashboard",
            blocks=sections,
        )._to_model()
    return (
        View(kind="project-view", name="nw-bitpipebench-v", title="BitPipe", spec=_document(workspace.spec)),
        View(kind="runs", name="bitpipebench", title=report.display_name, spec=_document(report.spec)),
    )


def dry_run(project: str) -> str:
    """The JSON that :func:`publish` would send."""
    views = [
        {"name": one.name, "type": one.kind, "title": one.title, "spec": one.spec} for one in build(project)
    ]
    return json.dumps({"project": project, "views": views}, indent=1, sort_keys=True) + "\n"


def publish(project: str) -> list[str]:
    """Create or update both; returns a line on each.

    Raises:
        InputError: the server cannot be reached, or refuses.
    """
    entity, name = _split(project)
    lines = []
    for view in build(project):
        where = {"entityName": entity, "name": name, "viewType": view.kind, "viewName": view.name}
        found = _ask(_FIND, where, project)["project"]
        if found is None:
            raise InputError("project", project, "no such project on the server", "log a run to it first")
        edges = found["allViews"]["edges"]
        saved = _ask(
            _SAVE,
            {
                "id": edges[0]["node"]["id"] if edges else None,
                "entityName": entity,
                "projectName": name,
                "type": view.kind,
                "name": view.name,
                "displayName": view.title,
                "description": "Written by python -m analysis dashboard",
                "spec": json.dumps(view.spec, sort_keys=True),
            },
            project,
        )["upsertView"]
        lines.append(f"{'created' if saved['inserted'] else 'updated'} {view.title} ({saved['view']['id']})")
    return lines


def _panels(reports: Any) -> dict[str, list[Any]]:
    """Sections of panels, the same in the workspace and in the report."""
    summary, config = reports.SummaryMetric, reports.Config
    wide, half = reports.Layout(x=0, y=0, w=24, h=9), reports.Layout(x=0, y=0, w=12, h=9)
    return {
        "Throughput by method and B̂": [
            reports.BarPlot(
                title="throughput (samples/s)",
                metrics=[summary(THROUGHPUT)],
                groupby=config(METHOD),
                layout=half,
            ),
            reports.ScatterPlot(
                title="throughput (samples/s) over B̂", x=summary(BATCH), y=summary(THROUGHPUT), layout=half
            ),
        ],
        "Memory over devices": [
            reports.BarPlot(
                title="peak memory over devices (bytes): least, mean, most",
                metrics=[summary(name) for name in MEMORY],
                groupby=config(METHOD),
                layout=wide,
            )
        ],
        "Bubbles": [
            reports.BarPlot(
                title="bubble ratio", metrics=[summary(BUBBLE)], groupby=config(METHOD), layout=half
            )
        ],
        "Iterations": [
            reports.LinePlot(title="seconds per iteration", x="Step", y=["seconds/mean"], layout=half),
            reports.LinePlot(title="loss", x="Step", y=["loss"], layout=half),
        ],
        "Timelines": [reports.MediaBrowser(title="one iteration", media_keys=["timeline"], layout=wide)],
    }


@contextmanager
def _fixed_identifiers() -> Iterator[None]:
    state = random.getstate()
    random.seed(0)
    try:
        yield
    finally:
        random.setstate(state)


def _document(spec: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(spec.model_dump_json(by_alias=True, exclude_none=True))
    return document


def _split(project: str) -> tuple[str, str]:
    entity, slash, name = project.partition("/")
    if not (entity and slash and name) or "/" in name:
        raise InputError("project", project, "expected ENTITY/PROJECT")
    return entity, name


def _ask(query: str, variables: dict[str, Any], project: str) -> dict[str, Any]:
    """One GraphQL request to the server that wandb is set up for."""
    import wandb

    settings = wandb.setup().settings
    key = settings.api_key or ""
    request = urllib.request.Request(
        f"{settings.base_url}/graphql",
        data=json.dumps({"query": query, "variables": variables}).encode(),
        headers={
            "content-type": "application/json",
            "authorization": "Basic " + base64.b64encode(f"api:{key}".encode()).decode(),
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            answer: dict[str, Any] = json.load(response)
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        raise InputError("project", project, f"wandb's server: {error}") from None
    if answer.get("errors"):
        raise InputError("project", project, f"wandb's server: {answer['errors'][0].get('message')}")
    data: dict[str, Any] = answer["data"]
    return data
