"""A policy of a period beside the cap: it refuses, says from when a release fits, and the auditor applies it again."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marginweave.accounting.accounts import Account, Policy
from marginweave.accounting.records import EventKind
from marginweave.base.errors import AuditError, BudgetError, InputError
from marginweave.flows.cli.app import app
from marginweave.ledger import Ledger
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.keys import load_key
from tests.support.databases import on_both
from tests.support.releases import ACCOUNT, ALONE

POLICY = Policy(per="quarter", epsilon=Decimal(1), delta=Decimal("1e-6"))
NOVEMBER = datetime(2026, 11, 21, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 31, 23, 59, tzinfo=UTC)
JANUARY = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.fixture
def account() -> Account:
    return replace(ACCOUNT, epsilon=Decimal(4), delta=Decimal("1e-5"), policy=POLICY)


@pytest.fixture
def at(monkeypatch):
    """Set the clock by which releases are reserved."""

    def call(moment: datetime) -> None:
        monkeypatch.setattr("marginweave.ledger.releases.now", lambda: moment)

    call(NOVEMBER)
    return call


@pytest.fixture
def full(plan):
    """A plan that costs nearly all of (1, 1e-6), all of the policy."""
    return plan(draws=("count",), mu2=ALONE)


def _audit(location) -> dict[str, Account]:
    return dict(audit_ledger(location, load_key(location, {}, "")).accounts)


@on_both
def test_a_period_takes_what_its_policy_says_and_the_next_begins_anew(
    ledger, reserve, full, at, location
) -> None:
    """A release equal to the policy fits; one more does not until the first of January; the cap sees all of them."""
    reserve("first", plan=full)
    at(DECEMBER)
    with pytest.raises(
        BudgetError,
        match=r"epsilon 1 at delta 1e-06 per quarter.*it fits from 2027-01-01 \(UTC\) on",
    ):
        reserve("second", plan=full)
    newest = ledger.session.events()[-1]
    assert (newest.kind, newest.body["reason"]) == (EventKind.REFUSED, "policy")
    told = ledger.accounts.period_forecast("affairs", full, DECEMBER)
    assert (told.fits, str(told.fits_from), told.before <= 1 < told.after) == (
        False,
        "2027-01-01",
        True,
    )
    at(JANUARY)
    assert ledger.accounts.period_forecast("affairs", full, JANUARY).fits
    reserve("third", plan=full)
    total = ledger.accounts.total("affairs")
    assert total.spent.releases == 2
    assert total.epsilon > 1  # nobody's loss begins anew with a quarter
    assert _audit(location)["affairs"].policy == POLICY


def test_new_snapshots_of_the_same_people_share_account_and_policy(
    ledger, reserve, plan, at
) -> None:
    """Other source bytes under the same dataset: one total, one period."""
    small = plan(epsilon=0.5, mu2=0.004)
    for number in range(2):
        reserve(f"snapshot-{number}", plan=small, source=f"{number}" * 64)
        at(DECEMBER)
    assert ledger.accounts.total("affairs").spent.releases == 2
    one, two = (
        ledger.accounts.period_forecast("affairs", small, JANUARY).after,
        ledger.accounts.period_forecast("affairs", small, DECEMBER),
    )
    assert one < two.before < two.after


def test_what_is_given_back_makes_room_in_its_period(ledger, reserve, full, at) -> None:
    """What was never drawn is charged to no period."""
    reserve("first", plan=full)
    ledger.draws.return_unused("first", ["count"])
    reserve("second", plan=full)


def test_the_cap_is_asked_before_the_policy(ledger, reserve, plan, at) -> None:
    """Where both refuse, the guarantee's bound is what is said."""
    with pytest.raises(
        BudgetError,
        match=r"does not hold this release: noise, in percent of its budget: 100 of 100 left",
    ):
        reserve("first", plan=plan(draws=("count",), epsilon=41.0, mu2=30.0))


