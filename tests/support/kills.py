"""Runs that are killed, and what must be true of ledger and disk after every kill."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from marginweave.schemas.configuration import Configuration
from marginweave.schemas.ledger import Account, Event, EventKind, ReleaseRecord, State
from marginweave.schemas.manifest import RunState
from marginweave.tasks.budget.ledger import Ledger
from marginweave.tasks.budget.ledger.books import releases_of
from marginweave.tasks.checkpoint.draws import DrawStore
from marginweave.tasks.checkpoint.run_folder import RunFolder

REPOSITORY = Path(__file__).resolve().parents[2]
LOST = re.compile(r"draw (\S+) of release \S+ was charged and lost")
_FILE = re.compile(r"\.?(?P<name>[a-z]+(?:-[a-z0-9]+)*)\.(?P<lease>[0-9a-f]{32})\.draw(?P<temporary>\.[0-9a-f]+\.tmp)?")


class WarmParent:
    """`tests.support.warm_parent` as a process; `calls` is how often an undisturbed run passes each transition."""

    def __init__(self, warm: Victim, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm_parent"],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.calls: dict[str, int] = self.ask(warm.order())["calls"]

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Have one order done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


@dataclass
class Victim:
    """One run in a home and ledger of its own, with everything that was seen of it so far."""

    home: Path
    config: Path
    run: str = "r"
    events: tuple[Event, ...] = ()
    committed: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # room for whatever is lost: the cap is not what is tested here
        account = Account(
            dataset="people",
            epsilon=Decimal(50),
            delta=Decimal("1e-4"),
            unit="row",
            neighbors="add-remove",
        )
        Ledger.create(self.location, environment={}).open_account(account, actor="harness")

    @property
    def location(self) -> Path:
        return self.home / "ledger" / "ledger.sqlite"

    @property
    def folder(self) -> RunFolder:
        return RunFolder.at(self.home, self.run)

    @property
    def makes(self) -> Path:
        return self.home / "makes"

    def order(self, through: str = "doors", **more: Any) -> dict[str, Any]:
        """An order for the warm parent: run, or go on."""
        paths = {"home": self.home, "config": self.config, "ledger": self.location, "makes": self.makes}
        texts = {name: str(path) for name, path in paths.items()}
        return {**texts, "run": self.run, "log": str(self.home / "log"), "through": through, **more}

    def record(self) -> ReleaseRecord | None:
        """The release in the ledger, if it is there."""
        return next(iter(releases_of(self.events).values()), None)

    def check(self) -> None:
        """What must be true after a kill at any point.

        No charge is lost: the ledger's rows only grow. Nothing is uncharged: every noisy file belongs to a draw that was begun
        under its lease, every call of a mechanism to one row DRAWN. Nothing is drawn twice for one charge: at most one file a
        draw, one call a row, and committed bytes stay.
        """
        ledger = Ledger.open(self.location, environment={})
        with ledger._reading() as journal:
            events = journal.all_events()
        assert events[: len(self.events)] == self.events, "the ledger has lost rows"
        self.events = events
        begun = Counter(
            (event.body.get("replaces", event.draw), event.lease) for event in events if event.kind == EventKind.DRAWN
        )
        made = (
            Counter(tuple(line.split()) for line in self.makes.read_text().splitlines()) if self.makes.exists() else {}
        )
        for draw, times in made.items():
            assert times <= begun[draw], f"{draw} was drawn {times} times under {begun[draw]} charges"
        drawn = [event.draw for event in events if event.kind == EventKind.DRAWN]
        assert len(drawn) == len(set(drawn)), "a draw was begun twice under one charge"
        self._check_files({(event.draw, event.lease) for event in events if event.kind == EventKind.DRAWN})
        self._check_committed(ledger)

    def _check_files(self, begun: set[tuple[str | None, str | None]]) -> None:
        finals: Counter[str] = Counter()
        for file in self.folder.draws.iterdir() if self.folder.draws.is_dir() else ():
            match = _FILE.fullmatch(file.name)
            assert match, f"{file.name} is no file of a draw"
            if match["temporary"] is None:
                finals[match["name"]] += 1
            if match["temporary"] is None or any(file.read_bytes()):
                assert (match["name"], match["lease"]) in begun, f"{file.name} holds noise that nobody was charged for"
        assert not finals or max(finals.values()) == 1, "two noisy files for one charge"

    def _check_committed(self, ledger: Ledger) -> None:
        record = self.record()
        if record is None:
            return
        manifest = self.folder.read_manifest()
        unfinished = manifest is not None and manifest.state == RunState.RUNNING
        store = DrawStore(self.folder, ledger.checkpoint_key)
        for draw in record.draws:
            if draw.state == State.COMMITTED:
                bytes_ = store.read(draw.release, draw.name, draw.lease or "", draw.digest)
                assert bytes_ is not None or not unfinished, f"committed draw {draw.name} is gone"
                if bytes_ is not None:
                    assert self.committed.setdefault(draw.name, bytes_) == bytes_

    def check_finished(self) -> None:
        """A finished run: every planned draw stands once, nothing is pending, the files are those that were booked."""
        self.check()
        record, manifest = self.record(), self.folder.read_manifest()
        assert record is not None
        assert manifest is not None
        assert manifest.state == RunState.FINISHED
        assert manifest.outputs == record.outputs
        for file, digest in record.outputs.items():
            assert hashlib.sha256((self.folder.path / file).read_bytes()).hexdigest() == digest
        states = {draw.state for draw in record.draws}
        assert states <= {State.COMMITTED, State.RETURNED, State.CHARGED_LOST}, states
        for draw in record.draws:
            if not draw.is_spare:
                standing = record.standing(draw.name)
                assert standing is not None
                assert standing.state in {State.COMMITTED, State.RETURNED}
        if any(entry.purged for entry in manifest.stages.values()):
            assert all(entry.purged for entry in manifest.stages.values())
            assert not self.folder.private.exists()
            assert not self.folder.derived.exists()
        else:
            assert Configuration.from_canonical(manifest.configuration).publish.keep_private, "the run was not purged"
            kept = {f"{draw.name}.{draw.lease}.draw" for draw in record.draws if draw.state == State.COMMITTED}
            assert {file.name for file in self.folder.draws.iterdir()} == kept
        statement = json.loads((self.folder.release / "privacy.json").read_text())
        asked = Configuration.from_canonical(manifest.configuration).privacy.epsilon
        assert statement["guarantee"]["epsilon"] == asked
        lost = sorted(draw.replaces or draw.name for draw in record.draws if draw.state == State.CHARGED_LOST)
        assert sorted(draw["draw"] for draw in statement["account"]["lost_draws"]) == lost

    def check_stopped(self, message: str) -> None:
        """A run that stopped with exit 3 names a draw that is lost, and no spare is left for it."""
        self.check()
        found = LOST.search(message)
        record = self.record()
        assert found, message
        assert record is not None
        standing = record.standing(found[1])
        assert standing is not None
        assert standing.state == State.CHARGED_LOST
        assert record.spare is None
