"""Firefox without a window, over WebDriver BiDi, which it speaks itself: what it logs and asks for, at any width."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websocket import WebSocket, create_connection

from tests.support.browser import need

_PREFERENCES = {
    "network.proxy.type": 1,  # to a port where nobody listens
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "app.update.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
}
_EVENTS = ("log.entryAdded", "network.beforeRequestSent")


@dataclass
class Firefox:
    """One browser with one tab; a page is opened as a file."""

    socket: WebSocket
    tab: str = ""
    _events: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _EVENTS})
    _number: int = 0

    def send(self, method: str, **parameters: Any) -> Any:
        """The result of a command; events that come before it are kept."""
        self._number += 1
        self.socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while (answer := json.loads(self.socket.recv())).get("id") != self._number:
            if answer.get("method") in self._events:
                self._events[answer["method"]].append(answer["params"])
        assert answer["type"] == "success", answer
        return answer["result"]

    def open(self, page: Path, width: int, fragment: str = "") -> None:
        """Open a page in a window `width` pixels wide; `fragment` begins with #."""
        self.send(
            "browsingContext.setViewport",
            context=self.tab,
            viewport={"width": width, "height": 900},
        )
        self.send(
            "browsingContext.navigate",
            context=self.tab,
            url=page.as_uri() + fragment,
            wait="complete",
        )

    def run(self, script: str) -> Any:
        """What a script in the page returns."""
        function = f"() => JSON.stringify((() => {{ {script} }})() ?? null)"
        target = {"context": self.tab}
        answer = self.send(
            "script.callFunction", functionDeclaration=function, awaitPromise=False, target=target
        )
        assert answer["type"] == "success", answer
        return json.loads(answer["result"]["value"])

    def complaints(self) -> list[str]:
        """What the console has shown since the last time."""
        return [entry["text"] or "" for entry in self._taken("log.entryAdded")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last time, but for fonts that the browser brings itself."""
        asked = [event["request"]["url"] for event in self._taken("network.beforeRequestSent")]
        return [url for url in asked if not url.startswith("data:font/")]

    def _taken(self, name: str) -> list[Any]:
        self.send("session.status")  # what comes before its answer has happened
        taken, self._events[name] = self._events[name], []
        return taken


@contextmanager
def firefox(place: Path) -> Iterator[Firefox]:
    """A browser with its profile in `place`, which can reach no other machine."""
    need("firefox-esr")
    lines = [
        f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
        for name, value in _PREFERENCES.items()
    ]
    (place / "user.js").write_text("".join(lines), encoding="utf-8")
    command = [
        "firefox-esr",
        "--headless",
        "--no-remote",
        "--profile",
        str(place),
        "--remote-debugging-port",
        "0",
    ]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stderr is not None
            found = next(
                m
                for line in process.stderr
                if (m := re.search(r"BiDi listening on (ws://\S+)", line))
            )
            with closing(
                create_connection(f"{found[1]}/session", timeout=180, suppress_origin=True)
            ) as socket:
                opened = Firefox(socket)
                opened.send("session.new", capabilities={})
                opened.send("session.subscribe", events=list(_EVENTS))
                opened.tab = opened.send("browsingContext.getTree")["contexts"][0]["context"]
                yield opened
        finally:
            process.terminate()
