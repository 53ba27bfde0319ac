"""Prefect's own server as docs/production.md starts it: in a terminal it asks nothing, and its files are closed."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import stat
import subprocess
import tomllib
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from marginweave.flows.prefect.servers import answers
from tests.support.command_line import prefect_database, settle
from tests.support.places import REPOSITORY
from tests.support.production import BIN, documented, free_port, until

pytestmark = pytest.mark.system


def profile_block() -> str:
    """The shell lines of the page that write the profile."""
    page = (REPOSITORY / "docs" / "production.md").read_text()
    (block,) = re.findall(r"^```sh profile\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert isinstance(block, str)
    return block


@contextmanager
def in_a_terminal(script: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A shell script with a terminal for input and output; it is killed at the end."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-c", script],
        env=environment,
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
        os.close(ours)


def settings_of(url: str, password: str) -> dict[str, Any]:
    """The settings that a server says it has."""
    login = b64encode(password.encode()).decode()
    request = urllib.request.Request(
        f"{url}/admin/settings", headers={"Authorization": f"Basic {login}"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        settings: dict[str, Any] = json.loads(answer.read())
    return settings


def test_prefects_own_server_starts_as_the_page_says(tmp_path: Path, unused_database: Path) -> None:
    """In a terminal, too, where it would ask for an address that its profile does not have."""
    settle(tmp_path, unused_database)
    home, port = prefect_database(tmp_path).parent, free_port()
    url = f"http://127.0.0.1:{port}/api"
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFECT_", "MARGINWEAVE_"))
    }
    environment = {
        **kept,
        "HOME": str(tmp_path),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "PREFECT_HOME": str(home),
    }
    command = shlex.join([*documented("prefect server start"), "--port", str(port)])
    with in_a_terminal(f"{profile_block()}exec {command}", environment) as server:
        until(lambda: answers(url, 2.0) or server.poll() is not None, 120)
        assert server.poll() is None
        profile = tmp_path / "prefect-profiles"
        assert stat.S_IMODE(profile.stat().st_mode) == 0o600
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        password = tomllib.loads(profile.read_text())["profiles"]["office"][
            "PREFECT_API_AUTH_STRING"
        ]
        settings = settings_of(url, password)["server"]
        assert settings["analytics_enabled"] is False
        assert set(settings["services"]["db_vacuum"]["enabled"]) >= {"events", "flow_runs"}
        with pytest.raises(urllib.error.HTTPError, match="401"):
            settings_of(url, "office:wrong")
