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
CLUSTER = "cluster"


class Skips:
    """What was skipped, seen where all reports arrive: also with several workers."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.tests: list[str] = []
        self.missing: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.skipped:
            return
        name, _, group = report.nodeid.rpartition("@")  # of a worker: test@group
        self.tests.append(name if group == CLUSTER or group.endswith(".py") else report.nodeid)
        reason = report.longrepr[2] if isinstance(report.longrepr, (tuple, list)) else ""
        if "needs " in reason:
            self.missing[reason.partition("needs ")[2]] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for need, count in self.missing.items():
            terminalreporter.write_line(f"{count} tests skipped for want of {need}")

    def pytest_sessionfinish(self) -> None:
        if self.path:
            self.path.write_text("".join(f"{test}\n" for test in self.tests))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--skipped-to", type=Path, help="write the skipped tests there: pytest @FILE")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"needs(*names): skipped without {', '.join(NEEDS)}")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skips(config.getoption("--skipped-to")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests share its fixtures, so they stay on one worker; there is one Slurm cluster."""
    for item in items:
        uses = CLUSTER in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group(CLUSTER if uses else item.nodeid.partition("::")[0]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for need in (NEEDS[name] for name in marker.args):
            if need.is_here():
                continue
            if os.environ.get("CI") == "true":
                pytest.fail(f"CI must not skip: {need.what} is missing", pytrace=False)
            pytest.skip(f"needs {need.what}: {need.command}")
