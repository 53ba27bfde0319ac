"""An account admits what fits its cap, says why not, and books one row a draw before anything is drawn."""

from __future__ import annotations

import math
import re
import shlex
import sqlite3
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.accounting.accountants import gdp_mu
from marginweave.accounting.accounts import Account
from marginweave.accounting.records import State
from marginweave.base.errors import BudgetError, InputError
from marginweave.ledger import Ledger, ReleaseRequest
from marginweave.ledger.boxes import box_for
from tests.support.releases import FULL, PROGRAM, gaussian, small_plan


def _kinds(location: Path) -> list[tuple[str, str | None]]:
    with sqlite3.connect(location) as connection:
        return connection.execute("SELECT kind, draw FROM events ORDER BY seq").fetchall()


def test_opening_twice_is_once(ledger, account, location) -> None:
    """The same account again adds no row; 1.0 is 1 and 1e-6 is 0.000001."""
    ledger.accounts.open(
        replace(account, epsilon=Decimal("1.0"), delta=Decimal("0.000001")), actor="other"
    )
    assert [kind for kind, _ in _kinds(location)] == ["LEDGER_CREATED", "OPENED"]


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": Decimal(2)},
        {"delta": Decimal("1e-5")},
        {"unit": "person"},
        {"neighbors": "replace-one"},
    ],
)
def test_opening_with_other_facts_is_refused(ledger, account, change) -> None:
    """What a person is, and what may be spent on them, is decided once."""
    with pytest.raises(BudgetError, match="affairs is open with epsilon 1"):
        ledger.accounts.open(replace(account, **change), actor="steward")
    assert ledger.accounts.total("affairs").account == replace(
        account, epsilon=Decimal("1.0"), box=box_for(account.cap)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": Decimal(-1)}, r"epsilon \(-1.0\) must be positive"),
        ({"epsilon": Decimal("inf")}, "epsilon"),
        ({"delta": Decimal("-1e-9")}, "delta"),
        ({"delta": Decimal(1)}, "delta"),
        ({"dataset": "../x"}, "dataset"),
    ],
)
def test_malformed_accounts_are_bad_input(ledger, account, change, message) -> None:
    """Numbers and names that break a rule never reach the ledger."""
    with pytest.raises(InputError, match=message):
        ledger.accounts.open(replace(account, **change), actor="steward")


def test_unknown_account_ends_with_the_opening_command(ledger, reserve) -> None:
    """The refusal of a reservation has the plan's own numbers in its command."""
    with pytest.raises(BudgetError) as error:
        reserve(dataset="census")
    assert str(error.value).endswith("marginweave ledger open census --epsilon 1.0 --delta 1e-06")
    for call in (ledger.accounts.total, ledger.releases.of):
        with pytest.raises(
            BudgetError, match=r"marginweave ledger open census --epsilon E --delta D$"
        ):
            call("census")


def test_reservation_books_every_draw(ledger, reserve, plan, location) -> None:
    """One row for the release and one for each draw, in the plan's order, with exact costs as text."""
    record = reserve()
    assert _kinds(location)[2:] == [
        (State.RESERVED, name) for name in (None, "count", "level-1", "level-2")
    ]
    assert [draw.cost for draw in record.draws] == [draw.cost for draw in plan().charges]
    assert record.charged == plan().cost
    assert record == ledger.releases.find("first") == ledger.releases.of("affairs")[0]
    with sqlite3.connect(location) as connection:
        types = connection.execute(
            "SELECT DISTINCT typeof(mu2), typeof(rho), typeof(delta) FROM events"
        ).fetchall()
    assert set(types) == {("text", "text", "text"), ("null", "null", "null")}


def test_same_release_again_is_free(ledger, reserve, location) -> None:
    """Same id, plan and source return the record as it stands and book nothing."""
    reserve()
    ledger.draws.take_lease("first", "lease")
    ledger.draws.begin("first", "count", "lease")
    before = _kinds(location)
    assert reserve() == ledger.releases.find("first")
    assert _kinds(location) == before


@pytest.mark.parametrize(
    ("change", "word"), [({"plan_digest": "x"}, "plan"), ({"source": "y"}, "source")]
)
def test_same_name_for_something_else_is_bad_input(reserve, change, word) -> None:
    """An id stands for one plan and one source; the message says which differs."""
    reserve()
    with pytest.raises(InputError, match=f"another {word}"):
        reserve(**change)


@pytest.mark.parametrize("draws", [(), ("count", "count")])
def test_plans_need_named_draws(reserve, plan, draws) -> None:
    """A plan without draws, or with two of one name, cannot be booked."""
    with pytest.raises(InputError, match="draws"):
        reserve(plan=plan(draws=draws))


