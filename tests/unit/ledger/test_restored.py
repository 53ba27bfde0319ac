"""A ledger that was restored from an old copy is caught before it is used, and reconciled by adding charges only."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marginweave.accounting.accountants import gdp_mu
from marginweave.accounting.records import CHARGED, EventKind, ReleaseRecord, State
from marginweave.base.budget import BasicAmount
from marginweave.base.errors import AuditError, BudgetError, InputError
from marginweave.flows.cli.app import app
from marginweave.ledger import Ledger, Witness, example_ledger_location, witness
from marginweave.ledger.audit import AuditedLedger, audit_ledger
from marginweave.ledger.boxes import is_closed
from marginweave.ledger.keys import load_key
from marginweave.ledger.reconciliation import OtherHomes
from marginweave.ledger.witness import SEEN, Sighting
from marginweave.released.account import EpsilonDelta
from tests.support.releases import ACCOUNT, DRAWS, reserve_release, small_plan

OUTPUTS = {"release/privacy.json": "ab" * 32}
DIGEST = "cd" * 32
ALONE = OtherHomes(reason="there is one machine")


class Place:
    """A ledger in a file, homes beside it, and copies of the ledger."""

    def __init__(self, folder: Path, location: Path | None = None) -> None:
        self.folder, self.location = folder, location or folder / "ledger" / "ledger.sqlite"
        wide = replace(ACCOUNT, epsilon=Decimal(3))
        Ledger.create(self.location, environment={}).accounts.open(wide, actor="steward")

    def home(self, name: str = "home") -> Path:
        return self.folder / name

    def seen(self, run: str, home: str = "home") -> Path:
        return self.home(home) / "runs" / run / SEEN

    def ledger(self, run: str | None = None, home: str = "home") -> Ledger:
        """As a command opens it: for a run of a home, or for the home alone."""
        place = self.home(home) / "runs" / (run or "")
        if run is not None:
            (place / "private").mkdir(parents=True, exist_ok=True)
        witness = Witness(self.home(home), place if run else None, run)
        return Ledger.open(self.location, environment={}, witness=witness)

    def copy(self) -> Path:
        kept = self.folder / f"copy-{len(list(self.folder.iterdir()))}"
        shutil.copy(self.location, kept)
        return kept

    def restore(self, kept: Path) -> None:
        shutil.copy(kept, self.location)
        for suffix in ("-wal", "-shm"):
            self.location.with_name(self.location.name + suffix).unlink(missing_ok=True)

    def reserve(self, run: str, home: str = "home") -> Ledger:
        ledger = self.ledger(run, home)
        reserve_release(ledger, small_plan(), run, source=f"source-{run}")
        ledger.draws.take_lease(run, f"lease-{run}")
        return ledger

    def finish(self, ledger: Ledger, run: str) -> None:
        """All draws but the last, which is given back, and the publication."""
        for name in DRAWS[:-1]:
            ledger.draws.begin(run, name, f"lease-{run}", {"inputs": "ab"})
            ledger.draws.commit(run, name, f"lease-{run}", DIGEST, tainted=False)
        ledger.draws.return_unused(run, DRAWS[-1:])
        ledger.releases.publish(run, f"lease-{run}", OUTPUTS)

    def audited(self) -> AuditedLedger:
        return audit_ledger(self.location, load_key(self.location, {}, ""))

    def reconcile(
        self, others: OtherHomes | None = None, homes: tuple[str, ...] = ("home",)
    ) -> object:
        ledger = Ledger.open(self.location, environment={})
        return ledger.reconcile([self.home(name) for name in homes], others, actor="steward")

    def cap(self, epsilon: float, delta: float) -> None:
        """Set the cap of the account."""
        Ledger.open(self.location, environment={}).accounts.change_cap(
            "affairs", epsilon, delta, "as said", "steward"
        )

    def release(self, run: str) -> ReleaseRecord:
        record = Ledger.open(self.location, environment={}).releases.find(run)
        assert record is not None
        return record


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(params=["after RESERVED", "before PUBLISHED"])
def restored(place: Place, request: pytest.FixtureRequest) -> Place:
    """A ledger that was copied in the middle of release r1, which is published, and restored from that copy."""
    ledger = place.reserve("r1")
    if request.param == "after RESERVED":
        kept = place.copy()
        place.finish(ledger, "r1")
    else:
        for name in DRAWS[:-1]:
            ledger.draws.begin("r1", name, "lease-r1")
            ledger.draws.commit("r1", name, "lease-r1", DIGEST, tainted=False)
        ledger.draws.return_unused("r1", DRAWS[-1:])
        kept = place.copy()
        ledger.releases.publish("r1", "lease-r1", OUTPUTS)
    place.restore(kept)
    return place


def test_an_old_copy_is_refused_by_whoever_opens_it(restored: Place) -> None:
    """A new release, an old one that goes on, and a command of the home alone."""
    rows = restored.audited().anchor
    for run in (None, "r1", "r2"):
        with pytest.raises(
            BudgetError, match=r"older copy of itself.*marginweave ledger reconcile"
        ):
            restored.ledger(run)
    assert restored.audited().anchor == rows


def test_a_ledger_that_is_replaced_before_a_command_writes_is_refused(place: Place) -> None:
    """A run opens its ledger once: an older copy that takes its place before the first row is not written to."""
    kept = place.copy()
    place.finish(place.reserve("r1"), "r1")
    opened = place.ledger("r2")
    place.restore(kept)
    rows = place.audited().anchor
    with pytest.raises(BudgetError, match="this command has seen"):
        reserve_release(opened, small_plan(), "r2", source="source-r2")
    assert place.audited().anchor == rows


def test_a_ledger_that_is_replaced_under_a_command_is_refused(place: Place) -> None:
    """Every move that writes asks again whether what this process has written is there: expiry as well as a draw."""
    ledger = place.reserve("r1")
    kept = place.copy()
    ledger.draws.begin("r1", "count", "lease-r1")
    place.restore(kept)
    for move in (
        lambda: ledger.draws.begin("r1", "level-1", "lease-r1"),
        lambda: ledger.draws.expire(timedelta(0)),
        lambda: ledger.draws.return_unused("r1", ["level-2"]),
        lambda: ledger.releases.publish("r1", "lease-r1", OUTPUTS),
        lambda: reserve_release(ledger, small_plan(), "r2"),
        lambda: ledger.draws.take_lease("r1", "another"),
    ):
        with pytest.raises(BudgetError, match="older copy of itself"):
            move()
    assert {draw.state for draw in place.release("r1").draws} == {State.RESERVED}


def test_the_row_of_a_draw_is_kept_before_its_noise_is_made(place: Place) -> None:
    """When `Draws.begin` returns, the home has the DRAWN row as the ledger signed it, and what was booked before."""
    ledger = place.reserve("r1")
    for name in DRAWS:
        ledger.draws.begin("r1", name, "lease-r1", {"inputs": "ab"})
        assert place.seen("r1").exists()
        head = Sighting(place.seen("r1")).head()
        assert head is not None
        assert (head["kind"], head["draw"]) == ("DRAWN", name)
    with ledger.session.reading() as journal:
        rows = journal.release_rows("r1")
    assert [dict(row) for row in Sighting(place.seen("r1")).rows()] == rows
    assert place.seen("r1").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("cut", [1, 40, 10_000])
def test_rows_that_a_crash_has_kept_out_are_added_by_the_next_attempt(
    place: Place, cut: int
) -> None:
    """A line that was cut short, or a file that was never written, is made whole when the run is opened again."""
    place.finish(place.reserve("r1"), "r1")
    seen = place.seen("r1")
    whole = seen.read_bytes()
    seen.write_bytes(whole[:-cut])
    place.ledger("r1")
    assert seen.read_bytes() == whole


def test_heads_of_other_ledgers_are_not_compared(place: Place, tmp_path: Path) -> None:
    """A home may have runs of an example ledger beside those of its own."""
    place.finish(place.reserve("r1"), "r1")
    other = Place(tmp_path / "other")
    shutil.copytree(place.home(), other.home())
    other.finish(other.reserve("r2"), "r2")
    assert other.release("r2").outputs == OUTPUTS


@pytest.mark.parametrize("example", [False, True], ids=["the ledger", "the ledger of the examples"])
def test_the_commands_refuse_an_old_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: bool
) -> None:
    """Expiry, and whatever else would write; exit 3, and the rows are what they were. `reconcile` is the way out."""
    home = tmp_path / "home"
    place = Place(tmp_path, example_ledger_location(home) if example else None)
    ledger = place.reserve("r1")
    kept = place.copy()
    place.finish(ledger, "r1")
    place.restore(kept)
    monkeypatch.setenv("MARGINWEAVE_HOME", str(home))
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(place.location))
    more = ("--example",) if example else ()

    def said(*command: str) -> tuple[int, bool]:
        result = CliRunner().invoke(app, ["ledger", *command, *more])
        return result.exit_code, "older copy of itself" in result.stderr

    rows = place.audited().anchor
    assert said("expire", "--older-than", "0d") == (3, True)
    assert said("cap", "affairs", "--epsilon", "9", "--delta", "1e-6", "--reason", "more") == (
        3,
        True,
    )
    assert said("list") == (0, True)  # and warns
    assert place.audited().anchor == rows
    assert said("reconcile") == (0, False)
    assert said("expire", "--older-than", "0d") == (0, False)
    assert place.release("r1").outputs == OUTPUTS


def test_what_was_published_is_charged_again(restored: Place) -> None:
    """The charge is what it was, what was reserved is lost, nothing is given back, and the auditor agrees."""
    before = restored.release("r1").charged
    restored.reconcile()
    record = restored.release("r1")
    assert record.outputs == OUTPUTS
    assert [draw.state for draw in record.draws[:2]] == [State.COMMITTED] * 2
    assert record.draws[2].state in {State.CHARGED_LOST, State.RETURNED}
    assert record.charged.mu2 >= Decimal("0.02")
    assert record.charged.mu2 >= before.mu2 - Decimal("1e-12")
    audited = restored.audited()
    assert audited.releases["r1"].draws == record.draws
    assert audited.accounts["affairs"].frozen


def test_an_account_is_frozen_until_other_homes_are_spoken_of(restored: Place) -> None:
    """Nothing is admitted after the reconciliation alone; a sentence thaws, and stands in the ledger."""
    restored.reconcile()
    with pytest.raises(BudgetError, match=r"admits nothing.*--no-other-home"):
        restored.reserve("r2")
    restored.reconcile(ALONE)
    restored.finish(restored.reserve("r2"), "r2")
    account = restored.audited().accounts["affairs"]
    assert [each.no_other_home for each in account.reconciled] == [None, "there is one machine"]
    assert not account.frozen


def test_reconciling_again_does_nothing(restored: Place) -> None:
    """Neither before nor after the sentence on other homes is anything added twice."""
    for others in (None, ALONE):
        restored.reconcile(others)
        rows = restored.audited().anchor
        assert restored.reconcile(others).adopted == 0  # pyright: ignore[reportAttributeAccessIssue]
        assert restored.audited().anchor == rows


def test_a_ledger_that_is_ahead_has_nothing_to_add(place: Place) -> None:
    """What is reserved in a ledger that lacks nothing stays reserved."""
    place.finish(place.reserve("r1"), "r1")
    ledger = place.reserve("r2")
    rows = place.audited().anchor
    assert place.reconcile(ALONE).frozen == ()  # pyright: ignore[reportAttributeAccessIssue]
    assert place.audited().anchor == rows
    ledger.draws.begin("r2", "count", "lease-r2")


def test_a_release_of_a_purged_home_is_charged(place: Place) -> None:
    """The rows are beside the manifest: a purge of what is private leaves them, and a copy that knows nothing learns it."""
    kept = place.copy()
    place.finish(place.reserve("r1"), "r1")
    charged = place.release("r1").charged
    shutil.rmtree(place.seen("r1").parent / "private")
    place.restore(kept)
    place.reconcile(ALONE)
    assert place.release("r1").outputs == OUTPUTS
    assert place.release("r1").charged.mu2 >= charged.mu2
    place.audited()


def test_a_second_home_adds_what_it_has_seen(place: Place) -> None:
    """It is refused until it was looked at, whatever was said of it, and freezes the account anew."""
    kept = place.copy()
    place.finish(place.reserve("r1"), "r1")
    place.finish(place.reserve("r2", home="other"), "r2")
    place.restore(kept)
    place.reconcile(ALONE)
    place.finish(place.reserve("r3"), "r3")
    with pytest.raises(BudgetError, match="older copy"):
        place.ledger("r4", home="other")
    place.reconcile(homes=("home", "other"))
    assert place.release("r2").outputs == OUTPUTS
    with pytest.raises(BudgetError, match="admits nothing"):
        place.reserve("r4")
    place.reconcile(ALONE)
    place.finish(place.reserve("r4", home="other"), "r4")
    assert place.audited().accounts["affairs"].reconciled[-1].no_other_home


def test_what_was_given_back_after_a_restore_is_charged_again(place: Place) -> None:
    """An old copy that was used unseen, by another home, has given back what was drawn: the signed rows bring it back."""
    ledger = place.reserve("r1")
    kept = place.copy()
    place.finish(ledger, "r1")
    place.restore(kept)
    assert place.ledger(home="other").draws.expire(timedelta(0)).elsewhere == ("r1",)
    assert place.ledger(home="other").draws.expire(timedelta(0), "r1").returned == ("r1",)
    assert not place.release("r1").charged.mu2
    place.reconcile(ALONE)
    record = place.release("r1")
    assert [draw.state for draw in record.draws[:2]] == [State.COMMITTED] * 2
    assert record.outputs == OUTPUTS
    place.audited()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("mu2", "0.000001"),
        ("draw", "level-9"),
        ("mac", "00" * 32),
        ("release", "another"),
        ("body", "{"),
    ],
)
def test_a_forged_row_is_refused_by_name(restored: Place, column: str, value: str) -> None:
    """Whatever is changed in a file: nothing is reconciled, and the file is named."""
    seen = restored.seen("r1")
    lines = seen.read_text().splitlines()
    row = json.loads(lines[2])
    lines[2] = json.dumps({**row, column: value})
    seen.write_text("\n".join(lines) + "\n")
    rows = restored.audited().anchor
    with pytest.raises(BudgetError, match=rf"{SEEN}: row \d+ was not signed by this ledger"):
        restored.reconcile(ALONE)
    assert restored.audited().anchor == rows


def test_rows_of_another_ledger_under_this_ones_name_are_refused(
    restored: Place, tmp_path: Path
) -> None:
    """Whole rows, signed by a key that is not this ledger's."""
    other = Place(tmp_path / "other")
    other.finish(other.reserve("r9"), "r9")
    lines = other.seen("r9").read_text().splitlines()
    lines[0] = restored.seen("r1").read_text().splitlines()[0]
    foreign = restored.home() / "runs" / "r9"
    foreign.mkdir()
    (foreign / SEEN).write_text("\n".join(lines) + "\n")
    with pytest.raises(
        BudgetError, match=r"r9/ledger.jsonl: row \d+ was not signed by this ledger"
    ):
        restored.reconcile(ALONE)