def test_a_release_that_fits_no_period_says_how_to_change_the_policy(
    ledger, reserve, plan, at, location, monkeypatch
) -> None:
    """And the command that it ends with is one that works."""
    large = plan(draws=("count",), epsilon=2.0, mu2=0.2)
    with pytest.raises(BudgetError, match="more than it allows in any quarter") as refused:
        reserve("first", plan=large)
    command = str(refused.value).partition("; to change the policy: marginweave ledger ")[2]
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(location))
    result = CliRunner().invoke(app, ["ledger", *shlex.split(command)])
    assert result.exit_code == 0, result.output
    assert Ledger.open(location).accounts.total("affairs").account.policy == replace(
        POLICY, epsilon=Decimal("2.0")
    )
    reserve("first", plan=large)


def test_an_auditor_finds_what_was_admitted_over_the_policy(
    ledger, reserve, full, at, location, monkeypatch
) -> None:
    """Also where the policy was lifted afterwards; and a policy that is no part of the cap."""
    reserve("first", plan=full)
    with monkeypatch.context() as patched:
        patched.setattr("marginweave.ledger.releases.refusal", lambda *_: None)
        reserve("second", plan=full)
    ledger.accounts.change_cap("affairs", 4.0, 1e-5, "hide it", "steward", policy=None)
    with pytest.raises(
        AuditError,
        match="account affairs is over its policy of epsilon 1 at delta 1e-06 per quarter",
    ):
        _audit(location)


def test_policies_are_opened_changed_and_ended_by_decision(ledger, account, location) -> None:
    """The same again does nothing, another is refused; a larger one than the cap, or a smaller cap than it, are refused."""
    ledger.accounts.open(account, actor="steward")
    with pytest.raises(BudgetError, match="epsilon 1 at delta 1e-06 per quarter"):
        ledger.accounts.open(replace(account, policy=None), actor="steward")
    for wrong in (
        {"epsilon": Decimal(5)},
        {"delta": Decimal(0)},
        {"epsilon": Decimal(-1)},
        {"delta": Decimal("1e-4")},
    ):
        with pytest.raises(
            InputError, match=r"per quarter .* must have a positive epsilon of at most 4"
        ):
            ledger.accounts.change_cap(
                "affairs", 4.0, 1e-5, "x", "steward", policy=replace(POLICY, **wrong)
            )
    with pytest.raises(InputError, match=r"of at most 0.5"):
        ledger.accounts.change_cap("affairs", 0.5, 1e-5, "x", "steward")
    ledger.accounts.change_cap("affairs", 3.0, 1e-5, "x", "steward")
    assert ledger.accounts.total("affairs").account.policy == POLICY
    monthly = replace(POLICY, per="month", epsilon=Decimal("0.1"))
    ledger.accounts.change_cap("affairs", 3.0, 1e-5, "x", "steward", policy=monthly)
    assert Ledger.open(location).accounts.total("affairs").account.policy == monthly
    ledger.accounts.change_cap("affairs", 3.0, 1e-5, "x", "steward", policy=None)
    assert _audit(location)["affairs"].policy is None


def test_the_command_line_opens_shows_and_exports_a_policy(
    location, tmp_path: Path, monkeypatch
) -> None:
    """Only beside a cap; exact as it was typed; what is no policy is refused in one line."""
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(location))

    def call(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["ledger", *arguments])
        assert result.exit_code == code, result.output
        return result.output

    cap = ["--epsilon", "4", "--delta", "1e-5"]
    call("open", "people", "--per", "quarter=1,1e-6", code=2)
    for wrong in (
        "1,1e-6",
        "quarter=1",
        "fortnight=1,1e-6",
        "quarter=x,1e-6",
        "quarter=5,1e-6",
        "quarter=1,0",
    ):
        assert "per" in call("open", "people", *cap, "--per", wrong, code=2)
    assert "which guarantees nothing: epsilon 0.3 at delta 1e-07 per month" in call(
        "open", "people", *cap, "--per", "month=0.3,1e-7"
    )
    assert "policy, not a guarantee: epsilon 0 of 0.3 at delta 1e-07" in call("show", "people")
    call("verify")
    call("export", "--to", str(tmp_path / "out"))
    opened = json.loads((tmp_path / "out" / "events.jsonl").read_text().splitlines()[-1])
    assert opened["body"]["policy"] == {"per": "month", "epsilon": "0.3", "delta": "1E-7"}
    call("cap", "people", *cap, "--reason", "x", "--per", "none")
    assert "policy" not in call("show", "people")
