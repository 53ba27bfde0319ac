"""The second purse: fixed when its account is opened, charged in plain (epsilon, delta), bounded by itself and by the cap."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.schemas.budget import BudgetPlan, Cost, Plain, PlannedDraw
from marginweave.schemas.errors import AuditError, BudgetError, InputError
from marginweave.schemas.ledger import Account, Event, EventKind, ReleaseRecord
from marginweave.tasks.budget.ledger import Ledger
from marginweave.tasks.budget.ledger.audit import audit_ledger
from marginweave.tasks.budget.ledger.core import now
from marginweave.tasks.budget.ledger.key import load_key
from marginweave.tasks.budget.ledger.tables import columns_of, event_of

PURSE = Plain(epsilon=Decimal("0.5"), delta=Decimal("1e-7"))
Ask = Callable[..., ReleaseRecord]


@pytest.fixture
def people(ledger: Ledger, account: Account) -> Ledger:
    """A ledger with an account of (4, 1e-6) that has a purse of (0.5, 1e-7)."""
    ledger.open_account(replace(account, dataset="people", epsilon=Decimal(4), purse=PURSE), actor="steward")
    return ledger


@pytest.fixture
def ask(people: Ledger, reserve) -> Ask:
    """Reserves a release whose draws are charged in plain (epsilon, delta) each."""

    def call(name: str, epsilon: str, delta: str = "1e-9", draws: int = 1, spares: int = 0, dataset: str = "people"):
        cost = Cost(plain=Plain(epsilon=Decimal(epsilon), delta=Decimal(delta)))
        plan = BudgetPlan(
            epsilon=float(epsilon) * draws,
            delta=float(Decimal(delta) * draws),
            neighbors="add-remove",
            accountant="gdp",
            delta_threshold=0.0,
            spent_epsilon=float(epsilon) * draws,
            draws=tuple(
                PlannedDraw(name=f"level-{k}", mechanism="rounded-gaussian", length=k, parameter=1.0, cost=cost)
                for k in range(1, draws + 1)
            ),
            spares=spares,
        )
        return reserve(name, dataset=dataset, plan=plan, source=dataset)

    return call


def test_a_purse_admits_to_its_last_digit_and_no_further(people, ask) -> None:
    """Five charges of a tenth fill a half exactly, in decimals; one unit of the 30th digit more is refused, and noted."""
    for number in range(5):
        ask(str(number), "0.1")
    assert people.account_total("people").purse.epsilon == PURSE.epsilon
    with pytest.raises(BudgetError, match=r"its purse of epsilon 0\.5 and delta 1e-07; this release asks it for"):
        ask("over", "0." + "0" * 29 + "1")
    assert people.account_total("people").purse.epsilon == PURSE.epsilon
    assert people._all_events()[-1].body["reason"] == "purse"


def test_each_coordinate_of_a_purse_is_a_bound(ask) -> None:
    """Delta alone may be used up."""
    ask("first", "0.1", "9.9e-8")
    with pytest.raises(BudgetError, match="purse"):
        ask("second", "0.1", "2e-9")
    ask("third", "0.1")


def test_draws_and_spares_are_charged_together(people, ask) -> None:
    """Room for a lost draw is taken from the purse like the draw itself, and given back."""
    with pytest.raises(BudgetError, match="purse"):
        ask("too much", "0.2", draws=2, spares=1)
    ask("first", "0.15", draws=2, spares=1)
    assert people.account_total("people").purse.epsilon == Decimal("0.45")
    people.give_back("first", ["level-2", "spare-1"])
    assert people.account_total("people").purse.epsilon == Decimal("0.15")


def test_an_account_without_a_purse_takes_no_plain_charge(ask) -> None:
    """The refusal says what is missing."""
    with pytest.raises(BudgetError, match="opened without a purse"):
        ask("first", "0.1", dataset="affairs")


def test_gaussian_releases_leave_the_purse_what_it_holds(people, ask, reserve, plan) -> None:
    """Once several releases share the account the whole purse counts: what is left for them is the cap without it."""
    number, admitted = 0, True
    while admitted and number < 40:
        number += 1
        try:
            reserve(str(number), dataset="people", plan=plan(mu2=0.04, epsilon=2.0), source="people")
        except BudgetError as refused:
            admitted = "has spent" not in str(refused)
    assert 3 < number < 40
    before = people.account_total("people")
    ask("laplace", "0.5", "1e-7")
    after = people.account_total("people")
    assert before.epsilon == after.epsilon <= 4
    assert (before.composition, after.composition) == ("gdp", "gdp")


def test_a_purse_is_fixed(people, account) -> None:
    """Neither opening again nor a new cap changes it; the same facts again do nothing."""
    fixed = replace(account, dataset="people", epsilon=Decimal(4), purse=PURSE)
    people.open_account(fixed, actor="steward")
    with pytest.raises(BudgetError, match=r"a purse of epsilon 0\.5 and delta 1e-07"):
        people.open_account(replace(fixed, purse=Plain(epsilon=Decimal(1))), actor="steward")
    people.change_cap("people", 8.0, 1e-5, "more", "steward")
    assert people.account_total("people").account.purse == PURSE


@pytest.mark.parametrize(
    "purse", [("1.1", "0"), ("0.5", "1e-6"), ("0", "1e-7"), ("-1", "0"), ("0.5", "-1e-9"), ("NaN", "0")]
)
def test_a_purse_is_a_part_of_the_cap(ledger, account, purse) -> None:
    """More than the cap, all of its delta, nothing but delta, or less than nothing is no purse."""
    wrong = Plain(epsilon=Decimal(purse[0]), delta=Decimal(purse[1]))
    with pytest.raises(InputError, match="is a part of the cap"):
        ledger.open_account(replace(account, dataset="people", purse=wrong), actor="steward")


@pytest.mark.parametrize(
    ("purse", "message"),
    [
        (("0.5", "9.99999999999999999999999e-7"), "is a part of the cap"),
        (("1e-400", "0"), r"purse-epsilon \(1E-400\) is too small"),
        (("0.5", "1e-400"), "purse-delta .* is too small"),
    ],
)
def test_a_purse_is_checked_as_it_is_stored(ledger, account, location, purse, message) -> None:
    """Rounding to doubles neither makes it all of the cap's delta nor takes it away; the ledger stays sound."""
    wrong = Plain(epsilon=Decimal(purse[0]), delta=Decimal(purse[1]))
    with pytest.raises(InputError, match=message):
        ledger.open_account(replace(account, dataset="people", purse=wrong), actor="steward")
    typed = Plain(epsilon=Decimal("0.50000000000000000000000001"), delta=Decimal("1.00000000000000000000001e-7"))
    ledger.open_account(replace(account, dataset="people", purse=typed), actor="steward")
    assert ledger.account_total("people").account.purse == PURSE
    audit_ledger(location, load_key(location, {}, ""))


