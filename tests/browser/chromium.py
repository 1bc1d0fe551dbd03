"""A headless Chromium, driven over its debugging pipe: no driver, no port, no package beside the browser itself."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --remote-debugging-pipe"
)
PATIENCE = 20_000  # milliseconds that a condition may take


def find() -> str | None:
    """The browser's program, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class PageError(AssertionError):
    """The page raised, or a condition did not come true."""


class Page:
    """One tab. `said` holds what went to its console and what its policy refused; `asked` every address it wanted."""

    def __init__(self, to: int, back: int) -> None:
        self._to = os.fdopen(to, "wb", buffering=0)
        self._back = os.fdopen(back, "rb")
        self._number, self._session = 0, ""
        self.said: list[str] = []
        self.asked: list[str] = []
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")

    def _send(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise PageError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def _receive(self) -> Any:
        read = bytearray()
        while (byte := self._back.read(1)) != b"\0":
            if not byte:
                raise PageError("the browser is gone")
            read += byte
        message = json.loads(read)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method: str | None, told: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.said.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled":
            self.said.append(str([one.get("value") for one in told["args"]]))
        elif method == "Log.entryAdded":
            self.said.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"])

    def show(self, *, width: int = 1280, height: int = 900, dark: bool = False, still: bool = False) -> None:
        """Sets the screen and what the reader prefers."""
        self._send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if still else "no-preference",
        }
        self._send(
            "Emulation.setEmulatedMedia", features=[{"name": name, "value": value} for name, value in features.items()]
        )

    def open(self, path: Path, hash: str = "") -> None:
        """Opens a page afresh and waits until it is drawn."""
        self._send("Page.navigate", url="about:blank")
        self.said.clear()
        self.asked.clear()
        self._send("Page.navigate", url=path.as_uri() + hash)
        self.until("document.documentElement.dataset.ready")

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        got = self._send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise PageError(got["exceptionDetails"].get("exception", {}).get("description", "it raised"))
        return got["result"].get("value")

    def until(self, condition: str) -> None:
        """Waits, frame by frame, until an expression is true."""
        came = self.js(
            "new Promise((done) => { const since = performance.now(); const look = () => {"
            f" let seen; try {{ seen = {condition}; }} catch {{ seen = false; }}"
            f" if (seen) done(true); else if (performance.now() - since > {PATIENCE}) done(false);"
            " else setTimeout(look, 10); }; look(); })"
        )
        if not came:
            raise PageError(f"did not come true: {condition}; {self.said}")

    def key(self, key: str) -> None:
        """Presses a key."""
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35}
        told = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self._send("Input.dispatchKeyEvent", type="keyDown", **told, **text)
        self._send("Input.dispatchKeyEvent", type="keyUp", **told)

    def write(self, text: str) -> None:
        """Types into what has the focus."""
        self._send("Input.insertText", text=text)

    def names(self) -> list[tuple[str, str]]:
        """(role, name) of everything that a screen reader finds in the page."""
        nodes = self._send("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
        ]

    def picture(self, path: Path, selector: str | None = None) -> None:
        """What is on the screen, or the whole of one element, as a PNG."""
        clip = {}
        if selector:
            box = self.js(f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                          " return [b.x + scrollX, b.y + scrollY, b.width, b.height]; })()")  # fmt: skip
            clip = {"clip": dict(zip(("x", "y", "width", "height"), box, strict=True)) | {"scale": 1}}
        shot = self._send("Page.captureScreenshot", captureBeyondViewport=bool(clip), **clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """Ends the browser's side of the pipe."""
        self._to.close()
        self._back.close()


@contextlib.contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    """A page in a browser of its own, whose profile is in `folder`; it is gone afterwards."""
    program = find()
    if program is None:
        raise PageError("there is no Chromium here")
    (there, to), (back, here) = os.pipe(), os.pipe()
    # The browser reads its orders from 3 and writes its answers to 4. (No shell can be asked to place them: dash knows
    # descriptors of one digit only.)
    above = [fcntl.fcntl(end, fcntl.F_DUPFD, 64) for end in (there, here)]

    def place() -> None:
        os.dup2(above[0], 3)
        os.dup2(above[1], 4)

    process = subprocess.Popen(
        [program, *FLAGS.split(), f"--user-data-dir={folder}"],
        pass_fds=(3, 4),
        preexec_fn=place,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for end in above:
        os.close(end)
    os.close(there)
    os.close(here)
    page = Page(to, back)
    try:
        yield page
    finally:
        page.close()
        process.terminate()
        process.wait(10)
