"""Notes the artifacts that are sent to Prefect."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import prefect.artifacts

ARTIFACTS = ("create_table_artifact", "create_markdown_artifact")


@contextmanager
def noted_artifacts(found: list[tuple[str, dict[str, Any]]]) -> Iterator[None]:
    """Note every artifact, and send it on."""

    def noting(name: str) -> Callable[..., Any]:
        send = getattr(prefect.artifacts, name)

        def call(**content: Any) -> Any:
            found.append((name, json.loads(json.dumps(content))))
            return send(**content)

        return call

    changes: dict[str, Any] = {name: noting(name) for name in ARTIFACTS}
    with mock.patch.multiple(prefect.artifacts, **changes):
        yield