def test_a_damaged_file_is_said(restored: Place) -> None:
    """Bytes that are no rows stop whoever draws, and the file is named."""
    restored.seen("r1").write_bytes(b"\x00\x01\n\x02\n")
    with pytest.raises(BudgetError, match=rf"{SEEN} is damaged"):
        restored.ledger("r2")


@pytest.mark.parametrize(("epsilon", "delta"), [("0.5", "1e-7"), ("0.25", "0")])
def test_what_homes_that_are_gone_may_have_drawn_is_charged(
    restored: Place, epsilon: str, delta: str
) -> None:
    """The charge stands in the account's sums and is told with the account; the account is thawed."""
    charge = BasicAmount(epsilon=Decimal(epsilon), delta=Decimal(delta))
    before = Ledger.open(restored.location, environment={}).accounts.total("affairs")
    restored.reconcile(OtherHomes(unaccounted=charge))
    after = Ledger.open(restored.location, environment={}).accounts.total("affairs")
    assert after.epsilon > before.epsilon
    assert after.spent.releases == before.spent.releases + 1
    account = restored.audited().accounts["affairs"]
    assert account.reconciled[-1].unaccounted == EpsilonDelta(
        epsilon=float(epsilon), delta=float(delta)
    )
    assert not account.frozen


def test_a_charge_that_does_not_fit_leaves_an_account_over_its_cap(restored: Place) -> None:
    """Nobody is asked about what was drawn: the account is over its cap, and admits nothing, whatever its box is."""
    restored.reconcile(
        OtherHomes(unaccounted=BasicAmount(epsilon=Decimal(40), delta=Decimal("1e-7")))
    )
    restored.audited()
    with pytest.raises(BudgetError, match="admits nothing before its cap"):
        restored.reserve("r2")
    restored.cap(20.0, 1e-5)
    with pytest.raises(BudgetError, match=r"admits nothing before its cap|as with Laplace noise"):
        restored.reserve("r2")
    restored.cap(50.0, 1e-5)
    restored.audited()
    restored.reserve("r2")


