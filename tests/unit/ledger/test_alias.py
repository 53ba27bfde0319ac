"""One source has one account, unless somebody decides otherwise and signs for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marginweave.base.errors import BudgetError, InputError
from marginweave.ledger import Ledger
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.keys import load_key
from tests.support.databases import on_both

pytestmark = on_both


@pytest.fixture
def twins(ledger, account) -> Ledger:
    """A second account."""
    ledger.accounts.open(replace(account, dataset="twin"), actor="steward")
    return ledger


def test_an_alias_admits_the_source_and_stays_in_the_ledger(twins, reserve, location) -> None:
    """Refused before, reserved after; the decision is an event with its reason, booked once."""
    reserve()
    with pytest.raises(BudgetError, match="marginweave ledger alias twin affairs"):
        reserve("second", dataset="twin")
    for _ in range(2):
        twins.accounts.alias("twin", "affairs", "board decision 14", actor="steward")
    assert reserve("third", dataset="twin").dataset == "twin"
    found = audit_ledger(location, load_key(location, {}, ""))
    assert found.accounts["twin"].aliases == {"affairs"}
    assert [e.body for e in found.events if e.kind == "ALIASED"] == [
        {"other": "affairs", "reason": "board decision 14"}
    ]


def test_an_alias_has_one_direction_and_two_names(twins, reserve, account) -> None:
    """What may be released under `twin` says nothing of the way back, nor of a third account."""
    twins.accounts.open(replace(account, dataset="third"), actor="steward")
    twins.accounts.alias("twin", "affairs", "because", actor="steward")
    reserve("first", dataset="twin")
    with pytest.raises(BudgetError, match="released under account twin"):
        reserve("second", dataset="affairs")
    with pytest.raises(BudgetError, match="released under account twin"):
        reserve("fourth", dataset="third")


def test_a_look_at_one_account_marks_what_an_alias_ties_to_it(twins, reserve, account) -> None:
    """Both ways and through a third one, from the alias on: a release reserved before it stays unmarked."""
    twins.accounts.open(replace(account, dataset="third"), actor="steward")
    reserve("seen")
    twins.evaluations.record("affairs", "seen")
    reserve("before", dataset="third", source="another")
    assert not twins.evaluations.precede("twin", None)
    twins.accounts.alias("twin", "affairs", "because", actor="steward")
    assert twins.evaluations.precede("twin", None)
    twins.accounts.alias("twin", "third", "because", actor="steward")
    assert twins.evaluations.precede("third", None)
    assert not twins.evaluations.precede("third", "before")


def test_a_source_under_two_accounts_needs_both_aliases(twins, reserve, account) -> None:
    """With one of two accounts decided, the other still refuses."""
    twins.accounts.open(replace(account, dataset="third"), actor="steward")
    reserve()
    twins.accounts.alias("twin", "affairs", "because", actor="steward")
    reserve("second", dataset="twin")
    twins.accounts.alias("third", "twin", "because", actor="steward")
    with pytest.raises(BudgetError, match="released under account affairs"):
        reserve("fourth", dataset="third")


@pytest.mark.parametrize(
    ("dataset", "other", "reason", "error"),
    [
        ("twin", "nobody", "because", BudgetError),
        ("nobody", "twin", "because", BudgetError),
        ("twin", "twin", "because", InputError),
        ("twin", "affairs", "  ", InputError),
    ],
)
def test_what_is_no_decision_is_refused(twins, dataset, other, reason, error) -> None:
    rows = twins.verify()
    with pytest.raises(error):
        twins.accounts.alias(dataset, other, reason, actor="steward")
    assert twins.verify() == rows
