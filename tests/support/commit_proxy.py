"""A proxy in front of a PostgreSQL server that cuts the connection at the k-th COMMIT: before the server has it, or after."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import URL

Mode = Literal["swallow the answer", "cut before"]
_COMMIT = b"COMMIT\0"  # the whole statement, as either protocol of PostgreSQL sends it


@dataclass
class CommitProxy:
    """Counts the commits of all its connections; at number `fatal` (None: never) it does what `mode` says, once.

    `swallow the answer`: the server commits and the client never hears of it. `cut before`: the server never hears of the
    commit. Both ends are closed either way, and the next connection goes through.
    """

    upstream: URL
    mode: Mode = "swallow the answer"
    fatal: int | None = None
    commits: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def order(self, mode: Mode, fatal: int | None) -> None:
        """Begin to count anew, and cut at commit number `fatal`, counted from 1."""
        with self._lock:
            self.mode, self.fatal, self.commits = mode, fatal, 0

    def counts(self, data: bytes) -> bool:
        """Whether these bytes of a client hold the fatal commit."""
        if _COMMIT not in data:
            return False
        with self._lock:
            self.commits += 1
            return self.commits == self.fatal

    def serve(self, client: socket.socket) -> None:
        """One connection, until either end closes it or it is cut."""
        try:
            server = _connection(self.upstream)
        except OSError:  # a server that is away
            client.close()
            return
        silenced = threading.Event()
        back = threading.Thread(target=_answers, args=(server, client, silenced), daemon=True)
        back.start()
        with suppress(OSError):
            while data := client.recv(1 << 16):
                fatal = self.counts(data)
                if fatal and self.mode == "cut before":
                    break
                if fatal:
                    silenced.set()
                server.sendall(data)
                if fatal:
                    break  # `_answers` closes the client's end when the server has answered
        if silenced.is_set():
            back.join(30)
        for end in (client, server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _answers(server: socket.socket, client: socket.socket, silenced: threading.Event) -> None:
    with suppress(OSError):
        while data := server.recv(1 << 16):
            if silenced.is_set():
                return
            client.sendall(data)
        client.shutdown(socket.SHUT_RDWR)


def _connection(url: URL) -> socket.socket:
    folder = str(url.query.get("host", ""))
    if folder.startswith("/"):
        made = socket.socket(socket.AF_UNIX)
        made.connect(f"{folder}/.s.PGSQL.{url.port or url.query.get('port', 5432)}")
        return made
    return socket.create_connection((url.host or "127.0.0.1", url.port or 5432))


@contextmanager
def commit_proxy(upstream: URL) -> Iterator[tuple[CommitProxy, URL]]:
    """A proxy in front of the server at `upstream`, and the URL of the same database through it, without encryption."""
    proxy = CommitProxy(upstream)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=proxy.serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        query = {"sslmode": "disable", "gssencmode": "disable"}
        yield proxy, upstream.set(host="127.0.0.1", port=listener.getsockname()[1], query=query)
        listener.shutdown(socket.SHUT_RDWR)