def test_other_unit_or_relation_is_refused(ledger, reserve, plan, location) -> None:
    """A release must mean the same person and the same neighbors as its account, and the refusal is written down."""
    with pytest.raises(BudgetError, match=r"unit \(person\) must be row"):
        reserve(unit="person")
    with pytest.raises(BudgetError, match=r"neighbors \(replace-one\) must be add-remove"):
        reserve(plan=plan(neighbors="replace-one"))
    assert [kind for kind, _ in _kinds(location)[2:]] == [State.REFUSED, State.REFUSED]
    assert ledger.releases.find("first") is None


@pytest.mark.parametrize(
    "second",
    [
        {},
        {"epsilon": 1.23456789},
        {"cost_delta": 5e-7, "delta": 2e-6, "epsilon": 1.1},
        {"cost_delta": 5e-7, "delta": 1.23456789e-3},
    ],
    ids=["epsilon", "epsilon of many digits", "delta", "delta of many digits"],
)
def test_over_the_cap_is_refused_and_the_printed_command_admits(
    ledger, reserve, plan, location, second
) -> None:
    """A refusal leaves a row and no charge; raising the cap to exactly the printed numbers admits the release."""
    reserve(plan=plan(mu2=FULL))
    heavy = plan(**{"mu2": FULL, **second})
    spent = ledger.accounts.total("affairs")
    with pytest.raises(
        BudgetError, match=r"admits nothing under its cap|does not hold this release: "
    ) as error:
        reserve("second", plan=heavy)
    assert ledger.accounts.total("affairs") == spent
    assert ledger.releases.find("second") is None
    assert _kinds(location)[-1] == (State.REFUSED, None)
    words = shlex.split(str(error.value).partition("the promise to all in the table: ")[2])
    assert words[:4] == ["marginweave", "ledger", "cap", "affairs"]
    given = {words[i]: words[i + 1] for i in range(4, len(words), 2)}
    ledger.accounts.change_cap(
        "affairs", float(given["--epsilon"]), float(given["--delta"]), given["--reason"], "steward"
    )
    assert reserve("second", plan=heavy).charged == heavy.cost


def test_cap_below_the_printed_one_still_refuses(ledger, reserve, plan) -> None:
    """The printed epsilon is no guess: a little less does not admit."""
    reserve()
    with pytest.raises(BudgetError) as error:
        reserve("second", plan=plan(mu2=0.05, epsilon=2.0))
    printed = float(re.findall(r"--epsilon ([0-9.]+)", str(error.value))[0])
    ledger.accounts.change_cap("affairs", printed * 0.998, 1e-6, "too little", "steward")
    with pytest.raises(BudgetError):
        reserve("second", plan=plan(mu2=0.05, epsilon=2.0))


def test_a_lowered_cap_refuses_but_forgets_nothing(ledger, reserve, plan) -> None:
    """A cap below what was spent, even in delta, admits nothing more and keeps the release."""
    reserve(plan=plan(cost_delta=1e-7))
    ledger.accounts.change_cap("affairs", 0.001, 1e-9, "the promise was too large", "steward")
    assert math.isinf(ledger.accounts.total("affairs").epsilon)
    with pytest.raises(BudgetError, match=r"admits nothing under its cap of epsilon 0\.001 "):
        reserve("second")
    assert reserve(plan=plan(cost_delta=1e-7)).charged == plan(cost_delta=1e-7).cost


def test_cap_needs_a_reason(ledger) -> None:
    """An auditor reads why a cap was changed."""
    with pytest.raises(InputError, match="reason"):
        ledger.accounts.change_cap("affairs", 2.0, 1e-6, " ", "steward")
    with pytest.raises(BudgetError, match="marginweave ledger open census"):
        ledger.accounts.change_cap("census", 2.0, 1e-6, "why not", "steward")


def test_returned_releases_cost_nothing(ledger, reserve, plan) -> None:
    """A release of which every draw was given back leaves the account as it was."""
    heavy = plan(mu2=FULL * 0.95)
    reserve(plan=heavy)
    ledger.draws.return_unused("first", ["count", "level-1", "level-2"])
    total = ledger.accounts.total("affairs")
    assert (total.epsilon, total.spent.releases) == (0.0, 0)
    reserve("second", plan=heavy)


def test_a_total_says_the_deltas_that_add_up(ledger, reserve, plan) -> None:
    reserve(plan=plan(draws=("count", "level-1"), cost_delta=1e-7))
    assert ledger.accounts.total("affairs").spent.cost.delta == pytest.approx(Decimal("2e-7"))