@pytest.mark.parametrize("change", [{"epsilon": Decimal("1e-400")}, {"delta": Decimal("1e-400")}])
def test_a_cap_that_would_be_stored_as_nothing_is_refused(ledger, account, change) -> None:
    with pytest.raises(InputError, match=r"\(1E-400\) is too small: it would be stored as 0"):
        ledger.open_account(replace(account, dataset="people", **change), actor="steward")


AMOUNTS = st.decimals(min_value=0, max_value=9, allow_nan=False, allow_infinity=False, places=30)


@given(AMOUNTS, AMOUNTS, AMOUNTS)
@settings(max_examples=100, deadline=None)
def test_plain_charges_survive_their_row_to_the_digit(mu2: Decimal, epsilon: Decimal, delta: Decimal) -> None:
    """What is written in a row of the ledger is what is read from it."""
    cost = Cost(mu2=mu2, plain=Plain(epsilon=epsilon, delta=delta))
    event = Event(kind=EventKind.RESERVED, actor="a", created=now(), release="r", draw="d", cost=cost)
    row = columns_of(event)
    assert event_of({**row, "seq": 1}).cost == cost
    assert (row["plain_epsilon"] is None) is (row["plain_delta"] is None) is (not cost.plain)


@pytest.mark.parametrize("column", ["plain_epsilon", "plain_delta"])
@pytest.mark.parametrize("value", ["'0.01'", "NULL"])
def test_a_changed_plain_charge_is_found(people, ask, location: Path, column: str, value: str) -> None:
    """Lowered or taken away, the row no longer has its hash."""
    ask("first", "0.1", "1e-8")
    with sqlite3.connect(location) as connection:
        connection.execute("DROP TRIGGER events_no_update")
        connection.execute(f"UPDATE events SET {column} = {value} WHERE draw = 'level-1'")
    connection.close()
    with pytest.raises(BudgetError, match="was changed after it was written"):
        Ledger.open(location).account_total("people")


def test_the_audit_counts_the_purse_again(people, ask, location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that forgets the purse is found by the auditor, at the row that overdrew it."""
    ask("first", "0.3")
    audit_ledger(location, load_key(location, {}, ""))
    monkeypatch.setattr("marginweave.tasks.budget.ledger.releases.refusal", lambda *_: None)
    ask("second", "0.3")
    with pytest.raises(AuditError, match="with release second, more is charged to the purse of account people"):
        audit_ledger(location, load_key(location, {}, ""))
