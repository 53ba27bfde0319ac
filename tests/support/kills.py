"""Runs that are killed, and what must be true of ledger and disk after every kill."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from marginweave.accounting.accounts import Account
from marginweave.accounting.records import Event, EventKind, ReleaseRecord, State
from marginweave.base.budget import Cost
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.configuration.release import Configuration
from marginweave.draws.files import DrawStore
from marginweave.ledger import Ledger, LedgerLocation, ledger_location
from marginweave.ledger.records import releases_of
from marginweave.released.manifest import RunState

LOST = re.compile(r"draw (\S+) of release \S+ was charged and lost")
_FILE = re.compile(
    r"\.?(?P<name>[a-z]+(?:-[a-z0-9]+)*)\.(?P<lease>[0-9a-f]{32})\.(?:draw|copy)(?P<temporary>\.[0-9a-f]+\.tmp)?"
)
_SECRET = re.compile(
    r"\.?(?P<name>[a-z]+(?:-[a-z0-9]+)*)\.(?:seed|copy)(?P<temporary>\.[0-9a-f]+\.tmp)?"
)
_ENDED = {EventKind.COMMITTED, EventKind.RETURNED, EventKind.CHARGED_LOST}


@dataclass
class Victim:
    """One run in a home and ledger of its own, with everything that was seen of it so far; `delta` is its account's.

    `may_lose`: what its seeds or their inputs went through may cost a draw, which no kill may. `environment` says where the
    ledger is; left empty, a file of the home.
    """

    home: Path
    config: Path
    run: str = "r"
    delta: str = "1e-4"
    may_lose: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    committed: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # room for whatever is lost: the cap is not what is tested here
        account = Account(
            dataset="people",
            epsilon=Decimal(50),
            delta=Decimal(self.delta),
            unit="row",
            neighbors="add-remove",
        )
        Ledger.create(self.location, environment=self.environment).accounts.open(
            account, actor="harness"
        )

    @property
    def location(self) -> LedgerLocation:
        return ledger_location(self.environment) if self.environment else self.ledger_file

    @property
    def ledger_file(self) -> Path:
        return self.home / "ledger" / "ledger.sqlite"

    @property
    def folder(self) -> RunFolder:
        return RunFolder.at(self.home, self.run)

    @property
    def makes(self) -> Path:
        return self.home / "makes"

    def order(self, **more: Any) -> dict[str, Any]:
        """An order for `tests.support.forked_runs`: run, or go on."""
        paths = {
            "home": self.home,
            "config": self.config,
            "ledger": self.ledger_file,
            "makes": self.makes,
        }
        texts = {name: str(path) for name, path in paths.items()}
        return {
            **texts,
            "environment": self.environment,
            "run": self.run,
            **more,
        }

    def record(self) -> ReleaseRecord | None:
        """The release in the ledger, if it is there."""
        return next(iter(releases_of(self.events).values()), None)

    def check(self) -> None:
        """What must be true after a kill at any point.

        No charge is lost: the ledger's rows only grow, and no draw is CHARGED_LOST. Nothing is uncharged: every noisy file and
        every call of a mechanism belongs to a draw that was begun. Nothing is drawn twice for one charge: a draw is begun once,
        and whatever was made for it, by however many attempts, is one string of bytes. A seed is there as long as its draw may
        have to be made again, and no longer than the next step of the run.
        """
        ledger = Ledger.open(self.location, environment=self.environment)
        with ledger.session.reading() as journal:
            events = journal.all_events()
        assert events[: len(self.events)] == self.events, "the ledger has lost rows"
        self.events = events
        drawn = [event.draw for event in events if event.kind == EventKind.DRAWN]
        assert len(drawn) == len(set(drawn)), "a draw was begun twice under one charge"
        assert set(self.bytes_made) <= set(drawn), "noise was made before its charge"
        for draw, digests in self.bytes_made.items():
            assert len(digests) <= 1, f"{draw} was made of {len(digests)} kinds under one charge"
        if not self.may_lose:
            assert not [event for event in events if event.kind == EventKind.CHARGED_LOST], (
                "a draw was lost"
            )
        self._check_files(
            {(event.draw, event.lease) for event in events if event.kind == EventKind.DRAWN}
        )
        self._check_secrets()
        self._check_committed(ledger)

    @property
    def bytes_made(self) -> dict[str, set[str]]:
        """The digests of all that mechanisms have made for each draw; none where one has only begun."""
        told: dict[str, set[str]] = defaultdict(set)
        for line in self.makes.read_text().splitlines() if self.makes.exists() else ():
            _, name, *digest = line.split()
            told[name] |= set(digest)
        return dict(told)

    def _check_files(self, begun: set[tuple[str | None, str | None]]) -> None:
        finals: dict[str, set[bytes]] = defaultdict(set)
        leases: dict[str, set[str]] = defaultdict(set)
        for file in self.folder.draws.iterdir() if self.folder.draws.is_dir() else ():
            match = _FILE.fullmatch(file.name)
            assert match, f"{file.name} is no file of a draw"
            if match["temporary"] is None:
                finals[match["name"]].add(file.read_bytes())
                leases[match["name"]].add(match["lease"])
            if match["temporary"] is None or any(file.read_bytes()):
                assert (match["name"], match["lease"]) in begun, (
                    f"{file.name} holds noise that nobody was charged for"
                )
        assert all(len(contents) == 1 for contents in finals.values()), "a draw and its copy differ"
        assert all(len(of_draw) == 1 for of_draw in leases.values()), (
            "two noisy files for one charge"
        )

    def _check_secrets(self) -> None:
        left, whole = set(), set()
        for file in self.folder.seeds.iterdir() if self.folder.seeds.is_dir() else ():
            match = _SECRET.fullmatch(file.name)
            assert match, f"{file.name} is no file of a secret"
            assert file.stat().st_mode & 0o777 == 0o600
            left.add(match["name"])
            if match["temporary"] is None:
                whole.add(match["name"])
        ended: set[str | None] = set()
        due: set[str | None] = set()
        for event in self.events:
            if event.kind == EventKind.DRAWN:
                due = set(ended)
            elif event.kind in _ENDED:
                ended.add(event.draw)
        assert not left & due, f"the secrets of {left & due} have outlived their draws"
        record, manifest = self.record(), self.folder.read_manifest()
        running = manifest is not None and manifest.state == RunState.RUNNING
        for draw in record.draws if record is not None and running and not self.may_lose else ():
            if draw.state == State.DRAWN and draw.name not in whole:
                raise AssertionError(f"the secret of {draw.name}, which was begun, is gone")

    def _check_committed(self, ledger: Ledger) -> None:
        record = self.record()
        if record is None:
            return
        manifest = self.folder.read_manifest()
        unfinished = manifest is not None and manifest.state == RunState.RUNNING
        store = DrawStore(self.folder, ledger.keys.checkpoint_key)
        for draw in record.draws:
            if draw.state == State.COMMITTED:
                bytes_ = store.read(draw.release, draw.name, draw.lease or "", draw.digest)
                assert bytes_ is not None or not unfinished, f"committed draw {draw.name} is gone"
                if bytes_ is not None:
                    assert self.committed.setdefault(draw.name, bytes_) == bytes_
                    assert self.bytes_made.get(draw.name) in (
                        None,
                        {hashlib.sha256(bytes_).hexdigest()},
                    )

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
        assert states <= {State.COMMITTED, State.RETURNED}, states
        charged = [draw.cost for draw in record.draws if draw.state == State.COMMITTED]
        assert record.charged == sum(charged, Cost())
        assert not self.folder.seeds.is_dir() or not list(self.folder.seeds.iterdir()), (
            "a secret was left"
        )
        if any(entry.purged for entry in manifest.stages.values()):
            assert all(entry.purged for entry in manifest.stages.values())
            assert not self.folder.private.exists()
            assert not self.folder.derived.exists()
        else:
            assert Configuration.from_canonical(manifest.configuration).publish.keep_private, (
                "the run was not purged"
            )
            stems = {
                f"{draw.name}.{draw.lease}"
                for draw in record.draws
                if draw.state == State.COMMITTED
            }
            kept = {f"{stem}.{ending}" for stem in stems for ending in ("draw", "copy")}
            assert {file.name for file in self.folder.draws.iterdir()} == kept
        statement = json.loads((self.folder.release / "privacy.json").read_text())
        asked = Configuration.from_canonical(manifest.configuration).privacy.epsilon
        assert statement["guarantee"]["epsilon"] == asked
        account = json.loads((self.folder.release / "account.json").read_text())
        assert account["as_of"] == f"{record.published:%Y-%m-%dT%H:%M:%SZ}"
