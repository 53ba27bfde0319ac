"""The mutation gate: every planted fault is noticed by the checks that are named for it, and these pass without it.

A fault is killed by a test that fails with an assertion; one that does not run, or ends with another error, has killed nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.faults.catalogue import FAULTS, SECTIONS
from tests.faults.fault import Fault, MovedError
from tests.faults.page import PAGE, written
from tests.faults.verdicts import ASSERTION, PASSED
from tests.support.places import REPOSITORY

Judge = Callable[[Fault | None, Sequence[str]], dict[str, Any]]
# Faults of published programs and texts, or of drafts of this one: they stay in the catalogue.
KNOWN = {
    "the sum in sigma_k runs to k, not to R",
    "the root of Delta_k is missing in the noise",
    "the root of Delta_1 is missing in the threshold",
    "sigma is halved",
    'the "+ 1" of the threshold is missing',
    "a noisy count above the printed rho_1 is released, where it has to reach the integer T",
    "counts are suppressed by what they are exactly",
    "cells in which nobody is get no noise",
    "noise is used again at a retry",
    "a percentile is chosen from the range of the data",
    "the score of the percentile is that of SDS",
    "of a subject's rows the first in the file are kept",
    "a seed was left in",
    "noise is a float that is rounded",
    "delta is used twice, for the threshold and whole for the noise",
    "theta is ignored in the noise",
    "a resized table has max(m, n) records, not min(m, n)",
    "a private domain is that of the rows, not of what bounding left of them",
    "the number of records is released without noise",
    "the text of an exception quotes what a library said",
    "the charge comes after the draw",
}


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """How tests end in a process of their own, with a fault planted or with none."""

    def ask(fault: Fault | None, tests: Sequence[str]) -> dict[str, Any]:
        order = {
            "fault": fault and asdict(fault),
            "tests": list(tests),
            "place": str(tmp_path / "tests"),
        }
        judged = subprocess.run(
            [sys.executable, "-m", "tests.faults.judge"],
            cwd=REPOSITORY,
            input=json.dumps(order),
            capture_output=True,
            text=True,
            check=False,
        )
        assert judged.returncode == 0, (judged.stdout + judged.stderr)[-2000:]
        answer: dict[str, Any] = json.loads(judged.stdout.splitlines()[-1])
        return answer

    return ask


@pytest.mark.long  # these checks are tests of the suite, and pass there
def test_without_a_fault_every_check_passes(judge: Judge) -> None:
    """Under the same settings as with one."""
    tests = sorted({test for fault in FAULTS.values() for test in fault.killed_by})
    assert judge(None, tests)["ends"] == dict.fromkeys(tests, PASSED)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=name, marks=() if name in KNOWN else pytest.mark.long)
        for name, fault in FAULTS.items()
    ],
)
def test_a_fault_is_killed(judge: Judge, fault: Fault) -> None:
    """By the first of the checks that are named for it; it was the faulty module that it saw."""
    verdict = judge(fault, fault.killed_by[:1])
    assert verdict == {"planted": True, "ends": {fault.killed_by[0]: ASSERTION}}


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [fault for fault in FAULTS.values() if len(fault.killed_by) > 1],
    ids=lambda fault: fault.name,
)
def test_every_named_check_kills(judge: Judge, fault: Fault) -> None:
    """Each of the others alone would have noticed."""
    others = fault.killed_by[1:]
    assert judge(fault, others) == {"planted": True, "ends": dict.fromkeys(others, ASSERTION)}


STAGE_TEST = "tests/unit/tasks/test_stage.py::test_a_stage_neither_retries_nor_caches"


@pytest.mark.parametrize(
    ("instead", "end"),
    [
        ("log_prints=bool(0)", PASSED),
        ("log_prints=nothing", "NameError"),
        ("log_prints=(", "error of collection"),
    ],
    ids=["nothing", "an error", "no import"],
)
def test_the_gate_tells_other_ends_from_kills(judge: Judge, instead: str, end: str) -> None:
    """A change that is no fault survives, and one that only breaks the code has not been noticed by an assertion."""
    changed = Fault(
        name="change",
        file="flows/release.py",
        text="persist_result=False,\n        log_prints=False,\n",
        instead=f"persist_result=False,\n        {instead},\n",
        killed_by=(STAGE_TEST,),
    )
    verdict = judge(changed, changed.killed_by)
    assert verdict == {"planted": end != "error of collection", "ends": {STAGE_TEST: end}}


def test_code_that_has_moved_is_told() -> None:
    """A fault whose text is gone, or stands there twice, is no fault that was planted."""
    fault = next(iter(FAULTS.values()))
    for source in ("", fault.text * 2):
        with pytest.raises(MovedError, match="write the fault anew"):
            fault.planted_in(source)


def test_the_catalogue_is_whole() -> None:
    """No name twice, none that changes nothing or whose code has moved, and those that this field is known to have made."""
    assert len(FAULTS) == sum(map(len, SECTIONS.values()))
    assert FAULTS.keys() >= KNOWN
    for fault in FAULTS.values():
        source = (REPOSITORY / fault.file).read_text(encoding="utf-8")
        assert fault.killed_by
        assert fault.planted_in(source) != source


def test_the_page_is_the_catalogue() -> None:
    """`python -m tests.faults.page` writes it."""
    assert PAGE.read_text(encoding="utf-8") == written()
