"""`make audit-dependencies` in front of a vulnerability database on loopback, and of none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.places import REPOSITORY

KNOWN = {
    "id": "PYSEC-0000-1",
    "summary": "an example",
    "details": "an example",
    "aliases": [],
    "affected": [
        {
            "package": {"name": "brokenlib", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1"}]}],
        }
    ],
}


class Database(BaseHTTPRequestHandler):
    """Speaks as much of OSV's protocol as pip-audit asks for: one package is known to be vulnerable."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        vulnerable = asked["package"]["name"] == "brokenlib" and asked["version"] == "1.0"
        content = json.dumps({"vulns": [KNOWN]} if vulnerable else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def database() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Database)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/query"
    server.shutdown()
    server.server_close()


def audited(url: str, place: Path, *pins: str) -> subprocess.CompletedProcess[str]:
    (place / "pins.txt").write_text("".join(f"{pin}\n" for pin in pins))
    return subprocess.run(
        [
            sys.executable,
            str(REPOSITORY / "deployments" / "audit_dependencies.py"),
            str(place / "pins.txt"),
        ],
        env={**os.environ, "PIP_AUDIT_OSV_URL": url, "no_proxy": "*", "HOME": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_known_vulnerability_fails(database: str, tmp_path: Path) -> None:
    done = audited(database, tmp_path, "brokenlib==1.0", "soundlib==2.0")
    assert done.returncode == 1, done.stderr
    assert "brokenlib 1.0: PYSEC-0000-1, mended in 1.1" in done.stdout
    assert "2 package(s) audited, 1 with known vulnerabilities" in done.stdout


def test_nothing_known_passes(database: str, tmp_path: Path) -> None:
    done = audited(database, tmp_path, "brokenlib==1.1", "soundlib==2.0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "audit-dependencies: 2 package(s) audited, 0 with known vulnerabilities\n"


def test_no_database_passes_and_says_so(tmp_path: Path) -> None:
    """Never silently: somebody who reads the log sees that nothing was audited."""
    done = audited("http://127.0.0.1:9/v1/query", tmp_path, "soundlib==2.0")
    assert done.returncode == 0
    assert "NOT AUDITED: the vulnerability database cannot be reached" in done.stdout


def test_something_else_is_a_failure(database: str, tmp_path: Path) -> None:
    """A file that is no list of pins is not taken for a database that is away."""
    done = audited(database, tmp_path, "soundlib")
    assert done.returncode == 1
    assert "pip-audit failed" in done.stdout
