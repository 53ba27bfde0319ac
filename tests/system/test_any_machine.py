"""Machines that are not as a developer's: proxies, a user without a name or a home, a root that cannot be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from marginweave.base import user
from marginweave.base.errors import InputError
from marginweave.flows.prefect.environment import forget_proxies, with_loopback
from marginweave.ledger.location import ledger_location
from tests.support.command_line import CommandLine
from tests.support.people_table import people
from tests.support.places import INSTALLED

pytestmark = pytest.mark.system

# nobody listens there; a SOCKS proxy and a text that is no URL cannot even be made a client of
PROXIES = {
    "ALL_PROXY": "socks5://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "https_proxy": "nowhere://",
}
NOBODY = 54321


def test_a_run_reaches_its_own_server_without_a_proxy(settled: CommandLine) -> None:
    config = people(settled.home, 40)
    command = CommandLine(settled.home, PROXIES)
    assert command("ledger", "open", "people", "--for", config).returncode == 0
    done = command("run", config, "--run", "r", timeout=120)
    assert done.returncode == 0, done.stderr


def test_only_a_server_on_this_machine_needs_no_proxy() -> None:
    """A server elsewhere is reached as the environment says, or a sentence says why it cannot be."""
    environment = dict(PROXIES)
    forget_proxies("http://127.0.0.1:4200/api", environment)
    assert environment["NO_PROXY"] == environment["no_proxy"] == "*"
    elsewhere = {"HTTP_PROXY": "http://127.0.0.1:9"}
    forget_proxies("https://prefect.example/api", elsewhere)
    assert elsewhere == {"HTTP_PROXY": "http://127.0.0.1:9"}
    assert with_loopback({"NO_PROXY": "a.example"})["no_proxy"] == "a.example,127.0.0.1,localhost"


def test_a_socks_proxy_that_the_client_cannot_use_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("no_proxy", "all_proxy", "http_proxy", "https_proxy"):  # left there by other tests
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("ALL_PROXY", PROXIES["ALL_PROXY"])
    with pytest.raises(ImportError, match="socksio"):
        httpx.Client()  # what would stop the run otherwise
    with pytest.raises(InputError, match="all_proxy is a SOCKS proxy"):
        forget_proxies("https://prefect.example/api")


def test_a_user_without_a_name_is_named_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError

    monkeypatch.setattr("getpass.getuser", nobody)
    assert user.user_name() == f"uid {os.getuid()}"


def test_without_a_home_the_place_of_the_ledger_must_be_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_home(*_: object, **__: object) -> Path:
        raise RuntimeError

    monkeypatch.setattr("platformdirs.user_data_path", no_home)
    with pytest.raises(InputError, match=r"this user has no home.*set MARGINWEAVE_LEDGER"):
        ledger_location({})
    assert ledger_location({"MARGINWEAVE_LEDGER": "/a/ledger.sqlite"}) == Path("/a/ledger.sqlite")


def test_kernels_are_compiled_where_no_cache_can_be_written(tmp_path: Path) -> None:
    """Beside the source and in the user's cache nothing can be written; the second process compiles as the first did."""
    source = tmp_path / "sums.py"
    source.write_text(
        "from marginweave.base.compiled import kernel\n"
        "@kernel\n"
        "def double(number):\n"
        "    return 2 * number\n"
        "print(double(21))\n"
    )
    (tmp_path / "__pycache__").touch()
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    environment |= {"HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none"}
    done = subprocess.run(
        [sys.executable, "-B", source], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


# A root that nobody can write, one folder that can be, a user without name and home: what a hardened container has.
CONTAINER = """
mount --make-rprivate / && mount -t tmpfs -o mode=755,uid={user} tmpfs {volume} || exit 77
cp -r {given}/. {volume} && chown -R {user} {volume} && cd {volume}
for place in $(cut -d" " -f2 /proc/mounts | grep -v -e ^/proc -e ^/dev -e ^/sys -e ^{volume}$); do
    mount -o remount,bind,ro $place || echo "$place stays as it is" >&2
done
if touch /usr/probe; then rm /usr/probe; exit 77; fi
exec setpriv --reuid={user} --regid=0 --clear-groups --inh-caps=+dac_read_search \\
    --ambient-caps=+dac_read_search env -i PATH=$PATH PYTHONPATH=$PYTHONPATH MARGINWEAVE_HOME={volume} \\
    MARGINWEAVE_LEDGER={volume}/ledger/ledger.sqlite sh -ec '
{program} ledger open people --for {config}
{program} run {config} --run r
{program} query r --by sex
{program} publish r --to {volume}/published --even-so
test -s published/report.html'
"""


@pytest.mark.long  # compiles all kernels, and nothing is kept of it
def test_a_container_with_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("this machine lets nobody mount")
    given = tmp_path / "given"
    given.mkdir()
    config = people(given, 40)
    script = CONTAINER.format(
        user=NOBODY, volume="/srv", given=given, config=config.name, program=INSTALLED
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    if done.returncode == 77:
        pytest.skip("this machine lets nobody mount")
    assert done.returncode == 0, done.stderr
    assert "internal error" not in done.stderr