def test_what_is_unaccounted_counts_as_it_is_stated(restored: Place) -> None:
    """Laplace noise, or a subsample, is known by (epsilon, delta) alone: a charge of mu^2 would be no bound of it.

    The account admits nothing until its cap is set again, which sets the charge aside: what the box then holds beside it and
    the cap's other parts are the cap together.
    """
    charge = BasicAmount(epsilon=Decimal("0.5"), delta=Decimal("1e-7"))
    restored.reconcile(OtherHomes(unaccounted=charge))
    total = Ledger.open(restored.location, environment={}).accounts.total("affairs")
    assert (total.spent.cost.plain, is_closed(total.account, total.spent)) == (charge, True)
    cap = total.account.cap
    restored.cap(float(cap.epsilon), float(cap.delta))
    again = restored.audited().accounts["affairs"]
    assert again.box.allowance == charge
    assert again.box.delta_add <= total.account.box.delta_add
    rest = cap - charge
    assert (
        float(again.box.mu2)
        <= gdp_mu(float(rest.epsilon), float(rest.delta - again.box.delta_add)) ** 2
    )
    assert float(again.box.mu2) > 0.5 * float(total.account.box.mu2)
    restored.cap(float(cap.epsilon), float(cap.delta))
    assert restored.audited().accounts["affairs"].box == again.box
    restored.reserve("r2")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"reason": " "},
        {"reason": "a", "unaccounted": BasicAmount(epsilon=Decimal(1), delta=Decimal(0))},
    ],
)
def test_one_thing_is_said_of_other_homes(given: dict[str, object]) -> None:
    """A reason or a charge, and no empty one."""
    with pytest.raises(InputError, match="no-other-home"):
        OtherHomes(**given)  # pyright: ignore[reportArgumentType]


