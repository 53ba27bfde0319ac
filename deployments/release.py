"""Make a release of Marginweave: check that this commit can be one, build its wheel, try it, and tag it.

`make release` calls it. Nothing is uploaded or pushed: the wheel is in dist/, the tag is local.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SEMANTIC = re.compile(r"\d+\.\d+\.\d+")


def output_of(*command: str | Path, where: Path = REPOSITORY) -> str:
    """What a command prints; it ends this program where it fails."""
    done = subprocess.run(  # noqa: S603
        [str(part) for part in command], cwd=where, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(
            f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stderr.strip()[-500:]}"
        )
    return done.stdout.strip()


def faults(version: str, changelog: str, status: str, tags: set[str]) -> list[str]:
    """Why this commit is no release, in words; nothing where it can be one."""
    found = []
    if not SEMANTIC.fullmatch(version):
        found.append(f"version {version} in pyproject.toml must be MAJOR.MINOR.PATCH")
    if status:
        found.append("there are changes that are not committed")
    if f"v{version}" in tags:
        found.append(f"tag v{version} is there already; give pyproject.toml the next version")
    if not re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE
    ):
        found.append(
            f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD': rename '## [Unreleased]'"
        )
    return found


def main() -> None:
    """Build, install in an empty environment with the pinned versions, ask for the version, and tag."""
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    found = faults(
        version,
        changelog,
        output_of("git", "status", "--porcelain"),
        set(output_of("git", "tag").split()),
    )
    if found:
        sys.exit("no release: " + "; ".join(found))
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    # a wheel would hold files that an earlier build left there
    shutil.rmtree(REPOSITORY / "build", ignore_errors=True)
    output_of(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", ".")
    wheel = next((REPOSITORY / "dist").glob(f"marginweave-{version}-*.whl"))
    with tempfile.TemporaryDirectory() as place:
        empty = Path(place)
        output_of(sys.executable, "-m", "venv", empty / "venv")
        installing = (
            empty / "venv" / "bin" / "python",
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
            "install",
        )
        output_of(*installing, "--constraint", REPOSITORY / "constraints.txt", wheel)
        said = output_of(empty / "venv" / "bin" / "marginweave", "--version", where=empty)
    if not said.startswith(f"marginweave {version} "):
        sys.exit(f"no release: the installed program says {said!r}")
    output_of("git", "tag", "--annotate", f"v{version}", "--message", f"Marginweave {version}")
    print(f"{said}: dist/{wheel.name}, tag v{version}")  # noqa: T201


if __name__ == "__main__":
    main()
