"""The box of an account in the ledger: first releases, raised caps, refusals that help, and ledgers of 0.1.0."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from marginweave.accounting.accounts import Account, Box
from marginweave.accounting.records import Event, EventKind, now
from marginweave.base.budget import BasicAmount
from marginweave.base.errors import AuditError, BudgetError, InputError
from marginweave.ledger import Ledger, ReleaseRequest, is_older, releases, upgrade
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.boxes import admitted
from marginweave.ledger.keys import load_key
from marginweave.ledger.replay import Replay
from marginweave.ledger.rules import largest_epsilon
from marginweave.planning.split import plan_budget
from marginweave.publish.statement import ASSUMPTIONS, old_releases
from marginweave.runs.preparation import open_ledger
from marginweave.runs.request import read_request
from tests.support.budget_plans import configuration
from tests.support.places import REPOSITORY
from tests.support.releases import FULL, gaussian, reserve_release, small_plan

HALF = ("count", "level-1")


def _audit(location: Path) -> None:
    audit_ledger(location, load_key(location, {}, ""))


def test_a_closed_account_stays_closed_after_a_refund(ledger, reserve, location) -> None:
    """The first release uses all of (1, 1e-6), more than the box; given back but for one draw, nothing else is admitted."""
    assert reserve(plan=small_plan(cost=gaussian(FULL))).by_statement
    ledger.draws.return_unused("first", ["level-1", "level-2"])
    with pytest.raises(BudgetError, match="its first release was admitted by its own statement"):
        reserve("second", plan=small_plan(cost=gaussian(1e-4), epsilon=0.1))
    _audit(location)


def test_only_the_first_release_is_admitted_by_its_statement(ledger, reserve, location) -> None:
    """Also where the one before it was given back whole."""
    reserve(plan=small_plan(cost=gaussian(1e-4), epsilon=0.1))
    ledger.draws.return_unused("first", ["count", "level-1", "level-2"])
    with pytest.raises(
        BudgetError,
        match=r"does not hold this release: noise, in percent of its budget: (99\.\d+|100) of 100 left, and \d{3,}(\.\d+)? is",
    ):
        reserve("second", plan=small_plan(cost=gaussian(FULL)))
    _audit(location)


def test_a_raised_cap_opens_what_was_closed(ledger, reserve, location) -> None:
    """As soon as its box holds all that was reserved for the first release; a lower one does not."""
    reserve(plan=small_plan(cost=gaussian(FULL)))
    ledger.draws.return_unused("first", ["level-1", "level-2"])
    small = small_plan(cost=gaussian(1e-4), epsilon=0.1)
    ledger.accounts.change_cap("affairs", 1.001, 1e-6, "too little", "steward")
    with pytest.raises(BudgetError, match="admits nothing"):
        reserve("second", plan=small)
    ledger.accounts.change_cap("affairs", 1.1, 1e-6, "enough", "steward")
    assert not reserve("second", plan=small).by_statement
    _audit(location)


@pytest.mark.parametrize(
    "change",
    [
        {"box": {"mu2": "0.06", "delta_add": "0", "allowance_epsilon": "0", "allowance_delta": "0"}},
        {"box": {"mu2": "0.05", "delta_add": "9e-7", "allowance_epsilon": "0", "allowance_delta": "2e-7"}},
        {"box": {"mu2": "-1", "delta_add": "0", "allowance_epsilon": "0", "allowance_delta": "0"}},
        {"box": {"mu2": "0.05", "delta_add": "0", "allowance_epsilon": "1.5", "allowance_delta": "0"}},
    ],
)
def test_a_box_that_promises_more_than_its_cap_is_found(ledger, change) -> None:
    """However it came into the rows."""
    events = ledger.session.events()
    replay = Replay()
    replay.step(1, events[0])
    with pytest.raises(AuditError, match="the box "):
        replay.step(2, replace(events[1], body={**events[1].body, **change}))


def test_what_the_box_does_not_hold_is_found(ledger, reserve, location, monkeypatch) -> None:
    """A writer that admits too much, or calls a release the first that is not, is found at its row."""
    reserve(plan=small_plan(cost=gaussian(0.01)))
    monkeypatch.setattr(releases, "refusal", lambda *_: None)
    reserve("second", plan=small_plan(cost=gaussian(0.01), epsilon=1.0))
    with pytest.raises(AuditError, match="with release second, account affairs is over its cap"):
        _audit(location)


def test_a_refusal_is_one_row_however_often_it_is_tried(ledger, reserve, plan) -> None:
    """Until something changes that could make it another."""
    reserve(plan=small_plan(cost=gaussian(0.01)))
    over = small_plan(cost=gaussian(0.01), epsilon=1.0)

    def rows() -> int:
        return sum(event.kind == EventKind.REFUSED for event in ledger.session.events())

    for number in range(3):
        with pytest.raises(BudgetError):
            reserve(f"try-{number}", run="night", plan=over)
        with pytest.raises(BudgetError):
            ledger.releases.check_admission(
                ReleaseRequest(
                    dataset="affairs", run="night", plan=over, plan_digest="plan-digest", unit="row", actor="steward"
                )
            )
    assert rows() == 1
    with pytest.raises(BudgetError):
        reserve("other", run="another night", plan=over)
    assert rows() == 2
    ledger.accounts.change_cap("affairs", 1.01, 1e-6, "a little", "steward")
    with pytest.raises(BudgetError):
        reserve("try-4", run="night", plan=over)
    assert rows() == 3


@pytest.mark.parametrize("left", [0.046, 0.026, 0.006])
@pytest.mark.parametrize("private", [False, True])
def test_the_largest_epsilon_fits_and_one_percent_more_does_not(
    ledger, reserve, account, left: float, private: bool
) -> None:
    """What a refusal offers first is a plan of the same configuration that is admitted."""
    asked = configuration(private=private)
    cap = {"epsilon": Decimal("1.8"), "delta": Decimal("4e-6"), "kind_of_plan": plan_budget(asked).cost}
    ledger.accounts.open(replace(account, dataset="people", **cap), actor="steward")
    used = float(ledger.accounts.total("people").account.box.mu2) - left
    spent = small_plan(("count",), cost=gaussian(used), epsilon=1.8, delta=4e-6)
    reserve(dataset="people", plan=spent, source="people")
    total = ledger.accounts.total("people")
    largest = largest_epsilon(asked, total.account, total.spent)
    assert 0.05 < largest < 1

    def fits(epsilon: float) -> bool:
        plan = plan_budget(configuration(private=private, epsilon=epsilon))
        return admitted(total.account, total.spent, plan.cost, plan.statement) is not None

    assert fits(largest)
    assert not fits(largest * 1.011)
    with pytest.raises(BudgetError) as refused:
        reserve("second", dataset="people", plan=plan_budget(asked), source="people", largest=lambda *_: largest)
    said = str(refused.value)
    assert said.index(f"privacy.epsilon: {largest:g}") < said.index(
        "promise to all in the table: marginweave ledger cap"
    )


def test_where_delta_is_missing_no_epsilon_helps_and_that_is_said(ledger, reserve) -> None:
    """A threshold's delta does not depend on epsilon."""
    reserve(plan=small_plan(("count",), cost=gaussian(0.01)))
    asked = configuration(private=True)
    with pytest.raises(BudgetError, match=r"delta for thresholds .* With no epsilon .*; a smaller privacy\.delta"):
        reserve(
            "second", plan=plan_budget(asked), largest=lambda account, spent: largest_epsilon(asked, account, spent)
        )


