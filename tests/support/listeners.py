"""Who is told on loopback: a web server and a mail server that keep what they are sent."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def mail_server(received: list[str]) -> Iterator[int]:
    """Port of an SMTP server; every mail becomes one text in `received`."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.answer("220 here")
            for line in self.rfile:
                word = line.decode().strip().upper()
                if word == "DATA":
                    self.answer("354 go on")
                    received.append(self.message())
                self.answer("221 bye" if word == "QUIT" else "250 ok")

        def message(self) -> str:
            lines = []
            for line in self.rfile:
                if line == b".\r\n":
                    break
                lines.append(line.decode())
            return "".join(lines)

        def answer(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def listener(heard: list[dict[str, Any]]) -> Iterator[str]:
    """URL of an HTTP server on loopback that keeps what is POSTed to it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - takes all
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
