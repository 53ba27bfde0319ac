"""Commands that make a release without Prefect, where it is not what a test is about."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from marginweave.runs.process_hardening import closed_to_others
from tests.support.plain_runs import plain_flow


@contextmanager
def commands_without_prefect() -> Iterator[None]:
    """Inside, `marginweave run` and its like call the stages in order as plain functions, and need no server."""
    session = importlib.import_module("marginweave.flows.prefect.session")
    package = importlib.import_module("marginweave.flows")
    with (
        plain_flow() as release,
        mock.patch.object(session, "prefect_session", return_value=closed_to_others()),
        mock.patch.object(package, "release", release),
    ):
        yield
