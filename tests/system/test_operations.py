"""docs/operations.md is true: its commands are run from the page, each after the disaster that it mends."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from marginweave.ledger import Ledger
from tests.support.cluster import Cluster, pgpass
from tests.support.command_line import CommandLine, settle
from tests.support.configurations import raw
from tests.support.people_table import people
from tests.support.places import INSTALLED, REPOSITORY

PAGE = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
_BLOCK = re.compile(
    r"^```sh (?P<mark>(?:not )?executed)(?P<where> postgresql)?(?: exit (?P<code>\d))?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """Commands of the page: under which heading, whether and where they are run, and how the last one ends."""

    heading: str
    text: str
    executed: bool
    postgresql: bool
    code: int


def read(page: str) -> list[Block]:
    """Its blocks, in order."""
    headings = [
        (match.start(), match[1]) for match in re.finditer(r"^##+ (.*)$", page, re.MULTILINE)
    ]
    return [
        Block(
            heading=[name for start, name in headings if start < match.start()][-1],
            text=match["text"],
            executed=match["mark"] == "executed",
            postgresql=bool(match["where"]),
            code=int(match["code"] or 0),
        )
        for match in _BLOCK.finditer(page)
    ]


BLOCKS = read(PAGE)
# What an operator is told by the commands that are refused, so that each is refused for the reason of its section.
SAYS = {
    "The machine is lost in the middle of a run": r"was charged to account visits before",
    "The ledger's key is lost": r"key is neither in",
    "An old copy of the ledger was restored": r"before the anchored row|older copy of itself",
    "PostgreSQL is down": r"127\.0\.0\.1:9/ledger cannot be used",
    "The source has changed": r"source",
    "The budget is exhausted": r"marginweave ledger cap visits",
    "A checkpoint is corrupt": r"level-1",
    "A released file was changed": r"synthetic\.csv",
    "The Prefect server has ended, or does not answer": r"the Prefect API does not answer",
    "A nightly release is refused every night": r"marginweave ledger cap visits",
    "Smaller things": r"home is a URL",
}


class Office:
    """A home with configuration, table, backup and vault, in which the page's commands are run as one would type them."""

    def __init__(self, cli: CommandLine, place: Path) -> None:
        self.home, self.backup, self.vault = cli.home, place / "backup", place / "vault"
        for folder in (self.backup, self.vault):
            folder.mkdir(mode=0o700)
        columns = {name: raw()["columns"][name] for name in ("sex", "region", "age")}
        people(self.home, dataset="visits", source="visits.csv", columns=columns).rename(
            self.home / "visits.yaml"
        )
        (self.home / "people.csv").rename(self.home / "visits.csv")
        self.environment = {
            **cli.variables,
            "BACKUP": str(self.backup),
            "VAULT": str(self.vault),
            "PATH": f"{INSTALLED.parent}{os.pathsep}{os.environ['PATH']}",
        }

    @property
    def ledger(self) -> Path:
        return Path(self.environment["MARGINWEAVE_LEDGER"])

    def runs(self, name: str) -> Path:
        return self.home / "runs" / name

    def do(self, block: Block) -> None:
        """Run one block and hold it to what the page says of it."""
        command = ["bash", "-eu", "-o", "pipefail", "-c", block.text]
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == block.code, f"{block.heading}\n{block.text}\n{said}"
        assert "Traceback" not in said
        if block.code:
            assert re.search(SAYS[block.heading], " ".join(said.split())), said

    def section(self, heading: str, *, postgresql: bool = False) -> None:
        """Run what stands under a heading for the one database or the other."""
        blocks = [
            b for b in BLOCKS if b.heading == heading and b.executed and b.postgresql == postgresql
        ]
        assert blocks, heading
        for block in blocks:
            self.do(block)

    def killed(self, run: str) -> None:
        """A run that is killed when everything is drawn and nothing is published."""
        command = ["marginweave", "run", "visits.yaml", "--run", run]
        process = subprocess.Popen(
            command, env=self.environment, cwd=self.home, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("stage") == "collect":
                break
        process.send_signal(signal.SIGKILL)
        assert process.wait(timeout=180) == -signal.SIGKILL
        process.stdout.close()

    def stopped(self, run: str) -> None:
        """A run that a scheduler ends when something is drawn."""
        command = [INSTALLED, "run", "visits.yaml", "--run", run]
        process = subprocess.Popen(
            command,
            env=self.environment,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert any(json.loads(line).get("charged") for line in process.stdout), (
            process.communicate()
        )
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=180)
        assert process.returncode == 128 + signal.SIGTERM
        assert "stopped by SIGTERM. Nothing is lost or charged twice" in told

    def released(self, run: str) -> None:
        subprocess.run(
            ["marginweave", "run", "visits.yaml", "--run", run],
            env=self.environment,
            cwd=self.home,
            check=True,
            capture_output=True,
        )


def _lose_the_machine(office: Office) -> None:
    office.killed("visits-2026-11")
    shutil.rmtree(office.runs("visits-2026-11"))


def _restore_an_old_copy(office: Office, *, postgresql: bool = False) -> None:
    """Back up, release, anchor, and put the copy back: all but the release from the page."""
    office.section("Back up", postgresql=postgresql)
    office.released("visits-2027-01")
    anchor = subprocess.run(
        ["marginweave", "ledger", "anchor"], env=office.environment, check=True, capture_output=True
    )
    (office.vault / "ledger-anchor.json").write_bytes(anchor.stdout)
    office.section("Put a copy back", postgresql=postgresql)


def _lose_prefect(office: Office) -> None:
    """Without a server that others run: its database is in the home."""
    for name in ("PREFECT_API_URL", "PREFECT_HOME"):
        del office.environment[name]
    office.environment["PATH"] = (
        f"{INSTALLED.parent}{os.pathsep}{office.environment['PATH']}"  # with a server of its own
    )
    office.killed("visits-2027-04")
    shutil.rmtree(office.home / ".marginweave" / "prefect")


def _change_the_source(office: Office) -> None:
    with (office.home / "visits.csv").open("a") as table:
        table.write("f,north,33,\n")


def _exhaust_the_budget(office: Office) -> None:
    ledger = Ledger.open(office.ledger, environment={})
    total = ledger.accounts.total("visits")
    ledger.accounts.change_cap(
        "visits", total.epsilon * 1.01, float(total.account.delta), "test", "harness"
    )


def _spoil_a_draw(office: Office) -> None:
    office.killed("visits-2027-07")
    for draw in (office.runs("visits-2027-07") / "private" / "draws").glob("level-1.*"):
        content = bytearray(draw.read_bytes())
        content[len(content) // 2] ^= 1
        draw.write_bytes(content)


def _change_a_released_file(office: Office) -> None:
    with (office.runs("visits-2026-09") / "release" / "synthetic.csv").open("a") as table:
        table.write("f,north,1\n")


DISASTERS: dict[str, Callable[[Office], None]] = {
    "The worker or the machine was killed": lambda office: office.killed("visits-2026-10"),
    "The machine is lost in the middle of a run": _lose_the_machine,
    "The ledger's key is lost": lambda office: office.ledger.with_name("ledger.key").unlink(),
    "An old copy of the ledger was restored": _restore_an_old_copy,
    "PostgreSQL is down": lambda _: None,  # the block names a port where nobody listens
    "Prefect's database is lost": _lose_prefect,
    "The source has changed": _change_the_source,
    "The budget is exhausted": _exhaust_the_budget,
    "A checkpoint is corrupt": _spoil_a_draw,
    "A released file was changed": _change_a_released_file,
}
RUNBOOK: dict[str, Callable[[Office], None]] = {
    "A command ends with 143 or 130": lambda office: office.stopped("visits-2027-08"),
    "A nightly release is refused every night": _exhaust_the_budget,
}


@pytest.fixture
def office(served: CommandLine, unused_database: Path, tmp_path: Path) -> Office:
    settle(served.home, unused_database)  # of a server of its own, when it needs one
    return Office(served, tmp_path)


@pytest.mark.long  # three minutes of one core; its commands have tests of their own
@pytest.mark.system
def test_the_page_from_top_to_bottom(office: Office) -> None:
    """Installed, backed up, struck by one disaster after the other, mended each time by the page, and handed to an auditor."""
    seen: set[str] = set()
    named, causes = dict(office.environment), DISASTERS | RUNBOOK
    for block in BLOCKS:
        if not block.executed or block.postgresql:
            continue
        if block.heading in causes and block.heading not in seen:
            causes[block.heading](office)
        seen.add(block.heading)
        office.do(block)
        if block.heading == "Prefect's database is lost":
            office.environment.update(named)
    assert set(causes) <= seen
    handed = office.vault / "audit-2027"
    assert (handed / "events.jsonl").is_file()
    assert (handed / "release" / "privacy.json").is_file()
    assert {path.stat().st_mode & 0o077 for path in office.backup.iterdir()} == {0}


@pytest.mark.system
# the page's blocks for SQLite, which are run above, once more against a server of its own
@pytest.mark.long
def test_an_old_copy_in_postgresql(databases: Cluster, office: Office, tmp_path: Path) -> None:
    """pg_dump, another release, pg_restore by the tables' owner: the anchor tells, runs refuse, and the way out leads out."""
    words = {"OWNER_PASSWORD": "owner-word", "WRITER_PASSWORD": "writer-word"}
    sql = REPOSITORY / "deployments" / "postgresql" / "ledger.sql"
    assert databases.program("psql", "--quiet", "--file", str(sql), **words).returncode == 0
    office.environment |= {
        "MARGINWEAVE_LEDGER": databases.url("ledger_writer", "ledger"),
        "MARGINWEAVE_LEDGER_OWNER": databases.url("ledger_owner", "ledger"),
        "MARGINWEAVE_LEDGER_KEY_FILE": str(tmp_path / "key" / "ledger.key"),
        "PGPASSFILE": str(
            pgpass(
                tmp_path / "pgpass",
                databases.port,
                ledger_owner="owner-word",
                ledger_writer="writer-word",
            )
        ),
        "PATH": f"{databases.programs}{os.pathsep}{office.environment['PATH']}",
    }
    office.section("Install", postgresql=True)
    office.section("Install")
    _restore_an_old_copy(office, postgresql=True)
    office.section("An old copy of the ledger was restored")
    assert (
        databases.program(
            "psql",
            databases.url("ledger_writer", "ledger"),
            "--command",
            "DELETE FROM events",
            PGPASSFILE=office.environment["PGPASSFILE"],
        ).returncode
        != 0
    )  # fmt: skip - what was restored has the rights and triggers that it had


def test_a_copy_of_a_ledger_that_is_being_written(tmp_path: Path) -> None:
    """The page's copy is whole while another process is in the middle of a write, and has what was committed."""
    from tests.support.releases import ACCOUNT, reserve_release, small_plan

    place = tmp_path / "ledger" / "ledger.sqlite"
    ledger = Ledger.create(place, environment={})
    ledger.accounts.open(ACCOUNT, actor="steward")
    (copying,) = re.findall(r"^(python3 -c .*?\n.*?)$", PAGE, re.MULTILINE)
    copy = tmp_path / "copy" / "ledger.sqlite"
    copy.parent.mkdir()
    shutil.copy(place.with_name("ledger.key"), copy.with_name("ledger.key"))
    reserve_release(ledger, small_plan())
    rows = ledger.verify()
    environment = {**os.environ, "MARGINWEAVE_LEDGER": str(place), "BACKUP": str(copy.parent)}
    with closing(sqlite3.connect(place, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO accounts (dataset, opened) VALUES ('half', 99)")
        subprocess.run(["bash", "-c", copying], env=environment, check=True, timeout=180)
        writer.execute("ROLLBACK")
    assert Ledger.open(copy, environment={}).verify() == rows


def test_every_block_is_marked_and_every_disaster_mended() -> None:
    """No command stands unmarked; each section of disasters has commands; most are executed; files that are named exist."""
    commands = re.findall(r"^```sh.*$", PAGE, re.MULTILINE)
    assert len(commands) == len(BLOCKS)
    disasters = re.findall(
        r"^### (.*)$", PAGE.partition("\n## Disasters\n")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert set(disasters) == {*DISASTERS, "The disk is full"}
    assert {b.heading for b in BLOCKS} >= set(disasters)
    entries = PAGE.partition("\n## Runbook\n")[2].partition("\n## ")[0].split("\n### ")[1:]
    assert {entry.partition("\n")[0] for entry in entries} >= set(RUNBOOK)
    for entry in entries:  # what one sees, what it means, what to do, and a command for it
        assert re.findall(r"^- \*\*(You see|It means|Do)\*\*|^(```sh)", entry, re.MULTILINE)[:4] == [
            *((label, "") for label in ("You see", "It means", "Do")), ("", "```sh")]  # fmt: skip
    assert len(entries) == 3
    assert sum(b.executed for b in BLOCKS) > 2 * sum(not b.executed for b in BLOCKS)
    for test in re.findall(r"`(tests/[\w/]+\.py)`", PAGE):
        assert (REPOSITORY / test).is_file(), test
    for file in re.findall(r"\b(deployments/[\w./-]+\.(?:json|sql|yaml))", PAGE):
        assert (REPOSITORY / file).is_file() or file == "deployments/prefect.yaml", file
