"""The allowance of a box: fixed when its account is opened, charged in plain (epsilon, delta), bounded by itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.accounting.accountants import gdp_mu
from marginweave.accounting.accounts import Account, Box
from marginweave.accounting.charges import Charge, ChargedPlan
from marginweave.accounting.records import Event, EventKind, ReleaseRecord, now
from marginweave.base.budget import BasicAmount, Cost, amount
from marginweave.base.errors import AuditError, BudgetError, InputError
from marginweave.ledger import Ledger, accounts
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.keys import load_key
from marginweave.ledger.tables import columns_of, event_of

ALLOWANCE = BasicAmount(epsilon=Decimal("0.5"), delta=Decimal("1e-7"))
Ask = Callable[..., ReleaseRecord]


@pytest.fixture
def people(ledger: Ledger, account: Account, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger with an account of (4, 1e-6) whose box has an allowance of (0.5, 1e-7)."""
    chosen = Box(
        mu2=amount(gdp_mu(3.5, 8e-7) ** 2 * 0.999), delta_add=Decimal("1e-7"), allowance=ALLOWANCE
    )
    with monkeypatch.context() as patched:
        patched.setattr(accounts, "box_for", lambda *_: chosen)
        ledger.accounts.open(
            replace(account, dataset="people", epsilon=Decimal(4)), actor="steward"
        )
    return ledger


@pytest.fixture
def ask(people: Ledger, reserve) -> Ask:
    """Reserves a release whose draws are charged in plain (epsilon, delta) each."""

    def call(name: str, epsilon: str, delta: str = "1e-9", draws: int = 1, dataset: str = "people"):
        cost = Cost(plain=BasicAmount(epsilon=Decimal(epsilon), delta=Decimal(delta)))
        plan = ChargedPlan(
            epsilon=float(epsilon) * draws,
            delta=float(Decimal(delta) * draws),
            neighbors="add-remove",
            delta_threshold=0.0,
            spent_epsilon=float(epsilon) * draws,
            charges=tuple(
                Charge(
                    name=f"level-{k}",
                    length=k,
                    mechanism="rounded-gaussian",
                    parameter=1.0,
                    cost=cost,
                )
                for k in range(1, draws + 1)
            ),
        )
        return reserve(name, dataset=dataset, plan=plan, source=dataset)

    return call


def test_an_allowance_admits_to_its_last_digit_and_no_further(people, ask) -> None:
    """Five charges of a tenth fill a half exactly, in decimals; one unit of the 30th digit more is refused, and noted."""
    for number in range(5):
        ask(str(number), "0.1")
    assert people.accounts.total("people").spent.cost.plain.epsilon == ALLOWANCE.epsilon
    with pytest.raises(
        BudgetError, match=r"allowance of epsilon 0 of 0\.5 left, and 1e-30 is asked for"
    ):
        ask("over", "0." + "0" * 29 + "1")
    assert people.accounts.total("people").spent.cost.plain.epsilon == ALLOWANCE.epsilon
    assert people.session.events()[-1].body["reason"] == "cap"


def test_each_coordinate_of_an_allowance_is_a_bound(ask) -> None:
    """Delta alone may be used up."""
    ask("first", "0.1", "9.9e-8")
    with pytest.raises(BudgetError, match="allowance of delta"):
        ask("second", "0.1", "2e-9")
    ask("third", "0.1")


def test_draws_are_charged_together(people, ask) -> None:
    """What a draw gives back is back in the allowance."""
    ask("before", "0.1")
    with pytest.raises(BudgetError, match="allowance of epsilon"):
        ask("too much", "0.3", draws=2)
    ask("first", "0.15", draws=2)
    assert people.accounts.total("people").spent.cost.plain.epsilon == Decimal("0.4")
    people.draws.return_unused("first", ["level-2"])
    assert people.accounts.total("people").spent.cost.plain.epsilon == Decimal("0.25")


