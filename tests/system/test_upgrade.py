"""An upgrade in the middle of runs, rehearsed with a wheel that is built on the spot and installed as several versions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from marginweave.accounting.records import State
from marginweave.ledger import Ledger
from tests.support.command_line import CommandLine
from tests.support.compiled_kernels import keep_compiled
from tests.support.people_table import people
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.system
_PROGRAM = 'import sys; from marginweave.flows.cli import main; sys.argv[0] = "marginweave"; main()'
# In the older program: the process is gone right before, or right after, the second length is charged.
_DIES = """
import os, sys
from marginweave.ledger.draws import Draws
begin = Draws.begin
def dying(draws, release, name, *more, **named):
    if name == "level-2" and "{when}" == "before":
        os._exit(9)
    begin(draws, release, name, *more, **named)
    if name == "level-2":
        os._exit(9)
Draws.begin = dying
sys.argv[0] = "marginweave"
from marginweave.flows.cli import main
main()
"""


def _built(place: Path, version: str) -> Path:
    """A wheel of this code under another version, installed in a folder."""
    copy = place / "source"
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, tracked.split("\0")):
        if name.startswith(("flows/", "tasks/", "schemas/", "src/")) or name in {
            "pyproject.toml",
            "README.md",
        }:
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, target)
    project = copy / "pyproject.toml"
    project.write_text(
        re.sub(r'(?m)^version = ".*"$', f'version = "{version}"', project.read_text(), count=1)
    )
    site = place / f"site-{version}"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", site, copy], check=True
    )
    keep_compiled(site / "marginweave")
    return site


def _copied(site: Path, version: str) -> Path:
    """The same wheel as another version."""
    other = site.with_name(f"site-{version}")
    shutil.copytree(site, other)
    (metadata,) = other.glob("marginweave-*.dist-info/METADATA")
    metadata.write_text(
        re.sub(r"(?m)^Version: .*$", f"Version: {version}", metadata.read_text(), count=1)
    )
    return other


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The version that begins runs, one with the same rules, and the same with a splitting rule of its own."""
    place = tmp_path_factory.mktemp("wheels")
    old = _built(place, "7.1")
    made = {"old": old, "new": _copied(old, "7.2"), "other": _copied(old, "7.3")}
    rule = made["other"] / "marginweave" / "measurements" / "split.py"
    text, before = rule.read_text(), "tuple(p / least * scale for p in proportions)"
    assert text.count(before) == 1
    rule.write_text(
        text.replace(
            before, "tuple(p / least * scale * (1 + i) for i, p in enumerate(proportions))"
        )
    )
    return made


@pytest.fixture
def begun(served: CommandLine, sites: dict[str, Path]) -> tuple[CommandLine, Path]:
    """A home with an account, and a configuration of two lengths."""
    config = people(served.home, 60, aggregate__reporting_length=2)
    opened = served("ledger", "open", "people", "--epsilon", "9", "--delta", "1e-5")
    assert opened.returncode == 0, opened.stderr
    return served, config


def _as(
    site: Path, cli: CommandLine, code: str, *arguments: str | Path
) -> subprocess.CompletedProcess[str]:
    """The program of a wheel, which hides the one that is installed here."""
    command = [sys.executable, "-P", "-c", code, *map(str, arguments)]
    environment = {**cli.variables, "PYTHONPATH": str(site)}
    return subprocess.run(
        command,
        cwd=cli.home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def _draws(cli: CommandLine) -> dict[str, State]:
    (record,) = Ledger.open(cli.home / "ledger" / "ledger.sqlite", environment={}).releases.of(
        "people"
    )
    return {draw.name: draw.state for draw in record.draws}


@pytest.mark.long  # whole installations of two versions
def test_a_run_goes_on_with_a_version_of_the_same_rules(begun, sites) -> None:
    """Stopped between two draws: the new version finishes it under its one charge, and the statement names both."""
    cli, config = begun
    assert (
        _as(sites["old"], cli, _DIES.format(when="before"), "run", config, "--run", "r").returncode
        == 9
    )
    assert _draws(cli)["level-2"] == State.RESERVED
    went = _as(sites["new"], cli, _PROGRAM, "run", config, "--run", "r")
    assert went.returncode == 0, went.stderr
    assert set(_draws(cli).values()) == {State.COMMITTED}
    statement = json.loads((cli.home / "runs" / "r" / "release" / "privacy.json").read_text())
    assert {"7.1", "7.2"} <= set(re.findall(r'"version": "(7\.\d)"', json.dumps(statement)))
    verified = _as(sites["new"], cli, _PROGRAM, "ledger", "verify")
    assert verified.returncode == 0, verified.stderr


def test_a_version_that_would_draw_otherwise_is_refused(begun, sites) -> None:
    """Exit 2, nothing drawn, what differs and what to do; the version that began the run finishes it."""
    cli, config = begun
    assert (
        _as(sites["old"], cli, _DIES.format(when="before"), "run", config, "--run", "r").returncode
        == 9
    )
    before = _draws(cli)
    refused = _as(sites["other"], cli, _PROGRAM, "run", config, "--run", "r")
    assert refused.returncode == 2, refused.stderr
    assert "level-2" in refused.stderr
    assert "program that began it" in refused.stderr
    assert _draws(cli) == before
    assert _as(sites["old"], cli, _PROGRAM, "run", config, "--run", "r").returncode == 0


@pytest.mark.long  # the refusal alone is tested above
def test_a_begun_draw_is_ended_by_the_program_that_began_it(begun, sites) -> None:
    """Killed between charge and noise: another program is refused, whatever its rules; the first one makes the draw."""
    cli, config = begun
    assert (
        _as(sites["old"], cli, _DIES.format(when="after"), "run", config, "--run", "r").returncode
        == 9
    )
    assert _draws(cli)["level-2"] == State.DRAWN
    refused = _as(sites["new"], cli, _PROGRAM, "run", config, "--run", "r")
    assert refused.returncode == 2, refused.stderr
    assert "was begun by marginweave 7.1" in refused.stderr
    assert _draws(cli)["level-2"] == State.DRAWN
    went = _as(sites["old"], cli, _PROGRAM, "run", config, "--run", "r")
    assert went.returncode == 0, went.stderr
    assert set(_draws(cli).values()) == {State.COMMITTED}


@pytest.mark.long  # whole installations of three versions
def test_a_finished_release_is_free_for_every_version(begun, sites) -> None:
    """The same file is the same release, whatever a version would plan for it."""
    cli, config = begun
    assert _as(sites["old"], cli, _PROGRAM, "run", config).returncode == 0
    rows = Ledger.open(cli.home / "ledger" / "ledger.sqlite", environment={}).verify()
    for name in ("new", "other"):
        again = _as(sites[name], cli, _PROGRAM, "run", config)
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout.splitlines()[-1])["charged_now"] is False
    assert Ledger.open(cli.home / "ledger" / "ledger.sqlite", environment={}).verify() == rows