def test_an_account_that_the_old_copy_does_not_have_is_named(place: Place) -> None:
    """It is opened again first; what was drawn of it is then adopted."""
    kept = place.copy()
    late = replace(ACCOUNT, dataset="late")
    Ledger.open(place.location, environment={}).accounts.open(late, actor="steward")
    ledger = place.ledger("r1")
    reserve_release(ledger, small_plan(), "r1", dataset="late")
    place.restore(kept)
    with pytest.raises(BudgetError, match=r"account late was opened after.*ledger open"):
        place.reconcile(ALONE)
    Ledger.open(place.location, environment={}).accounts.open(late, actor="steward")
    place.reconcile(ALONE)
    assert all(draw.state in CHARGED for draw in place.release("r1").draws)
    place.audited()


def test_a_reconciliation_that_somebody_writes_without_one_is_found(place: Place) -> None:
    """RESERVED becomes CHARGED_LOST by a reconciliation only: the auditor refuses the bare row."""
    ledger = place.reserve("r1")
    with ledger.session.writing() as journal:
        (begun,) = [event for event in journal.release_events("r1") if event.draw == "count"]
        journal.append(replace(begun, kind=EventKind.CHARGED_LOST, cost=None))
    with pytest.raises(AuditError, match="is RESERVED; it cannot become CHARGED_LOST"):
        place.audited()


def test_what_other_runs_note_while_a_ledger_is_opened_is_no_older_copy(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is reserved and draws before the home's files are read, as happens where several workers are at work."""
    place.finish(place.reserve("r0"), "r0")
    look = witness.sightings

    def while_others_draw(home: Path, identity: str) -> Iterator[Sighting]:
        monkeypatch.setattr(witness, "sightings", look)
        place.finish(place.reserve("r1"), "r1")
        yield from look(home, identity)

    monkeypatch.setattr(witness, "sightings", while_others_draw)
    ledger = place.ledger()
    assert ledger.releases.find("r1") is not None