@pytest.mark.parametrize("delta", [0.00101, 0.1])
def test_a_weak_delta_needs_a_reason(ledger, account, delta: float) -> None:
    """To open an account, and to change its cap."""
    weak = replace(account, dataset="weak", delta=Decimal(repr(delta)))
    with pytest.raises(InputError, match=r"is above 0\.001: with that probability all may be disclosed"):
        ledger.accounts.open(weak, actor="steward")
    with pytest.raises(InputError, match="--weak-delta REASON"):
        ledger.accounts.change_cap("affairs", 1.0, delta, "more", "steward")
    ledger.accounts.open(replace(weak, weak_delta="a public example"), actor="steward")
    ledger.accounts.change_cap("affairs", 1.0, delta, "more", "steward", weak_delta="a public example")
    assert ledger.accounts.total("affairs").account.weak_delta == "a public example"


@pytest.fixture
def old(location: Path, account: Account, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger with accounts as 0.1.0 wrote them: no box, and one with a part of the cap set aside."""
    ledger = Ledger.create(location)
    body = {"epsilon": "2.0", "delta": "1e-06", "unit": "row", "neighbors": "add-remove"}
    aside = {"purse": {"epsilon": "0.5", "delta": "0.0"}}
    with ledger.session.writing() as journal:
        for name, more in (("affairs", {}), ("mixed", aside), ("pure", {"delta": "0.0", **aside})):
            event = Event(kind=EventKind.OPENED, actor="steward", created=now(), account=name, body={**body, **more})
            journal.add_account(event)
    return ledger


def _as_of_0003(location: Path) -> None:
    with sqlite3.connect(location) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0003'")


def _reserve_as_0_1_0(ledger: Ledger, reserve, name: str, plan, monkeypatch, **changes) -> None:
    """Past the rules of today; the rule of then is the auditor's."""
    with monkeypatch.context() as patched:
        patched.setattr(releases, "refusal", lambda *_: None)
        patched.setattr(releases, "admitted", lambda *_: None)
        reserve_on(ledger, name, plan, **changes)


def reserve_on(ledger: Ledger, name: str, plan, **changes):
    return reserve_release(ledger, plan, name, plan_digest="p", **changes)


def test_an_account_of_0_1_0_admits_nothing_before_it_is_upgraded(old) -> None:
    with pytest.raises(
        BudgetError, match=r"was opened by 0\.1\.0 and admits nothing before `marginweave ledger upgrade`"
    ):
        reserve_on(old, "first", small_plan())


def test_an_upgrade_names_the_runs_that_were_stopped_inside_a_draw(old, location, monkeypatch) -> None:
    """0.1.0 alone can finish them, from the backup; those that were stopped between two draws go on here."""
    for name in ("between", "inside"):
        _reserve_as_0_1_0(old, None, name, small_plan(cost=gaussian(0.01)), monkeypatch)
        old.draws.take_lease(name, name)
        old.draws.begin(name, "count", name)
        old.draws.commit(name, "count", name, "ab" * 32, tainted=False)
    old.draws.begin("inside", "level-1", "inside")
    _as_of_0003(location)
    lines = upgrade(location, {})
    (line,) = [line for line in lines if line.startswith("Run ")]
    assert line.startswith("Run inside of account affairs: 0.1.0 was stopped inside draw level-1, ")
    assert "restore the backup" in line


def test_an_upgrade_gives_every_account_the_box_of_its_history(old, location, monkeypatch) -> None:
    """Each is named; rows of before keep their hashes and verify by the rule of then; then the box rules."""
    _reserve_as_0_1_0(old, None, "first", small_plan(cost=gaussian(0.01, 1e-7)), monkeypatch)
    before = old.session.events()
    _as_of_0003(location)
    lines = upgrade(location, {})
    assert [line.partition(":")[0] for line in lines] == [
        "Account affairs, 1 release(s)",
        "Account mixed, 0 release(s)",
        "Account pure, 0 release(s)",
    ]
    assert all("fits its cap" in line for line in lines)
    ledger = Ledger.open(location)
    assert ledger.session.events()[: len(before)] == before
    totals, first = ledger.accounts.totals(), old.releases.find("first")
    boxes = {total.account.dataset: total.account.box or Box() for total in totals}
    assert first is not None
    assert (totals[0].account.releases_before, boxes["affairs"].delta_add) == (1, first.charged.delta)
    assert boxes["mixed"].allowance == BasicAmount(epsilon=Decimal("0.5"))
    assert boxes["pure"].allowance == BasicAmount(epsilon=Decimal(2))
    _audit(location)
    reserve_on(ledger, "second", small_plan(cost=gaussian(0.01)))
    with pytest.raises(BudgetError, match="does not hold this release"):
        reserve_on(ledger, "third", small_plan(cost=gaussian(0.01, 1e-8)))
    _audit(location)
    assert upgrade(location, {}) == []


def test_a_history_that_does_not_fit_freezes_its_account(old, location, monkeypatch) -> None:
    """Shown and not lowered; what is given back does not thaw it; a larger cap does."""
    dear = small_plan(cost=gaussian(float(_largest_of(2.0)) / 3 * 0.9999), epsilon=2.0)
    _reserve_as_0_1_0(old, None, "first", dear, monkeypatch)
    _as_of_0003(location)
    lines = upgrade(location, {})
    assert "it admits nothing until `marginweave ledger cap`" in lines[0]
    ledger = Ledger.open(location)
    ledger.draws.return_unused("first", ["count", "level-1"])
    small = small_plan(cost=gaussian(1e-4), epsilon=0.1)
    with pytest.raises(BudgetError, match=r"0\.1\.0 spent more than its box holds"):
        reserve_on(ledger, "second", small)
    assert ledger.accounts.total("affairs").epsilon <= 2
    ledger.accounts.change_cap("affairs", 2.1, 1e-6, "decided", "steward")
    reserve_on(ledger, "second", small)
    _audit(location)


def _largest_of(epsilon: float) -> Decimal:
    from marginweave.accounting.accountants import gdp_mu

    return Decimal(gdp_mu(epsilon, 1e-6)) ** 2


def test_a_box_that_does_not_follow_from_the_history_is_found(old, location) -> None:
    """An ACCOUNT_BOXED row that forgets what was spent, and a second one."""
    _as_of_0003(location)
    upgrade(location, {})
    ledger = Ledger.open(location)
    events = ledger.session.events()
    row = next(event for event in events if event.kind == EventKind.ACCOUNT_BOXED)
    replay = Replay()
    for seq, event in enumerate(events, start=1):
        if event is row:
            with pytest.raises(AuditError, match="does not follow from what was spent"):
                replay.step(seq, replace(row, body={**row.body, "releases": 3}))
        replay.step(seq, event)
    with pytest.raises(AuditError, match="has a box already"):
        replay.step(len(events) + 1, row)


def test_the_ledger_of_an_example_is_upgraded_by_its_run(tmp_path: Path) -> None:
    """Public data in the home: nobody has to decide anything."""
    request = read_request(REPOSITORY / "deployments/examples/affairs.yaml", run=None, source=None, home=tmp_path)
    assert request.ledger_file is not None
    ledger = Ledger.create(request.ledger_file)
    body = {"epsilon": "10.0", "delta": "1e-06", "unit": "row", "neighbors": "add-remove"}
    with ledger.session.writing() as journal:
        name = request.configuration.dataset
        journal.add_account(Event(kind=EventKind.OPENED, actor="run", created=now(), account=name, body=body))
    _as_of_0003(request.ledger_file)
    opened = open_ledger(request)
    assert opened.accounts.total(name).account.box is not None
    assert not is_older(request.ledger_file)


def test_an_upgrade_without_its_key_changes_nothing(old, location) -> None:
    _as_of_0003(location)
    key = next(location.parent.glob("*.key"))
    key.rename(key.with_suffix(".away"))
    with pytest.raises(BudgetError):
        upgrade(location, {})
    key.with_suffix(".away").rename(key)
    with pytest.raises(BudgetError, match="version 0003"):
        Ledger.open(location)


def test_a_lost_draw_and_its_spare_of_0_1_0_are_legal(old, location) -> None:
    """A spare that replaced a lost draw is followed, and counted as 0.1.0 counted it."""
    cost = gaussian(0.001)
    plan = small_plan(("count",), cost=cost)
    reserved = Event(
        kind=EventKind.RESERVED,
        actor="steward",
        created=now(),
        account="affairs",
        release="first",
        body={
            "epsilon": "0.4",
            "delta": "1e-06",
            "run": "first",
            "plan_digest": "p",
            "source_digest": "s",
            "unit": "row",
            "neighbors": "add-remove",
            "accountant": "gdp",
            "spares": 1,
            "draws": [
                {
                    "name": "count",
                    "mechanism": "rounded-gaussian",
                    "length": 0,
                    "parameter": plan.draws[0].parameter,
                }
            ],
        },
    )
    rows = [reserved, *(replace(reserved, draw=name, cost=cost, body={}) for name in ("count", "spare-1"))]
    moved = replace(reserved, body={}, draw="count", lease="one")
    rows += [replace(moved, kind=EventKind.DRAWN), replace(moved, kind=EventKind.CHARGED_LOST)]
    rows.append(replace(moved, draw="spare-1", kind=EventKind.DRAWN, body={"replaces": "count"}))
    rows.append(replace(moved, draw="spare-1", kind=EventKind.COMMITTED, digest="ab" * 32))
    with old.session.writing() as journal:
        journal.append(*rows)
    _as_of_0003(location)
    upgrade(location, {})
    ledger = Ledger.open(location)
    _audit(location)
    assert ledger.accounts.total("affairs").spent.cost == cost + cost
    record = ledger.releases.find("first")
    standing = record and record.standing("count")
    assert standing is not None
    assert standing.name == "spare-1"


def test_only_releases_of_0_1_0_rest_on_an_assumption_about_budgets() -> None:
    """An account that this version opened assumes nothing of how later budgets are chosen."""
    assert not any("udgets" in assumption for assumption in ASSUMPTIONS)
    assert old_releases(0) == []
    (said,) = old_releases(3)
    assert said.startswith("The budgets of releases 1 to 3 of the account, made by 0.1.0, were not chosen")