def test_an_account_without_an_allowance_takes_no_plain_charge(ask, reserve, plan) -> None:
    """But for its first release, which its own statement admits."""
    reserve("first", plan=plan(mu2=0.001, epsilon=0.5))
    with pytest.raises(
        BudgetError, match=r"allowance of epsilon 0 of 0 left, and 0\.1 is asked for"
    ):
        ask("second", "0.1", dataset="affairs")


def test_no_coordinate_pays_for_another(people, ask, reserve, plan) -> None:
    """An allowance that nothing was charged to leaves mu^2 what it has, and mu^2 leaves the allowance what it has."""
    box = people.accounts.total("people").account.box
    number = 0
    while people.accounts.total("people").spent.cost.mu2 + 3 * amount(0.04) <= box.mu2:
        reserve(str(number), dataset="people", plan=plan(mu2=0.04, epsilon=2.0), source="people")
        number += 1
    assert number > 3
    with pytest.raises(BudgetError, match="noise, in percent of its budget"):
        reserve("over", dataset="people", plan=plan(mu2=0.04, epsilon=2.0), source="people")
    ask("laplace", "0.5", "1e-7")
    assert people.accounts.total("people").epsilon <= 4


def test_a_box_is_fixed(people, account) -> None:
    """Opening again with the same facts does nothing; a new cap keeps the allowance's part of it."""
    people.accounts.open(replace(account, dataset="people", epsilon=Decimal(4)), actor="steward")
    assert people.accounts.total("people").account.box.allowance == ALLOWANCE
    people.accounts.change_cap("people", 8.0, 1e-5, "more", "steward")
    assert people.accounts.total("people").account.box.allowance == BasicAmount(
        epsilon=Decimal(1), delta=Decimal("1e-6")
    )


@pytest.mark.parametrize("change", [{"epsilon": Decimal("1e-400")}, {"delta": Decimal("1e-400")}])
def test_a_cap_that_would_be_stored_as_nothing_is_refused(ledger, account, change) -> None:
    with pytest.raises(InputError, match=r"\(1E-400\) is too small: it would be stored as 0"):
        ledger.accounts.open(replace(account, dataset="people", **change), actor="steward")


AMOUNTS = st.decimals(min_value=0, max_value=9, allow_nan=False, allow_infinity=False, places=30)


@given(AMOUNTS, AMOUNTS, AMOUNTS)
@settings(max_examples=40, deadline=None)
def test_plain_charges_survive_their_row_to_the_digit(
    mu2: Decimal, epsilon: Decimal, delta: Decimal
) -> None:
    """What is written in a row of the ledger is what is read from it."""
    cost = Cost(mu2=mu2, plain=BasicAmount(epsilon=epsilon, delta=delta))
    event = Event(
        kind=EventKind.RESERVED, actor="a", created=now(), release="r", draw="d", cost=cost
    )
    assert event_of({**columns_of(event), "seq": 1}).cost == cost


@pytest.mark.parametrize("column", ["plain_epsilon", "plain_delta"])
@pytest.mark.parametrize("value", ["'0.01'", "NULL"])
def test_a_changed_plain_charge_is_found(
    people, ask, location: Path, column: str, value: str
) -> None:
    """Lowered or taken away, the row no longer has its hash."""
    ask("first", "0.1", "1e-8")
    with sqlite3.connect(location) as connection:
        connection.execute("DROP TRIGGER events_no_update")
        connection.execute(f"UPDATE events SET {column} = {value} WHERE draw = 'level-1'")
    connection.close()
    with pytest.raises(BudgetError, match="was changed after it was written"):
        Ledger.open(location).accounts.total("people")


def test_the_audit_counts_the_allowance_again(
    people, ask, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that forgets the allowance is found by the auditor, at the row that overdrew it."""
    ask("first", "0.3")
    audit_ledger(location, load_key(location, {}, ""))
    monkeypatch.setattr("marginweave.ledger.releases.refusal", lambda *_: None)
    ask("second", "0.3")
    with pytest.raises(AuditError, match="with release second, account people is over its cap"):
        audit_ledger(location, load_key(location, {}, ""))
