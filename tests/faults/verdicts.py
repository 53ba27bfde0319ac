"""A plugin of pytest that tells how tests ended, and stops looking at a test once one of its cases has failed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

PASSED = "passed"
ASSERTION = "assertion"
_NEVER = "not collected"
_ENOUGH = "a case of it has failed"


class Verdicts:
    """How each of `tests`, by the name they are asked for, ended: the worst of all its cases."""

    def __init__(self, tests: list[str]) -> None:
        self.ends: dict[str, str] = dict.fromkeys(tests, _NEVER)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Leave out the further cases of a test that has failed."""
        if not any(self.ends[test] in {PASSED, _NEVER} for test in self._asked(item)):
            pytest.skip(_ENOUGH)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Note the end of a phase."""
        if call.excinfo is None:
            end = PASSED if call.when == "call" else None
        elif call.excinfo.errisinstance(pytest.skip.Exception) and _ENOUGH in str(
            call.excinfo.value
        ):
            end = None
        else:
            kind = _kind(call.excinfo.value)
            end = kind if call.when == "call" or kind != ASSERTION else f"assertion in {call.when}"
        for test in self._asked(item):
            if end is not None and (end != PASSED or self.ends[test] == _NEVER):
                self.ends[test] = end

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what could not even be collected."""
        if report.failed:
            for test in self.ends:
                if test.startswith(report.nodeid):
                    self.ends[test] = "error of collection"

    def _asked(self, item: pytest.Item) -> Iterator[str]:
        """The names by which an item was asked for."""
        return (
            test
            for test in self.ends
            if item.nodeid == test or item.nodeid.startswith((f"{test}[", f"{test}::"))
        )


def _kind(error: BaseException) -> str:
    """What a test failed with: an assertion, `pytest.fail` and `pytest.raises` included, or the name of an error."""
    if isinstance(error, BaseExceptionGroup):
        kinds = sorted({_kind(one) for one in error.exceptions})
        return kinds[0] if len(kinds) == 1 else ", ".join(kinds)
    if isinstance(error, AssertionError | pytest.fail.Exception):
        return ASSERTION
    return type(error).__name__