def test_totals_list_every_account(ledger, reserve, account) -> None:
    """Accounts stand in order of opening, each with its own releases only."""
    ledger.accounts.open(replace(account, dataset="twin"), actor="steward")
    reserve()
    assert [(t.account.dataset, t.spent.releases) for t in ledger.accounts.totals()] == [
        ("affairs", 1),
        ("twin", 0),
    ]
    assert ledger.accounts.totals()[0] == ledger.accounts.total("affairs")
    assert 0 < ledger.accounts.totals()[0].epsilon <= 1


@settings(max_examples=12, deadline=None)
@given(
    epsilon=st.floats(1e-3, 100, exclude_min=True),
    delta=st.floats(1e-15, 0.4),
    digits=st.integers(0, 25),
)
def test_a_release_alone_fits_a_cap_of_its_own(epsilon: float, delta: float, digits: int) -> None:
    """Whatever the numbers and however many digits the cap was typed with, equal is enough ; all of it is used."""
    cost = gaussian(gdp_mu(epsilon, delta) ** 2 * (1 - 1e-9))
    plan = small_plan(("count",), cost=cost, epsilon=epsilon, delta=delta)
    typed = Decimal(
        repr(epsilon) + ("0" * digits if "." in repr(epsilon) and "e" not in repr(epsilon) else "")
    )
    exact = Decimal(delta)  # every digit of the double
    with TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder) / "ledger.sqlite", environment={})
        ledger.accounts.open(
            Account(
                dataset="a",
                epsilon=typed,
                delta=exact,
                unit="row",
                neighbors="add-remove",
                weak_delta="a test",
            ),
            actor="s",
        )
        source = ledger.keys.source_digest({"": [b"s"]})
        facts = {
            "dataset": "a",
            "plan": plan,
            "plan_digest": "p",
            "unit": "row",
            "actor": "s",
            "program": PROGRAM,
        }
        request = ReleaseRequest(release="one", run="one", source=source, **facts)
        ledger.releases.reserve(request)
        with pytest.raises(BudgetError):
            ledger.releases.reserve(replace(request, release="two", run="two"))


def test_internal_evaluation_marks_what_comes_after(ledger, reserve) -> None:
    """A release reserved before an internal evaluation is unmarked, one reserved after is marked."""
    ledger.accounts.change_cap("affairs", 100.0, 1e-3, "room", "steward")
    reserve("before")
    assert not ledger.evaluations.precede("affairs", None)
    ledger.evaluations.record("affairs", "before")
    reserve("after")
    assert not ledger.evaluations.precede("affairs", "before")
    assert ledger.evaluations.precede("affairs", "after")
    assert ledger.evaluations.precede("affairs", None)
    for bad in (
        lambda: ledger.evaluations.record("affairs", "none"),
        lambda: ledger.evaluations.precede("affairs", "none"),
    ):
        with pytest.raises(BudgetError, match="none"):
            bad()


def test_forecast_is_what_the_reservation_brings(ledger, reserve, plan, location) -> None:
    """A forecast books nothing, and says the total and the verdict that the reservation then has."""
    epsilon, fits = ledger.accounts.forecast("affairs", plan(mu2=0.01))
    before = _kinds(location)
    assert fits
    reserve(plan=plan(mu2=0.01))
    assert ledger.accounts.total("affairs").epsilon == epsilon
    _, fits = ledger.accounts.forecast("affairs", plan(mu2=FULL))
    assert not fits
    assert len(before) == 2
    with pytest.raises(BudgetError):
        reserve("second", plan=plan(mu2=FULL))


def test_finish_books_outputs_once(ledger, reserve, location) -> None:
    """A publication needs every draw settled, is booked once for the same files, and again for new ones."""
    reserve()
    ledger.draws.take_lease("first", "lease")
    with pytest.raises(BudgetError, match="count, level-1, level-2"):
        ledger.releases.publish("first", "lease", {"a.csv": "0" * 64})
    ledger.draws.return_unused("first", ["level-1", "level-2"])
    ledger.draws.begin("first", "count", "lease")
    ledger.draws.commit("first", "count", "lease", "digest", tainted=False)
    for digest, rows in (("0" * 64, 1), ("0" * 64, 1), ("1" * 64, 2)):
        ledger.releases.publish("first", "lease", {"a.csv": digest})
        assert sum(kind == "PUBLISHED" for kind, _ in _kinds(location)) == rows
        assert ledger.releases.find("first").outputs == {"a.csv": digest}


def test_another_plan_is_refused_for_this_attempt(ledger, reserve, plan) -> None:
    """Earlier attempts may have drawn: what is said is that this one has not."""
    reserve()
    ledger.draws.take_lease("first", "lease")
    ledger.draws.begin("first", "count", "lease")
    with pytest.raises(
        InputError,
        match=r"with another plan .*\. This attempt drew nothing: finish the run with the program",
    ):
        reserve(plan=plan(mu2=0.011))
