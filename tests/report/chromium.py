"""A headless Chromium driven through its DevTools pipe: descriptors 3 and 4, JSON messages ended by a NUL."""

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-pipe", "--force-device-scale-factor=1"),
)

SECONDS = 30.0


def find_chromium() -> str | None:
    """The browser's program, or None where there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


def wanted() -> bool:
    """Whether tests in a browser run: where there is one, and in CI in any case, which fails without."""
    return find_chromium() is not None or os.environ.get("CI") == "true"


@dataclass
class Page:
    """One tab. `events` holds all that the browser reported, in order."""

    send_to: int
    read_from: int
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    _number: int = 0
    _buffer: bytes = b""

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.send_to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)
        raise TimeoutError(method)

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + SECONDS
        while not self.run(expression):
            assert time.monotonic() < until, f"never true: {expression}"
            time.sleep(0.05)

    def open(self, path: Path) -> None:
        """Open a file and wait until the report in it is drawn."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("document.documentElement?.dataset.drawn === 'true' && document.readyState === 'complete'")
        self.settle()

    def count(self, selector: str) -> int:
        """How many elements a selector finds."""
        return int(self.run(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def texts(self, selector: str) -> list[str]:
        """The text of each element that a selector finds."""
        found: list[str] = self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")
        return found

    def keeps_hostile_text_unseen(self) -> None:
        """Check that nothing hostile ran, and that no character of what is shown acts."""
        assert self.run("window.pwned ?? null") is None
        shown = self.run("document.body.innerText")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ufeff]", shown)
        assert self.complaints() == []

    def settle(self) -> None:
        """Wait for two frames, after which what was drawn to size is in its place."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def resize(self, width: int, height: int, scheme: str = "light") -> None:
        """Give the window a size and a colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.settle()

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Save what the window shows, or the whole page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """Everything that the page logged, threw or was refused by its policy."""
        self.run("1")
        told = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Audits.issueAdded")
        found = [json.dumps(e["params"]) for e in self.events if e.get("method") in told]
        # A test follows links without a hand's click, which the browser notes and nobody is told.
        return [words for words in found if "NavigationEntryMarkedSkippable" not in words]

    def requests(self) -> list[str]:
        """The addresses of everything that the page asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self.read_from, 1 << 16)
            assert part, "the browser went away"
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """A browser with one tab, ended afterwards."""
    program = find_chromium()
    assert program, "CI installs Chromium: see .ci/run"
    to_browser, send_to = os.pipe()
    read_from, from_browser = os.pipe()
    # The browser talks on descriptors 3 and 4, so a shell puts the pipes there.
    line = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", line, program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(to_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        page = Page(send_to, read_from)
        target = page.call("Target.createTarget", url="about:blank")["targetId"]
        page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            page.call(f"{domain}.enable")
        yield page
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(send_to)
        os.close(read_from)
