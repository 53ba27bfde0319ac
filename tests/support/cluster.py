"""A whole PostgreSQL as a distribution installs it: passwords over TCP, contributed extensions, psql and pg_dump."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.places import in_memory

SUPERUSER = "postgres"


@dataclass(frozen=True)
class Cluster:
    """A server on loopback that asks every role for its password, and where its programs are."""

    programs: Path
    port: int
    password_file: Path

    def url(self, role: str, database: str, scheme: str = "postgresql") -> str:
        """A URL without a password: PGPASSFILE has it."""
        return f"{scheme}://{role}@127.0.0.1:{self.port}/{database}"

    def program(
        self, name: str, *arguments: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run one of PostgreSQL's own programs as the superuser."""
        given = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": SUPERUSER,
            "PGPASSFILE": str(self.password_file),
        }
        return subprocess.run(
            [str(self.programs / name), *arguments],
            env={**os.environ, **given, **environment},
            capture_output=True,
            text=True,
            check=False,
        )


def pgpass(place: Path, port: int, **passwords: str) -> Path:
    """A file for PGPASSFILE: the passwords of roles on `port`."""
    place.write_text(
        "".join(f"127.0.0.1:{port}:*:{role}:{word}\n" for role, word in passwords.items())
    )
    place.chmod(0o400)
    return place


def installed_programs() -> Path:
    """Where the newest server of the system is; the test is skipped where there is none."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])
    )
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        refuse = pytest.fail if "MARGINWEAVE_REQUIRE_POSTGRESQL" in os.environ else pytest.skip
        refuse(
            "no PostgreSQL with its contributed extensions is installed (Debian: apt-get install postgresql)"
        )
    return found[-1].parent if found else Path(str(on_path)).parent


@contextmanager
def cluster(word: str) -> Iterator[Cluster]:
    """A server directly under the system's temporary folder, run by nobody where we are root; gone at the end."""
    programs = installed_programs()
    place = Path(tempfile.mkdtemp(prefix="cluster-", dir=in_memory()))
    try:
        given = place / "password"
        given.write_text(word)
        account = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        for path in (place, given):
            os.chown(path, account.pw_uid, account.pw_gid)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        _make(programs, place, given, account)
        server = _start(programs, place, port, account)
        try:
            yield Cluster(programs, port, pgpass(place / "superuser", port, **{SUPERUSER: word}))
        finally:
            server.send_signal(signal.SIGINT)  # a fast shutdown: it does not wait for clients
            try:
                server.wait(timeout=120)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _make(programs: Path, place: Path, given: Path, account: pwd.struct_passwd) -> None:
    command = [
        str(programs / "initdb"),
        "--pgdata",
        str(place / "data"),
        "--username",
        SUPERUSER,
        "--pwfile",
        str(given),
    ]
    command += ["--auth", "scram-sha-256", "--no-sync", "--encoding", "UTF8", "--locale", "C.UTF-8"]
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        user=account.pw_uid,
        group=account.pw_gid,
        cwd=place,
    )


def _start(
    programs: Path, place: Path, port: int, account: pwd.struct_passwd
) -> subprocess.Popen[bytes]:
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "fsync": "off",
        "max_connections": "60",
    }
    command = [str(programs / "postgres"), "-D", str(place / "data"), "-p", str(port)]
    command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    server = subprocess.Popen(
        command, cwd=place, user=account.pw_uid, group=account.pw_gid, stderr=subprocess.DEVNULL
    )
    for _ in range(200):
        ready = subprocess.run(
            [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port), "-t", "1"],
            check=False,
        )
        if ready.returncode == 0:
            return server
        if server.poll() is not None:
            break
        time.sleep(0.1)
    server.kill()
    raise RuntimeError("PostgreSQL does not start")
