"""What `make release` refuses before it builds anything."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PLACE = Path(__file__).resolve().parents[2] / "deployments" / "release.py"
SPEC = importlib.util.spec_from_file_location("release_of_marginweave", PLACE)
assert SPEC is not None
assert SPEC.loader is not None
release = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release)
LOG = "# Changelog\n\n## [Unreleased]\n\n## [0.3.0] - 2027-01-31\n\n## [0.2.0] - 2026-11-23\n"


def test_a_commit_that_can_be_released_has_no_fault() -> None:
    assert release.faults("0.3.0", LOG, "", {"v0.2.0"}) == []


@pytest.mark.parametrize(
    ("version", "status", "tags", "said"),
    [
        ("0.3", "", set(), "MAJOR.MINOR.PATCH"),
        ("0.3.0", " M flows/release.py", set(), "not committed"),
        ("0.2.0", "", {"v0.1.0", "v0.2.0"}, "tag v0.2.0 is there already"),
        ("0.4.0", "", set(), "CHANGELOG.md has no section '## [0.4.0]"),
    ],
)
def test_each_fault_is_said(version: str, status: str, tags: set[str], said: str) -> None:
    (fault,) = [each for each in release.faults(version, LOG, status, tags) if said in each]
    assert fault
