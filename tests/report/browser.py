"""A headless Chromium, driven through its debugging pipe: JSON messages that end in a zero byte."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]

# The browser reads from file 3 and writes to file 4: put the ends of the pipes there, whatever their numbers are.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    """Path of a Chromium, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


# What the browser says of a question to a page that is being left.
_GONE = ("Inspected target navigated", "Execution context was destroyed", "Cannot find context")


class NavigatedError(RuntimeError):
    """The page was left before it answered."""


class Browser:
    """One browser process; `open` shows a file and returns a `Page`."""

    def __init__(self, program: str, timeout: float = 60.0) -> None:
        self._timeout = timeout
        self._profile = tempfile.mkdtemp(prefix="surefoot-browser-")
        to_read, self._to = os.pipe()
        self._from, from_write = os.pipe()
        command = [program, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(to_read), str(from_write), *command],
            pass_fds=(to_read, from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self._buffer = b""
        self._last = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._to)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        """Send a command and wait for its answer; events that come in between are kept."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self._timeout
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._last:
                if "error" in answer:
                    gone = any(text in answer["error"].get("message", "") for text in _GONE)
                    raise (NavigatedError if gone else RuntimeError)(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method: str, session: str) -> dict[str, Any]:
        """The first event of this kind in a session, past or to come."""
        deadline = time.monotonic() + self._timeout
        while True:
            for event in self.events:
                if event.get("method") == method and event.get("sessionId") == session:
                    return event
            self.events.append(self._receive(deadline))

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                raise TimeoutError("the browser did not answer in time")
            read = os.read(self._from, 1 << 20)
            if not read:
                raise RuntimeError("the browser ended")
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path, *, width: int = 1200, dark: bool = False, media: str = "screen") -> Page:
        """Show a file at a width, in light or dark, on screen or as printed."""
        return self.visit(path.resolve().as_uri(), width=width, dark=dark, media=media)

    def new_person(self) -> str:
        """A context of its own: cookies are not shared with others."""
        return str(self.call("Target.createBrowserContext")["browserContextId"])

    def visit(
        self, url: str, *, width: int = 1200, dark: bool = False, media: str = "screen", person: str | None = None
    ) -> Page:
        """Show an address, to a person with cookies of their own where one is given."""
        more = {} if person is None else {"browserContextId": person}
        target = self.call("Target.createTarget", url="about:blank", **more)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        page.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired", session)
        return page


class Page:
    """A tab of the browser."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self.browser, self.target, self.session = browser, target, session

    def call(self, method: str, **params: Any) -> Any:
        return self.browser.call(method, self.session, **params)

    def evaluate(self, expression: str) -> Any:
        """Value of a JavaScript expression, run by the debugger (the page itself allows no script)."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)
        if key == "Enter":
            self.call("Input.dispatchKeyEvent", type="char", key=key, text="\r")

    def type(self, key: str) -> None:
        """Press a key that stands for a character, or one with a name such as Backspace."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def wait(self, expression: str) -> Any:
        """Value of an expression as soon as it is true."""
        deadline = time.monotonic() + self.browser._timeout
        while time.monotonic() < deadline:
            try:
                found = self.evaluate(expression)
            except NavigatedError:  # asked while the page gave way to the next one: ask that one
                found = None
            if found:
                return found
            time.sleep(0.02)
        raise TimeoutError(f"{expression} did not become true")

    def events(self, *methods: str) -> list[dict[str, Any]]:
        return [e for e in self.browser.events if e.get("sessionId") == self.session and e.get("method") in methods]

    def complaints(self) -> list[Any]:
        """Console messages, uncaught errors, and entries of the log."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event["params"] for event in self.events(*kinds)]

    def requests(self) -> list[str]:
        return [event["params"]["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"]))

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)
