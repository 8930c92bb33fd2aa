"""Drives a headless Chromium over its debugging pipe; needs nothing but the browser."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")


class Browser:
    """One page; commands of the DevTools protocol, and every event that came."""

    def __init__(self, send: int, receive: int) -> None:
        self.events: list[dict[str, Any]] = []
        self._send, self._receive = send, receive
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and wait for its answer."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda one: one.get("id") == number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, path: Path) -> None:
        """Load a file and wait for its load event."""
        self.call("Page.navigate", url=path.as_uri())
        if not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._until(lambda one: one.get("method") == "Page.loadEventFired")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return found["result"].get("value")

    def press(self, key: str, code: int = 0, text: str = "") -> None:
        """One key, down and up."""
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)

    def width(self, pixels: int) -> None:
        """Make the page as wide as a device."""
        size = {"width": pixels, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def of(self, method: str) -> list[dict[str, Any]]:
        """The parameters of all events of one kind."""
        return [event["params"] for event in self.events if event["method"] == method]

    def _until(self, wanted: Callable[[dict[str, Any]], bool], timeout_s: float = 60.0) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while True:
            while b"\0" in self._buffer:
                text, self._buffer = self._buffer.split(b"\0", 1)
                message: dict[str, Any] = json.loads(text)
                if "method" in message:
                    self.events.append(message)
                if wanted(message):
                    return message
            ready, _, _ = select.select([self._receive], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._receive, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError("the browser does not answer")
            self._buffer += part


@contextmanager
def browse(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own, ended at the end."""
    to_browser, send = os.pipe()
    receive, from_browser = os.pipe()
    command = " ".join(["exec chromium", *ARGUMENTS, "--remote-debugging-pipe", '--user-data-dir="$0"'])
    process = subprocess.Popen(
        ["bash", "-c", f"{command} 3<&{to_browser} 4>&{from_browser}", str(profile)],
        pass_fds=(to_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Browser(send, receive)
    finally:
        process.terminate()
        process.wait(20)
        os.close(send)
        os.close(receive)
