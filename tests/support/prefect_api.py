"""Prefect's API as tests ask it, without the client that the product uses."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any


def ask(api: str, path: str, body: Any = None, method: str = "POST") -> Any:
    """The answer of the API at the URL `api`; asked once more where its SQLite is locked by what its services write (503)."""
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{api}{path}", content, {"Content-Type": "application/json"}, method=method
    )
    for pause in (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
        try:
            with urllib.request.urlopen(request, timeout=200) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            time.sleep(pause)
    raise AssertionError(f"{path}: the server stays locked")
