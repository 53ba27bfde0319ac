"""The auditor's commands on a real release, and a ledger that is lost in every way it can be."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from marginweave.base.errors import AuditError
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.keys import load_key
from marginweave.verify.files import audit_files
from tests.support.command_line import CommandLine
from tests.support.people_table import people
from tests.support.release_checks import opened

pytestmark = pytest.mark.system


def ledger_of(cli: CommandLine) -> Path:
    return cli.home / "ledger" / "ledger.sqlite"


def audit(cli: CommandLine, *arguments: str | Path) -> str:
    """What `ledger verify` says of a ledger that holds."""
    result = cli("ledger", "verify", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def fault(cli: CommandLine, *arguments: str | Path) -> str:
    """What `ledger verify` names; it leaves with 1."""
    result = cli("ledger", "verify", *arguments)
    assert result.returncode == 1, result.stdout + result.stderr
    assert result.stdout == ""
    return result.stderr


def flip(path: Path, position: int = 40) -> bytes:
    """Change one byte and return what was there."""
    before = path.read_bytes()
    path.write_bytes(
        bytes(b ^ 1 if i == position % len(before) else b for i, b in enumerate(before))
    )
    return before


def every_byte_counts(cli: CommandLine, kept: list[Path]) -> None:
    """Flip bytes of every kept checkpoint, draw and released file, at both ends and between: each time the file is named.

    And next to each end of a seal, which released files have none of.
    """
    keys = load_key(ledger_of(cli), {}, "")
    audited = audit_ledger(ledger_of(cli), keys)
    for damaged in kept:
        size = damaged.stat().st_size
        ends = {0, size // 2, size - 1}
        for position in (
            ends
            if damaged.parent.name == "release"
            else {*ends, 1, size - 41, size - 40, size - 33, size - 32}
        ):
            before = flip(damaged, position)
            with pytest.raises(AuditError, match=re.escape(str(damaged))):
                audit_files(cli.home, audited, keys, example=False)
            damaged.write_bytes(before)
        damaged.rename(damaged.with_suffix(".away"))
        with pytest.raises(AuditError, match=re.escape(str(damaged))):
            audit_files(cli.home, audited, keys, example=False)
        damaged.with_suffix(".away").rename(damaged)
        if damaged.suffix == ".draw":
            copy = damaged.with_name(f"{damaged.name.split('.')[0]}.anotherlease.draw")
            shutil.copy(damaged, copy)
            with pytest.raises(AuditError, match="never charged"):
                audit_files(cli.home, audited, keys, example=False)
            copy.unlink()


def test_the_auditors_day(marginweave: CommandLine, tmp_path: Path) -> None:
    """A kept release: verified, anchored, exported, damaged file by file, rolled back; each fault is named."""
    cli, path = opened(marginweave, 3), people(tmp_path, publish__keep_private=True)
    assert cli("run", path, "--run", "first").returncode == 0
    run = cli.home / "runs" / "first"
    assert "every seal checked" in audit(cli)
    early = tmp_path / "early.sqlite"
    shutil.copy(ledger_of(cli), early)

    kept = [
        p
        for p in (*run.rglob("*.ckpt"), *run.rglob("*.draw"), *(run / "release").iterdir())
        if p.is_file()
    ]
    assert {p.parent.name for p in kept} == {"private", "draws", "derived", "release"}
    assert f"{len(kept)} file(s) of 1 run(s)" in audit(cli)
    every_byte_counts(cli, kept)
    draw = next(p for p in kept if p.suffix == ".draw")
    before = flip(draw)
    assert str(draw) in fault(cli)
    draw.write_bytes(before)
    audit(cli)

    anchor = tmp_path / "anchor.json"
    assert cli("run", path, "--run", "second").returncode == 0
    assert cli("ledger", "anchor", "--to", anchor).returncode == 0
    assert json.loads(cli("ledger", "anchor").stdout) == json.loads(anchor.read_text())
    assert "the anchored row among them" in audit(cli, "--anchor", anchor)
    newest = tmp_path / "newest"
    shutil.copytree(ledger_of(cli).parent, newest)
    shutil.copy(early, ledger_of(cli))
    assert "a backup was restored" in fault(cli, "--anchor", anchor)
    assert "that run second has seen: it is an older copy of itself" in fault(cli)
    again = cli("run", path, "--run", "third")
    assert again.returncode == 3
    assert "that run second has seen: it is an older copy of itself" in again.stderr
    shutil.rmtree(ledger_of(cli).parent)
    shutil.copytree(newest, ledger_of(cli).parent)
    audit(cli, "--anchor", anchor)

    exported = tmp_path / "exported"
    assert cli("ledger", "export", "people", "--to", exported).returncode == 0
    assert cli("ledger", "export", "--to", exported).returncode == 2
    assert cli("ledger", "export", "nobody", "--to", tmp_path / "none").returncode == 3
    records = [json.loads(p.read_text())["deployment"] for p in (exported / "releases").iterdir()]
    assert [r["privacy_loss"]["privacy_parameters"] for r in records] == [
        {"epsilon": 1.0, "delta": 1e-6}
    ] * 2
    events = [json.loads(line) for line in (exported / "events.jsonl").read_text().splitlines()]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert json.loads(anchor.read_text())["hash"] == events[-1]["row_hash"]

    shown = cli("ledger", "show", "people", "--all").stdout
    assert "left at delta 1e-06: one more release of Gaussian draws may have epsilon " in shown
    assert re.search(r"spent by parts .*: [0-9.]+ % of the budget for noise", shown)
    assert not re.search(r"\b0e-", shown)  # a release id may hold these letters, but not as a word
    assert "length 2" in shown
    assert "exponential" in shown

    key = ledger_of(cli).with_name("ledger.key")
    key.rename(tmp_path / "ledger.key")
    assert "the chain of" in fault(cli)
    with sqlite3.connect(ledger_of(cli)) as connection:
        (guard,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'events_no_update'"
        ).fetchone()
        connection.execute("DROP TRIGGER events_no_update")
        connection.execute("UPDATE events SET actor = 'nobody' WHERE seq = 3")
        connection.execute(guard)
    connection.close()
    assert "row 3 of the ledger was changed" in fault(cli)
    (tmp_path / "ledger.key").rename(key)
    assert "row 3 of the ledger was changed" in fault(cli)


def test_a_lost_ledger_stops_every_draw(marginweave: CommandLine, tmp_path: Path) -> None:
    """Ledger, key, both or the account gone, or a fresh ledger in its place: exit 3, nothing made, nothing drawn."""
    cli, path = opened(marginweave, 3), people(tmp_path)
    assert cli("run", path, "--run", "first").returncode == 0
    shutil.copytree(ledger_of(cli).parent, tmp_path / "kept")
    for lost in ("ledger", "key", "both", "account", "fresh"):
        lose(cli, path, lost)
        shutil.rmtree(ledger_of(cli).parent)
        shutil.copytree(tmp_path / "kept", ledger_of(cli).parent)
    audit(cli)


def lose(cli: CommandLine, path: Path, lost: str) -> None:
    """Lose it, and try everything that would draw."""
    ledger, key = ledger_of(cli), ledger_of(cli).with_name("ledger.key")
    if lost in {"ledger", "both", "fresh", "account"}:
        ledger.unlink()
    if lost in {"key", "both", "fresh", "account"}:
        key.unlink()
    if lost == "fresh":
        opened(cli, 3)
    if lost == "account":
        assert cli("ledger", "open", "others", "--epsilon", "1", "--delta", "1e-6").returncode == 0
    before = sorted(p.name for p in ledger.parent.iterdir())
    for arguments in (
        ["run", path, "--run", "first"],
        ["run", path, "--run", "second"],
        ["resume", "first"],
    ):
        result = cli(*arguments)
        assert result.returncode == 3, (arguments, result.stdout, result.stderr)
        assert "marginweave ledger open" in result.stderr or "restore" in result.stderr.lower()
    assert sorted(p.name for p in ledger.parent.iterdir()) == before
    assert not (cli.home / "runs" / "second" / "private").exists()
    verified = cli("ledger", "verify")
    assert verified.returncode == (3 if lost in {"ledger", "both"} else 1)


def test_a_source_gets_no_second_account(marginweave: CommandLine, tmp_path: Path) -> None:
    """Refused with what to do; under the account that has the source the release is made, and the ledger holds."""
    cli = opened(marginweave, 3)
    assert cli("run", people(tmp_path)).returncode == 0
    assert cli("ledger", "open", "twin", "--epsilon", "1", "--delta", "1e-6").returncode == 0
    refused = cli("run", people(tmp_path, dataset="twin"))
    assert refused.returncode == 3
    assert "set `dataset: people` in the configuration" in refused.stderr
    assert cli("run", people(tmp_path), "--run", "second").returncode == 0
    audit(cli)
