"""wandb as its users know it: its variables, limits, proxies; and what a sweep says of missing copies."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig

from bitpipe.errors import InputError
from experiments.composing.compose import plain, settings_of
from experiments.composing.settings import WandbSettings
from experiments.composing.sweep import Sweep
from experiments.records.migrate import migrate
from experiments.records.record import Record
from experiments.records.wandb_sink import _tags, limited, missing_copies, run_id, unreachable
from experiments.running import outcome
from experiments.running.local import run_sweep

Load = Callable[[list[str]], DictConfig]
Plan = Callable[..., Sweep]


@pytest.fixture
def record() -> Record:
    path = Path(__file__).parent / "records" / "version_1.json"
    return Record.of(migrate(json.loads(path.read_text())))


def wandb_of(load: Load, overrides: str, **environment: str) -> WandbSettings:
    return settings_of(plain(load(overrides.split())), environment=environment).wandb


@pytest.mark.parametrize(
    ("key", "variable", "value", "default"),
    [
        ("project", "WANDB_PROJECT", "mine", "bitpipe"),
        ("entity", "WANDB_ENTITY", "team", None),
        ("group", "WANDB_RUN_GROUP", "nightly", None),
        ("mode", "WANDB_MODE", "online", "offline"),
        ("tags", "WANDB_TAGS", "a,b", ""),
    ],
)
def test_the_command_line_comes_before_the_environment_before_the_default(
    key: str, variable: str, value: str, default: str | None, load: Load
) -> None:
    typed = {"mode": "disabled", "tags": "[typed]"}.get(key, "typed")
    explicit = f"backend=virtual wandb.{key}={typed}"
    assert getattr(wandb_of(load, "backend=virtual"), key) == default
    assert getattr(wandb_of(load, "backend=virtual", **{variable: value}), key) == value
    assert getattr(wandb_of(load, explicit, **{variable: value}), key) == typed.strip("[]")


@pytest.mark.parametrize(
    ("environment", "mode"),
    [
        ({"WANDB_MODE": "dryrun"}, "offline"),
        ({"WANDB_MODE": "RUN"}, "online"),
        ({"WANDB_DISABLED": "true"}, "disabled"),
        ({"WANDB_DISABLED": "false"}, "offline"),
        ({"WANDB_MODE": ""}, "offline"),
    ],
)
def test_wandbs_older_words_for_a_mode_are_understood(
    environment: dict[str, str], mode: str, load: Load
) -> None:
    assert wandb_of(load, "backend=virtual", **environment).mode == mode


def test_a_simulation_has_a_copy_if_the_environment_says_so_and_none_else(load: Load) -> None:
    assert wandb_of(load, "backend=simulate").mode == "disabled"
    assert wandb_of(load, "backend=simulate", WANDB_MODE="offline").mode == "offline"


@pytest.mark.parametrize(
    ("overrides", "environment", "line"),
    [
        ("", {"WANDB_MODE": "onlin"}, "WANDB_MODE=onlin: allowed are disabled, offline, online"),
        ("wandb.mode=of", {}, "wandb.mode=of: allowed are"),
        ("wandb.project=a/b", {}, "wandb.project=a/b: at most 128 characters"),
        ("", {"WANDB_PROJECT": "p" * 129}, "at most 128 characters"),
        ("", {"WANDB_ENTITY": "team/other"}, "wandb.entity=team/other"),
    ],
)
def test_what_wandb_would_refuse_later_is_one_line_now(
    overrides: str, environment: dict[str, str], line: str, load: Load
) -> None:
    with pytest.raises(InputError) as caught:
        wandb_of(load, overrides, **environment)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@given(text=st.text(max_size=200), most=st.sampled_from([64, 128]))
def test_any_text_becomes_a_name_within_limits(text: str, most: int) -> None:
    name = limited(text, most)
    assert 1 <= len(name) <= most
    assert name.isprintable()
    assert name == name.strip()


def test_long_tags_stay_different_and_none_is_lost_or_comes_twice(record: Record) -> None:
    labels = {
        "one": "x" * 70 + "1",
        "two": "x" * 70 + "2",
        "same": "x" * 70 + "2",
        "none": "",
        "line": "a\nb",
    }
    tags = _tags(replace(record, labels=labels), WandbSettings(tags="mine,mine,other"))
    assert all(1 <= len(tag) <= 64 for tag in tags)
    assert len(tags) == len(set(tags))
    assert sum(tag.startswith("xxx") for tag in tags) == 2
    assert {"mine", "other", "a b", "-"} <= set(tags)


def test_an_attempts_run_is_another_one_in_another_folder_and_for_another_user(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [tmp_path / name / "cells" / record.cell / "a1" for name in ("one", "two")]
    ids = {run_id(record, place) for place in places}
    monkeypatch.setattr("getpass.getuser", lambda: "somebody else")
    ids |= {run_id(record, place) for place in places}
    assert len(ids) == 4
    assert all(one.startswith(f"{record.cell}-a{record.attempt}-") and len(one) <= 64 for one in ids)
    assert run_id(record, places[0]) == run_id(record, places[0])


class Proxy(http.server.BaseHTTPRequestHandler):
    status = 404
    seen: list[str] = []  # noqa: RUF012 of the class, as the handler is made anew for every request

    def do_GET(self) -> None:
        self.seen.append(self.path)
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(Proxy, "seen", [])
    server = http.server.HTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_server_behind_a_proxy_is_reached_through_it(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = f"http://127.0.0.2:{free_port()}"
    assert unreachable(server) is not None, "not without the proxy"
    monkeypatch.setenv("http_proxy", proxy)
    assert unreachable(server) is None
    assert Proxy.seen == [server]
    monkeypatch.setenv("no_proxy", "127.0.0.2")
    assert unreachable(server) is not None, "the user said that this server needs no proxy"
    monkeypatch.delenv("http_proxy")
    monkeypatch.delenv("no_proxy")
    assert unreachable(server, {"http": proxy}) is None, "wandb's own setting counts too"


@pytest.mark.parametrize(("status", "reached"), [(200, True), (404, True), (407, False), (502, False)])
def test_a_proxy_that_does_not_get_through_is_no_answer(
    status: int, reached: bool, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Proxy, "status", status)
    said = unreachable("http://wandb.invalid", {"http": proxy})
    assert (said is None) == reached, said


@pytest.mark.parametrize(
    "address", ["", "nonsense", "http://", "http://[", "ftp://x", "http://127.0.0.1:99999"]
)
def test_any_address_is_answered_or_explained(address: str) -> None:
    assert unreachable(address)


def test_a_missing_copy_is_one_line_at_the_end(record: Record) -> None:
    good, off = {"state": "offline", "error": None}, {"state": "off"}
    bad = {"state": "broken", "error": "CommError: no disk"}
    kept = {"state": "offline", "error": "server not reachable (x): written offline, upload with wandb sync"}

    def line(*entries: dict[str, object]) -> str | None:
        return missing_copies(replace(record, wandb=entry) for entry in entries)

    assert line(good, off) is None
    assert line(off) is None
    assert line() is None
    assert line(good, bad, off) == (
        "wandb: 1 of 2 copies are missing (CommError: no disk); the records are complete"
    )
    assert "1 of 2 copies wait on this disk (server not reachable" in str(line(good, kept))
    assert "1 of 1 copies are missing" in str(line({"state": "pending"}))


def test_a_sweep_whose_copies_fail_says_so_and_is_ok(
    planned: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outcome, "ended", [])
    broken = {"state": "broken", "directory": None, "error": "OSError: gone"}
    monkeypatch.setattr("experiments.running.finishing.publish", lambda *_: broken)
    run_sweep(
        planned("depth=4 model.layers=8 wandb.mode=offline", "depth=2 model.layers=8 wandb.mode=offline")
    )
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "wandb: 2 of 2 copies are missing (OSError: gone); the records are complete"
