"""What a process has verified it need not read again; what it has not verified never counts."""

from __future__ import annotations

import shutil

import pytest

from marginweave.base.errors import BudgetError
from marginweave.ledger import Ledger
from marginweave.ledger.records import accounts_of, releases_of
from tests.support.databases import change, on_both


@on_both
def test_looking_step_by_step_is_looking_at_once(ledger, reserve, plan, location) -> None:
    """After every step a process that looked before sees what a fresh one reads from the first row."""
    other = Ledger.open(location)
    steps = (
        lambda: ledger.accounts.change_cap("affairs", 100.0, 1e-3, "room", "steward"),
        lambda: reserve("first"),
        lambda: other.draws.take_lease("first", "lease"),
        lambda: ledger.draws.begin("first", "count", "lease"),
        lambda: other.draws.commit("first", "count", "lease", "digest", tainted=False),
        lambda: reserve("second", plan=plan(mu2=0.5, epsilon=10.0)),
        lambda: ledger.draws.return_unused("second", ["count", "level-1", "level-2"]),
        lambda: ledger.draws.return_unused("first", ["level-1", "level-2"]),
        lambda: other.releases.publish("first", "lease", {"privacy.json": "ab"}),
    )
    for step in steps:
        step()
        events = Ledger.open(location).session.events()
        for each in (ledger, other):
            view = each.session.view()
            assert (dict(view.accounts), dict(view.releases)) == (
                accounts_of(events),
                releases_of(events),
            )
            assert view.position.seq == len(events)


def test_only_new_rows_are_read(ledger, reserve, monkeypatch) -> None:
    """The work of a look does not grow with the ledger: one known row, to see that it is still there."""
    reserve()
    ledger.accounts.total("affairs")
    read = []
    before = ledger.session.reading
    with before() as journal:
        original = type(journal)._rows

    def counting(self, query):
        rows = original(self, query)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(type(journal), "_rows", counting)
    ledger.accounts.total("affairs")
    assert read == [1]


@on_both
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET mu2 = '0' WHERE draw = 'count'",
        "UPDATE events SET mac = (SELECT mac FROM events WHERE seq = 1) WHERE draw = 'count'",
        "DELETE FROM events WHERE seq = 4",
        "UPDATE events SET seq = seq + 1 WHERE seq = (SELECT max(seq) FROM events)",
    ],
    ids=["changed", "resealed", "removed", "moved"],
)
def test_rows_that_are_new_to_the_process_must_be_sound(
    ledger, reserve, location, statement
) -> None:
    """Rows behind the known ones are checked as the first ones were."""
    behind = Ledger.open(location)
    assert behind.accounts.total("affairs").spent.releases == 0  # knows two rows
    reserve()
    change(location, statement)
    with pytest.raises(BudgetError, match="ledger"):
        behind.accounts.total("affairs")


def test_a_restored_backup_is_noticed(ledger, reserve, location, tmp_path) -> None:
    """A process that has seen more rows than there are now books nothing, even where as many others were written since."""
    shutil.copytree(location.parent, tmp_path / "backup")
    reserve("first")
    ledger.accounts.total("affairs")
    for file in (tmp_path / "backup").iterdir():
        shutil.copy(file, location.parent / file.name)
    (location.parent / f"{location.name}-wal").unlink(missing_ok=True)
    (location.parent / f"{location.name}-shm").unlink(missing_ok=True)
    for _ in range(2):
        with pytest.raises(BudgetError, match="it has lost rows, or a backup was restored"):
            reserve("second")
        fresh = Ledger.open(location)
        for name in ("other", "another"):
            fresh.accounts.change_cap("affairs", 50.0, 1e-3, name, "steward")
            fresh.accounts.change_cap("affairs", 60.0, 1e-3, name, "steward")


@on_both
def test_an_undone_transaction_leaves_no_trace(ledger, reserve, plan, monkeypatch) -> None:
    """What was appended and not committed is in no total, and the next reservation goes through."""
    with monkeypatch.context() as patch:

        def crash(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("sqlalchemy.engine.default.DefaultDialect.do_commit", crash)
        with pytest.raises(KeyboardInterrupt):
            reserve("first")
    assert ledger.accounts.total("affairs").spent.releases == 0
    reserve("first")
    assert ledger.accounts.total("affairs").spent.releases == 1
    assert ledger.verify() == 6
