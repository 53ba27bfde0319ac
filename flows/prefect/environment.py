"""Environment variables for the import of Prefect, and a context that makes imports fast."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

from marginweave.base.errors import InputError
from marginweave.runs.home import service_directory

# Usage analytics would go to other machines; a run talks to loopback only.
ANALYTICS_OFF = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
# Prefect's console lines would hide the progress; its log goes to a file of the run instead.
QUIET = {
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PREFECT_LOGGING_COLORS": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "false",
}
# Keeps the database of our server small: Prefect forgets flow runs, with logs and artifacts, after 90 days.
RETENTION = {"PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs"}

# Process id of `marginweave serve`, for the releases that it starts: they end with it, and resume at its next start.
SERVICE = "MARGINWEAVE_SERVICE"
# Set where that service prints to a terminal: its releases then report in sentences instead of JSON.
SERVICE_TERMINAL = "MARGINWEAVE_SERVICE_TERMINAL"


def makes_database(home: Path, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a server that we start would have to make its database first."""
    if "PREFECT_API_URL" in environment:
        return False
    database = service_directory(home) / "prefect" / "prefect.db"
    return not database.exists()


def prepare_environment(home: Path, environment: MutableMapping[str, str] = os.environ) -> None:
    """Switch analytics off, and give Prefect a folder in the home (`runs/` is beside it); must run before it is imported."""
    environment.update(ANALYTICS_OFF)
    try:
        Path.home()
    except RuntimeError:  # Prefect looks for its plugins there, and does not start without one
        environment["HOME"] = str(service_directory(home))
    prefect_home = str(service_directory(home) / "prefect")
    if "PREFECT_API_URL" in environment:
        environment.setdefault("PREFECT_HOME", prefect_home)
        return
    # Our server for one run: nobody reads logs there. A server that the user named keeps its settings.
    environment.update(QUIET)
    for name, value in RETENTION.items():
        environment.setdefault(name, value)
    environment["PREFECT_HOME"] = prefect_home


def forget_proxies(url: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Let this process reach the Prefect API at `url` without a proxy if it is on this machine, which no proxy can reach.

    A client looks at proxies when it is made, also at one that it will not use and cannot: a list of hosts is not enough.

    Raises:
        InputError: the API is elsewhere, by way of a SOCKS proxy that Prefect's client cannot use.
    """
    if _is_here(url):
        environment.update({"NO_PROXY": "*", "no_proxy": "*"})
        return
    socks = [name for name, proxy in getproxies_environment().items() if proxy.startswith("socks")]
    if socks and find_spec("socksio") is None:
        raise InputError(
            f"{socks[0]}_proxy is a SOCKS proxy, which Prefect's client cannot use: install the package socksio, or set "
            "no_proxy to * if no proxy is needed"
        )


def _is_here(url: str) -> bool:
    """Return whether a URL is of this machine's own loopback."""
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")


def with_loopback(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with this machine's own addresses among those that need no proxy."""
    named = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    hosts = ",".join(filter(None, (named, "127.0.0.1", "localhost")))
    return {**environment, "NO_PROXY": hosts, "no_proxy": hosts}


# Extras that libraries of ours load where they are installed, and that no command uses: a command line of httpx with colours,
# another event loop, made-up tables for tests of contracts. They take up to a second.
_EXTRAS = ("httpx._main", "hypothesis", "trio")
# Objects after which Python looks for garbage among the new ones, and how many times before it looks at older ones: by default
# 700, 10 and 10. A release makes hardly any, and its searches took a twentieth of the CPU time of a small one.
_SELDOM = (10_000, 20, 100)


@contextmanager
def importing() -> Iterator[None]:
    """Switch garbage collection off for imports inside, at the start of a process of ours; later it skips what they made.

    Imported modules stay until the end. To search them for garbage again and again, while they grow, takes a fifth of the time.
    Extras that nobody uses look as if they were not installed; after the block they can be imported.
    """
    hidden = [name for name in _EXTRAS if name not in sys.modules]
    gc.disable()
    loaded: dict[str, Any] = sys.modules
    loaded.update(dict.fromkeys(hidden))  # None: an import of it fails
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
        gc.freeze()
        gc.set_threshold(*_SELDOM)
        gc.enable()
