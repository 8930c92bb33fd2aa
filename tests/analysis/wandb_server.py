"""A local stand-in for wandb's server: answers the GraphQL requests of its public API."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Server:
    """What it serves and what it was asked.

    Attributes:
        runs: per run id its ``config``, ``summary``, ``history`` rows and ``state``.
        views: per id the saved workspaces and reports: the specification as text.
        asked: names of the GraphQL operations, in order.
    """

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    views: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    address: str = ""

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any] | None:
        """The data of one request; None for what nobody here asks."""
        name = re.search(r"(?:query|mutation)\s+(\w+)", query)
        operation = name[1] if name else ""
        self.asked.append(operation)
        project = {"id": "P1", "internalId": "1", "name": "bench", "entityName": "ent", "readOnly": False}
        entity = {"id": "E1", "name": "ent", "isTeam": False, "organization": None}
        if operation in ("Viewer", "GetViewer", "GetDefaultEntity"):
            viewer = {"id": "V1", "entity": "ent", "username": "me", "name": "me", "admin": False}
            return {"viewer": viewer | {"flags": "{}", "email": "", "teams": {"edges": []}}}
        if operation.startswith("ServerFeatures"):
            return {"serverInfo": {"features": []}}
        if operation == "ServerInfo":
            return {"serverInfo": {"cliVersionInfo": "{}", "latestLocalVersionInfo": None}}
        if operation.lower().startswith("upsertview"):
            return self._save_view(variables)
        if operation.lower().startswith("upsertmodel") or operation == "CreateProject":
            model = project | {"description": "", "access": "PRIVATE", "views": "{}", "entity": entity}
            return {"upsertModel": {"model": model, "project": model, "inserted": False}}
        if operation == "DeleteView":
            self.views.pop(variables.get("id", ""), None)
            return {"deleteView": {"success": True, "pendingOperation": None}}
        if "runs(" in query:
            return {"project": project | {"runCount": len(self.runs), "runs": self._page(variables)}}
        if "view(" in query or "allViews" in query:
            return self._find_view(query, variables, project, entity)
        run = variables.get("name") or variables.get("run") or variables.get("runName")
        if run in self.runs:
            return {"project": project | {"run": self._run(run, query, variables)}}
        if "project(" in query:
            return {"project": project | {"entity": entity, "createdAt": "2026-01-01T00:00:00Z"}}
        return None

    def _page(self, variables: dict[str, Any]) -> dict[str, Any]:
        nodes = [{"node": self._run(id, "", {}), "cursor": id} for id in self.runs]
        page = {"endCursor": None, "hasNextPage": False}
        return {"totalCount": len(nodes), "edges": nodes, "pageInfo": page}

    def _run(self, id: str, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        run = self.runs[id]
        rows = run["history"]
        keys = {key: {"typeCounts": [{"type": "number", "count": 1}]} for row in rows for key in row}
        node = {
            "id": f"R{id}",
            "name": id,
            "displayName": id,
            "tags": [],
            "sweepName": None,
            "state": run["state"],
            "config": json.dumps({key: {"value": value} for key, value in run["config"].items()}),
            "summaryMetrics": json.dumps(run["summary"]),
            "systemMetrics": "{}",
            "group": "",
            "jobType": None,
            "commit": None,
            "readOnly": False,
            "createdAt": "2026-01-01T00:00:00Z",
            "heartbeatAt": "2026-01-01T00:00:00Z",
            "description": "",
            "notes": "",
            "historyLineCount": run.get("lines", len(rows)),
            "historyKeys": {"keys": keys, "lastStep": len(rows) - 1},
            "user": {"name": "me", "username": "me"},
            "projectId": "1",
            "project": {"id": "P1", "internalId": "1", "name": "bench"},
            "logLineCount": 0,
            "events": [],
            "stopped": False,
        }
        if "parquetHistory" in query:
            live = [{key: row[key] for key in variables.get("liveKeys") or () if key in row} for row in rows]
            node["parquetHistory"] = {"liveData": live, "parquetUrls": []}
        elif "history(" in query:
            low, high = variables.get("minStep", 0), variables.get("maxStep", 1e9)
            node["history"] = [json.dumps(row) for row in rows if low <= row["_step"] < high]
        return node

    def _save_view(self, variables: dict[str, Any]) -> dict[str, Any]:
        id = variables.get("id") or next(
            (id for id, view in self.views.items() if view["name"] == variables.get("name")), None
        )
        inserted = id is None
        id = id or f"view{len(self.views)}"
        self.views[id] = self.views.get(id, {}) | {key: v for key, v in variables.items() if v is not None}
        return {"upsertView": {"view": self._view(id), "inserted": inserted}}

    def _view(self, id: str) -> dict[str, Any]:
        view = self.views[id]
        return {
            "id": id,
            "type": view.get("type", "project-view"),
            "name": view.get("name"),
            "displayName": view.get("displayName"),
            "description": view.get("description", ""),
            "project": {"id": "P1", "name": "bench", "entityName": "ent"},
            "spec": view.get("spec"),
            "user": {"id": "V1", "username": "me", "name": "me", "photoUrl": "", "admin": False},
            "createdAt": "2026-01-01T00:00:00Z",
            "updatedAt": "2026-01-01T00:00:00Z",
            "previewUrl": None,
            "coverUrl": None,
            "locked": False,
            "viewCount": 0,
        }

    def _find_view(
        self, query: str, variables: dict[str, Any], project: dict[str, Any], entity: dict[str, Any]
    ) -> dict[str, Any]:
        if "allViews" in query:
            wanted = variables.get("viewName")
            found = [self._view(id) for id, view in self.views.items() if wanted in (None, view.get("name"))]
            edges = [{"node": view, "cursor": view["id"]} for view in found]
            page = {"endCursor": None, "hasNextPage": False}
            return {"project": project | {"entity": entity, "allViews": {"edges": edges, "pageInfo": page}}}
        id = variables.get("reportId") or variables.get("id")
        return {"view": self._view(id) if id in self.views else None}


@contextmanager
def serve(server: Server) -> Iterator[Server]:
    """Run the stand-in on a free local port."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path != "/graphql":
                return self._send(200, b"{}")
            request = json.loads(body)
            data = server.answer(request["query"], request.get("variables") or {})
            found = {"data": data} if data is not None else {"errors": [{"message": "not served here"}]}
            return self._send(200, json.dumps(found).encode())

        def do_GET(self) -> None:
            self._send(404, b"{}")

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.address = f"http://127.0.0.1:{web.server_port}"
    thread = Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        web.shutdown()
        web.server_close()
        thread.join()
