from __future__ import annotations

import json

import pytest
from wandb_server import Server, serve

from analysis.__main__ import main
from analysis.dashboard import dry_run

Capture = pytest.CaptureFixture[str]


def use(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_BASE_URL", server.address)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    wandb.teardown()


def test_a_dry_run_needs_no_server_and_is_the_same_every_time(capsys: Capture) -> None:
    assert main(["dashboard", "ent/bench", "--dry-run"]) == 0
    first = capsys.readouterr().out
    assert first == dry_run("ent/bench")
    text = json.dumps(json.loads(first))
    for part in ("metrics/samples_per_s", "metrics/bubble_ratio", "memory/max_bytes", "timeline"):
        assert part in text


def test_publishing_again_updates_instead_of_adding(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with serve(Server()) as server:
        use(server, monkeypatch)
        assert main(["dashboard", "ent/bench"]) == 0
        assert capsys.readouterr().out.count("created") == 2
        saved = {id: view["spec"] for id, view in server.views.items()}
        assert main(["dashboard", "ent/bench"]) == 0
        assert capsys.readouterr().out.count("updated") == 2
        assert {id: view["spec"] for id, view in server.views.items()} == saved
    assert {view["type"] for view in server.views.values()} == {"project-view", "runs"}


def test_bad_names_and_unreachable_servers_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    use(Server(address="http://127.0.0.1:9"), monkeypatch)
    for arguments in (["dashboard"], ["dashboard", "bench"], ["dashboard", "ent/bench"]):
        assert main(arguments) == 2
        assert capsys.readouterr().err.strip().count("\n") == 0
