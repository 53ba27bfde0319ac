"""Known vulnerabilities of the pinned dependencies: `make audit-dependencies`, or this file with another list of pins.

pip-audit asks the OSV database (https://osv.dev, or PIP_AUDIT_OSV_URL) about every line of constraints.txt. Exit 0: nothing is
known, or the database could not be asked, which is then said; exit 1: something is known, or pip-audit failed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

_UNREACHABLE = re.compile(
    r"ConnectionError|Could not connect|Timeout|NameResolution|ProxyError|SSLError"
)
_PINS = Path(__file__).resolve().parents[1] / "constraints.txt"


def main() -> int:
    """Ask about the pins of a file, say one line and one more for each finding, and return the exit code."""
    pins = Path(sys.argv[1]) if len(sys.argv) > 1 else _PINS
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--requirement",
        str(pins),
        "--no-deps",
        "--disable-pip",
    ]
    command += [
        "--vulnerability-service",
        "osv",
        "--format",
        "json",
        "--progress-spinner",
        "off",
        "--timeout",
        "10",
    ]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own interpreter
    try:
        found: list[dict[str, Any]] = json.loads(asked.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        if _UNREACHABLE.search(asked.stderr):
            return _say(
                0,
                "NOT AUDITED: the vulnerability database cannot be reached from here; run this where it can",
            )
        reason = (asked.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return _say(1, f"pip-audit failed: {reason}")
    return _judged(found)


def _judged(found: list[dict[str, Any]]) -> int:
    """The verdict on what pip-audit says of each package; one that it skipped is not one that is sound."""
    skipped = [package["name"] for package in found if "skip_reason" in package]
    lines = [
        f"{package['name']} {package['version']}: {finding['id']}, mended in {', '.join(finding['fix_versions']) or 'none'}"
        for package in found
        for finding in package.get("vulns", [])
    ]
    asked = len(found) - len(skipped)
    if skipped:
        lines.append(
            f"NOT AUDITED: {len(skipped)} package(s) that the database does not know: {', '.join(skipped)}"
        )
    known = sum(bool(package.get("vulns")) for package in found)
    lines.append(f"{asked} package(s) audited, {known} with known vulnerabilities")
    return _say(int(known > 0), *lines)


def _say(code: int, *lines: str) -> int:
    sys.stdout.write("".join(f"audit-dependencies: {line}\n" for line in lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
