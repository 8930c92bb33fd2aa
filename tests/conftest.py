"""What a test needs beyond ``make install``: where it is missing, skipped and counted, with its command."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest


class Need(NamedTuple):
    what: str
    is_here: Callable[[], bool]
    command: str


def _module(name: str) -> Callable[[], bool]:
    return lambda: importlib.util.find_spec(name) is not None


NEEDS = {
    "search": Need("OR-tools", _module("ortools"), "make test EXTRAS=dev,search"),
    "megatron": Need("megatron-core", _module("megatron"), "make test EXTRAS=dev,megatron"),
    "chromium": Need("chromium", lambda: shutil.which("chromium") is not None, "apt-get install chromium"),
}
SKIPPED = pytest.StashKey[list[str]]()
MISSING = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--skipped-to", type=Path, help="write the skipped tests there: pytest @FILE")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"needs(*names): skipped without {', '.join(NEEDS)}")
    config.stash[SKIPPED], config.stash[MISSING] = [], Counter()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for need in (NEEDS[name] for name in marker.args):
            if need.is_here():
                continue
            if os.environ.get("CI") == "true":
                pytest.fail(f"CI must not skip: {need.what} is missing", pytrace=False)
            item.config.stash[MISSING][f"{need.what}: {need.command}"] += 1
            pytest.skip(f"needs {need.what}: {need.command}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    report: pytest.TestReport = yield
    if report.skipped:
        item.config.stash[SKIPPED].append(item.nodeid)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for need, count in config.stash[MISSING].items():
        terminalreporter.write_line(f"{count} tests skipped for want of {need}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if path := session.config.getoption("--skipped-to"):
        path.write_text("".join(f"{test}\n" for test in session.config.stash[SKIPPED]))
