"""Releases that need an approval, and corrections: what the ledger admits, refuses, and finds again as an auditor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from marginweave.accounting.accounts import Account, Box
from marginweave.accounting.records import Event, EventKind, ReleaseRecord, now
from marginweave.base.errors import AuditError, BudgetError, InputError
from marginweave.ledger import Ledger
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.keys import load_key
from marginweave.ledger.records import box_body
from marginweave.ledger.releases import publication
from tests.support.databases import on_both
from tests.support.releases import ACCOUNT, DRAWS

CAP = {"kind": EventKind.CAP_CHANGED, "release": None}
FILES = {"release/a.csv": "cd" * 32}


def _cap(per: str, epsilon: str) -> dict[str, object]:
    policy = {"per": per, "epsilon": epsilon, "delta": "1e-6"}
    return {"epsilon": "1", "delta": "1e-6", "box": box_body(Box()), "policy": policy}


Finished = Callable[..., ReleaseRecord]


@pytest.fixture
def account() -> Account:
    return replace(ACCOUNT, epsilon=Decimal(9))


@pytest.fixture
def drawn(ledger, reserve) -> Finished:
    """A release with everything drawn that may be submitted or finished."""

    def call(release: str = "first", **changes: object) -> ReleaseRecord:
        record = reserve(release, run=release, **changes)
        ledger.draws.take_lease(release, f"lease of {release}")
        for name in DRAWS:
            ledger.draws.begin(release, name, f"lease of {release}")
            ledger.draws.commit(release, name, f"lease of {release}", "ab" * 32, tainted=False)
        return record

    return call


@pytest.fixture
def audit(location):
    return lambda: audit_ledger(location, load_key(location, {}, ""))


@on_both
def test_a_release_that_needs_an_approval_is_published_by_it_alone(ledger, drawn, audit) -> None:
    """Submitted once, with fixed digests; then no lease, no finish; the first decision stands and publishes what was booked."""
    drawn(needs_approval=True)
    with pytest.raises(BudgetError, match="does not await approval"):
        ledger.approvals.decide("first", approved=True, by="A", reason="early")
    with pytest.raises(BudgetError, match="published by an approval"):
        ledger.releases.publish("first", "lease of first", FILES)
    for _ in range(2):
        ledger.approvals.submit("first", "lease of first", FILES)
    with pytest.raises(BudgetError, match="has submitted other files"):
        ledger.approvals.submit("first", "lease of first", {"release/a.csv": "ef" * 32})
    with pytest.raises(
        BudgetError, match="was submitted for approval; there is nothing left to draw"
    ):
        ledger.draws.take_lease("first", "another")
    audit()
    with pytest.raises(BudgetError, match="published by an approval"):
        ledger.releases.publish("first", "lease of first", FILES)
    for bad in ({"by": " "}, {"reason": ""}, {"by": "two\nlines"}, {"reason": "x" * 1001}):
        with pytest.raises(InputError, match=next(iter(bad))):
            ledger.approvals.decide("first", **{"approved": True, "by": "A", "reason": "ok", **bad})
    first = ledger.approvals.decide("first", approved=True, by="A", reason="ok")
    assert ledger.approvals.decide("first", approved=False, by="B", reason="late") == first
    record = audit().releases["first"]
    assert record == ledger.releases.find("first")
    assert (dict(record.outputs), record.decision.by, record.decision.approved) == (
        FILES,
        "A",
        True,
    )
    kinds = [event.kind for event in ledger.session.events()][-3:]
    assert kinds == [EventKind.SUBMITTED, EventKind.APPROVED, EventKind.PUBLISHED]


@on_both
def test_a_rejected_release_stays_charged(ledger, drawn, audit) -> None:
    drawn(needs_approval=True)
    before = ledger.accounts.total("affairs")
    ledger.approvals.submit("first", "lease of first", FILES)
    assert not ledger.approvals.decide("first", approved=False, by="B", reason="no").approved
    assert ledger.approvals.decide("first", approved=True, by="A", reason="yes").by == "B"
    assert ledger.accounts.total("affairs") == before
    record = audit().releases["first"]
    assert not record.outputs
    with pytest.raises(BudgetError, match="nothing left to draw"):
        ledger.draws.take_lease("first", "another")


def test_only_settled_releases_that_ask_for_it_are_submitted(ledger, drawn, reserve) -> None:
    drawn()
    with pytest.raises(BudgetError, match="needs no approval"):
        ledger.approvals.submit("first", "lease of first", FILES)
    reserve("second", needs_approval=True)
    ledger.draws.take_lease("second", "lease")
    with pytest.raises(BudgetError, match="must be committed or given back"):
        ledger.approvals.submit("second", "lease", FILES)
    ledger.draws.return_unused("second", DRAWS)
    with pytest.raises(BudgetError, match="another attempt has taken over"):
        ledger.approvals.submit("second", "lease of another", FILES)


@on_both
def test_a_correction_and_what_it_corrects_name_each_other(ledger, drawn, audit) -> None:
    """Booked with the publication of the correction, in one transaction; it is charged, and corrected once."""
    drawn("old")
    for absent in ("old", "nothing"):
        with pytest.raises(
            InputError, match=f"release {absent} is not a published release of account affairs"
        ):
            drawn("new", supersedes=absent)
    ledger.releases.publish("old", "lease of old", FILES)
    before = ledger.accounts.total("affairs").epsilon
    drawn("new", supersedes="old", needs_approval=True)
    assert ledger.accounts.total("affairs").epsilon > before
    assert ledger.releases.find("old").superseded_by is None
    ledger.approvals.submit("new", "lease of new", FILES)
    assert ledger.releases.find("old").superseded_by is None
    ledger.approvals.decide("new", approved=True, by="A", reason="ok")
    found = audit().releases
    assert (found["old"].superseded_by, found["new"].supersedes) == ("new", "old")
    assert found["old"] == ledger.releases.find("old")
    with pytest.raises(InputError, match="run old is superseded already, by run new"):
        drawn("newer", supersedes="old")
    drawn("newer", supersedes="new")
    ledger.releases.publish("newer", "lease of newer", FILES)
    audit()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"kind": EventKind.PUBLISHED, "body": {"outputs": FILES}},
            "is published without an approval",
        ),
        (
            {"kind": EventKind.APPROVED, "body": {"reason": "x"}, "release": "free"},
            "was never submitted for approval",
        ),
        ({"kind": EventKind.APPROVED, "body": {}}, "a body that no ledger writes"),
        (
            {"kind": EventKind.REJECTED, "body": {"reason": " "}},
            "a decision has no name or no reason",
        ),
        ({"kind": EventKind.SUBMITTED, "body": {"outputs": FILES}}, "is submitted twice"),
        (
            {"kind": EventKind.SUBMITTED, "body": {"outputs": FILES}, "release": "free"},
            "needs no approval",
        ),
        (
            {"kind": EventKind.LEASED, "lease": "another"},
            "was submitted for approval; it takes no lease",
        ),
        (
            {"kind": EventKind.SUPERSEDED, "body": {"by": "free"}},
            "what is not its published correction",
        ),
        ({**CAP, "body": _cap("age", "1")}, "a body that no ledger writes"),
        ({**CAP, "body": {"epsilon": "1", "delta": "1e-6"}}, "a body that no ledger writes"),
        ({**CAP, "body": _cap("day", "2")}, "per day .* must have"),
    ],
)
def test_sealed_rows_that_break_a_rule_are_found(ledger, drawn, audit, changes, fault) -> None:
    """A row that somebody with the key writes past the rules is named with the rule."""
    drawn("free")
    drawn("first", needs_approval=True)
    ledger.approvals.submit("first", "lease of first", FILES)
    audit()
    facts = {
        "account": "affairs",
        "release": "first",
        "actor": "steward",
        "created": now(),
        **changes,
    }
    with ledger.session.writing() as journal:
        journal.append(Event(**facts))
    with pytest.raises(
        AuditError, match=f"row {len(ledger.session.events())} of the ledger.*{fault}"
    ):
        audit()


def test_a_correction_that_does_not_say_so_of_the_old_release_is_found(
    ledger: Ledger, drawn, audit, monkeypatch
) -> None:
    drawn("old")
    ledger.releases.publish("old", "lease of old", FILES)
    drawn("new", supersedes="old")
    monkeypatch.setattr("marginweave.ledger.releases.publication", lambda *a: publication(*a)[:1])
    ledger.releases.publish("new", "lease of new", FILES)
    with pytest.raises(
        AuditError, match="release new corrects old, and no row says so of that one"
    ):
        audit()


@on_both
def test_of_two_corrections_begun_at_once_one_is_published(ledger, drawn, audit) -> None:
    """The second is refused in the transaction that would publish it, approved or not; it can still be rejected."""
    drawn("old")
    ledger.releases.publish("old", "lease of old", FILES)
    for name in ("one", "two"):
        drawn(name, supersedes="old", needs_approval=True)
        ledger.approvals.submit(name, f"lease of {name}", FILES)
    drawn("three", supersedes="old")
    ledger.approvals.decide("one", approved=True, by="A", reason="ok")
    rows = len(ledger.session.events())
    with pytest.raises(InputError, match="run old is superseded already, by run one"):
        ledger.approvals.decide("two", approved=True, by="A", reason="ok")
    with pytest.raises(InputError, match="run old is superseded already, by run one"):
        ledger.releases.publish("three", "lease of three", FILES)
    assert len(ledger.session.events()) == rows
    assert not ledger.approvals.decide("two", approved=False, by="A", reason="too late").approved
    audit()


def test_a_second_correction_that_is_published_past_the_rules_is_found(
    ledger, drawn, audit, monkeypatch
) -> None:
    drawn("old")
    ledger.releases.publish("old", "lease of old", FILES)
    for name in ("one", "two"):
        drawn(name, supersedes="old")
    ledger.releases.publish("one", "lease of one", FILES)
    monkeypatch.setattr("marginweave.ledger.releases.check_correction", lambda *_: None)
    ledger.releases.publish("two", "lease of two", FILES)
    with pytest.raises(AuditError, match="release old is superseded twice"):
        audit()


def test_nobody_looks_at_the_rows_while_a_release_about_the_same_people_awaits_approval(
    ledger, drawn, account
) -> None:
    """Of its own account; an account of other people waits for nothing."""
    ledger.accounts.open(replace(account, dataset="others"), actor="steward")
    published = {name: f"of {name}" for name in ("affairs", "others")}
    for name, release in published.items():
        drawn(release, dataset=name, source=name)
        ledger.releases.publish(release, f"lease of {release}", FILES)
    drawn("waiting", needs_approval=True)
    # under way: its statement is not written yet
    assert ledger.approvals.awaited("affairs") is None
    ledger.approvals.submit("waiting", "lease of waiting", FILES)
    assert ledger.approvals.awaited("affairs").release == "waiting"
    with pytest.raises(BudgetError, match="run waiting of account affairs awaits approval"):
        ledger.evaluations.record("affairs", published["affairs"])
    assert not ledger.evaluations.precede("affairs", None)
    ledger.evaluations.record("others", published["others"])
    ledger.approvals.decide("waiting", approved=True, by="A", reason="ok")
    assert not ledger.evaluations.precede("affairs", None)
    ledger.evaluations.record("affairs", published["affairs"])
    assert ledger.evaluations.precede("affairs", None)
