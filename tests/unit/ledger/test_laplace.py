"""Laplace noise in the ledger: charged to the allowance in exact decimals, refused without one, with a command that helps."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marginweave.accounting.accountants import gdp_mu
from marginweave.accounting.accounts import Account, Policy
from marginweave.accounting.charges import ChargedPlan
from marginweave.base.budget import BasicAmount, Cost, amount
from marginweave.base.errors import AuditError, BudgetError
from marginweave.flows.cli.app import app
from marginweave.flows.prefect.schedules import Schedule
from marginweave.forecast.account import SEVERAL, account_forecast, releases_that_fit
from marginweave.ledger import Ledger, LedgerLocation, opening_for, releases
from marginweave.ledger.admission import noise_refusal
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.boxes import admitted
from marginweave.ledger.keys import load_key
from marginweave.measurements.largest import largest_epsilon
from marginweave.measurements.split import plan_budget
from marginweave.runs.preparation import open_ledger
from marginweave.runs.request import Request, read_request
from tests.support.configurations import configuration, raw
from tests.support.databases import on_both


def laplace_plan(epsilon: float = 0.3, **changes: object) -> ChargedPlan:
    """Two draws of Laplace noise with epsilon together, or with scores of pairs beside them."""
    settings = {"aggregate__cliques": {"all": 2}, **changes}
    return plan_budget(
        configuration(
            aggregate__method="marginals",
            aggregate__noise="laplace",
            privacy__epsilon=epsilon,
            **settings,
        )
    ).prices


@pytest.fixture
def people(ledger: Ledger, account: Account) -> Ledger:
    """A ledger with an account of (2, 1e-6) whose box has an allowance of epsilon 1, and the rest for noise in mu^2."""
    plan = laplace_plan(1.0, aggregate__cliques="selected")
    kind = replace(
        plan.cost,
        mu2=amount(gdp_mu(1.0, 1e-6 * (1 - 1e-9)) ** 2),
        plain=BasicAmount(epsilon=Decimal(1)),
    )
    ledger.accounts.open(
        replace(account, dataset="people", epsilon=Decimal(2), kind_of_plan=kind), actor="steward"
    )
    return ledger


@on_both
def test_the_allowance_is_charged_to_the_digit_until_it_is_spent(
    people: Ledger, reserve, location: LedgerLocation
) -> None:
    """Three releases of .3 leave a tenth, which one of .1 fills; nothing is charged in mu^2, rho or delta."""
    for number in range(3):
        reserve(str(number), dataset="people", plan=laplace_plan(), source="people")
    before = people.accounts.total("people")
    assert before.spent.cost.plain == BasicAmount(epsilon=Decimal("0.9"))
    with pytest.raises(
        BudgetError, match=r"allowance of epsilon 0\.1 of 1 left, and 0\.11 is asked for"
    ):
        reserve("over", dataset="people", plan=laplace_plan(0.11), source="people")
    assert people.accounts.total("people") == before
    reserve("last", dataset="people", plan=laplace_plan(0.1), source="people")
    charged = [record.charged for record in people.releases.of("people")]
    assert len(charged) == 4
    assert all(
        (cost.mu2, cost.rho, cost.delta, cost.plain.delta) == (0, 0, 0, 0) for cost in charged
    )
    assert people.accounts.total("people").spent.cost.plain.epsilon == 1
    assert people.accounts.total("people").epsilon == 1.0
    audit_ledger(location, load_key(location, {}, ""))


@on_both
def test_what_is_given_back_is_back_in_the_allowance(
    people: Ledger, reserve, location: LedgerLocation
) -> None:
    """Scores are charged in mu^2 beside it; where no pair is worth its noise its epsilon goes back."""
    plan = laplace_plan(1.0, aggregate__cliques="selected")
    record = reserve("mixed", dataset="people", plan=plan, source="people")
    assert record.charged.mu2 == plan.by_name["selection"].cost.mu2 > 0
    people.draws.return_unused("mixed", ["marginals"])
    assert people.accounts.total("people").spent.cost.plain == plan.by_name["one-way"].cost.plain
    audit_ledger(location, load_key(location, {}, ""))


@on_both
def test_a_price_below_the_epsilon_is_found(
    people: Ledger, reserve, location: LedgerLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one unit of the last digit, written past the rules."""
    plan = laplace_plan()
    epsilon = plan.charges[1].cost.plain.epsilon.next_minus()
    cheap = replace(plan.charges[1], cost=Cost(plain=BasicAmount(epsilon=epsilon)))
    monkeypatch.setattr(releases, "check_plan", lambda _: None)
    reserve(
        "cheap",
        dataset="people",
        plan=replace(plan, charges=(plan.charges[0], cheap)),
        source="people",
    )
    with pytest.raises(
        AuditError, match="draw marginals costs less than discrete-laplace with parameter"
    ):
        audit_ledger(location, load_key(location, {}, ""))


AMPLIFIED = {
    "resize": {"records": 400, "proportion": 0.4, "amplify": True},
    **{
        f"columns__{name}__impute": {"distribution": "uniform"}
        for name in ("sex", "region", "age", "grade")
    },
}


@pytest.mark.parametrize("changes", [{}, {"aggregate__cliques": "selected"}, AMPLIFIED])
def test_an_account_for_a_configuration_holds_its_release(
    location: LedgerLocation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, object],
) -> None:
    """The command that a refusal prints opens it; it holds one release of the plan, by its sums, and no second one."""
    config = configuration(
        aggregate__method="marginals",
        aggregate__noise="laplace",
        **{"aggregate__cliques": {"all": 2}, **changes},
    )
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(location))
    monkeypatch.setattr("marginweave.configuration.load.load_configuration", lambda _: config)
    words = shlex.split(opening_for("people", plan_budget(config).prices, tmp_path / "people.yaml"))
    assert words[:5] == ["marginweave", "ledger", "open", "people", "--for"]
    opened = CliRunner().invoke(app, words[1:])
    assert opened.exit_code == 0, opened.output
    total = Ledger.open(location).accounts.total("people")
    plan = plan_budget(config)
    assert admitted(total.account, total.spent, plan.cost, plan.statement) == "sums"
    after = total.spent.with_charge(plan.cost, plan.statement)
    assert admitted(total.account, after, plan.cost, plan.statement) is None


def test_an_account_says_what_it_holds_and_holds_it(
    location: LedgerLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened for an amplified resize with Gaussian noise: it holds several of these, which no words deny."""
    amplified = _request(tmp_path, **AMPLIFIED)
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(location))
    command = ["ledger", "open", "people", "--for", str(amplified.path), "--epsilon", "6"]
    opened = CliRunner().invoke(app, [*command, "--delta", "1e-5"])
    assert opened.exit_code == 0, opened.output
    assert (
        "or of an amplified resize (resize: {amplify: true}); only its first may be another"
        in opened.output
    )
    total, plan = Ledger.open(location).accounts.total("people"), amplified.plan
    assert not total.account.box.mu2
    assert all("laplace" not in draw.mechanism.name for draw in plan.draws)
    fitting, spent = releases_that_fit(
        total.account, total.spent, (plan.cost, plan.statement), SEVERAL
    )
    assert fitting > 1
    assert noise_refusal(plan.cost, total.account, spent) is None
    assert noise_refusal(_request(tmp_path).plan.cost, total.account, spent) is not None


def test_an_account_for_laplace_noise_alone_says_so(
    location: LedgerLocation, reserve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening it does, and so does the refusal of Gaussian noise: no epsilon, delta or cap helps, another noise does."""
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(location))
    aggregate = {"method": "marginals", "noise": "laplace", "cliques": {"all": 2}}
    laplace = _request(tmp_path, aggregate=aggregate)
    command = ["ledger", "open", "people", "--for", str(laplace.path), "--epsilon", "1000000"]
    opened = CliRunner().invoke(app, command)
    assert (
        "releases charged in epsilon alone, as with Laplace noise (aggregate: {method: marginals, noise: laplace})"
        in opened.output
    )
    reserve("first", dataset="people", plan=laplace.charged_plan, source="people")
    gaussian = _request(tmp_path)
    words = "opened for releases charged in epsilon alone, as with .*, or of an amplified resize .* write one of these"
    with pytest.raises(BudgetError, match=words):
        reserve(
            "second",
            dataset="people",
            plan=gaussian.charged_plan,
            source="people",
            largest=partial(largest_epsilon, gaussian.configuration),
        )
    assert "as with Laplace noise" in str(account_forecast(gaussian).sentences[0])


def test_a_plain_charge_after_others_is_refused_and_the_reason_said(
    ledger: Ledger, reserve
) -> None:
    """A second account would hide what the first one has spent on the same people: none is advised."""
    reserve("first")
    with pytest.raises(
        BudgetError, match=r"allowance of epsilon 0 of 0 left, and 0\.3 is asked for"
    ) as refused:
        reserve("second", plan=laplace_plan())
    assert "ledger open" not in str(refused.value)


@pytest.fixture
def pure(ledger: Ledger, account: Account) -> Ledger:
    """A ledger with an account of (2, 0)."""
    ledger.accounts.open(
        replace(account, dataset="people", epsilon=Decimal(2), delta=Decimal(0)), actor="steward"
    )
    return ledger


@pytest.mark.parametrize("private", [False, True])
def test_an_account_without_delta_says_what_it_admits(pure: Ledger, reserve, private: bool) -> None:
    """No epsilon and no smaller delta helps a Gaussian release; the first one is shown the cap that would, later ones none."""
    asked = configuration(
        **({"columns__region": {"type": "category", "domain": "private"}} if private else {})
    )
    ask = {"dataset": "people", "source": "people", "plan": plan_budget(asked).prices}
    words = r"was opened with delta 0, and admits only releases with privacy: \{delta: 0\} and .*noise: laplace\}"
    with pytest.raises(
        BudgetError,
        match=words + r"\. To raise the cap instead, which .*: .* --epsilon 2\.0 --delta 1e-06 ",
    ) as refused:
        reserve("gaussian", largest=partial(largest_epsilon, asked), **ask)
    assert "a smaller privacy.delta may" not in str(refused.value)
    reserve("laplace", dataset="people", plan=laplace_plan(privacy__delta=0.0), source="people")
    with pytest.raises(BudgetError, match=words + "$"):
        reserve("gaussian", largest=partial(largest_epsilon, asked), **ask)


def _request(place: Path, **changes: object) -> Request:
    path = place / "people.yaml"
    path.write_text(json.dumps(raw(**changes)))
    return read_request(path, run=None, source=None, home=place)


def test_plan_names_no_endless_epsilon(
    pure: Ledger, location: LedgerLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(location))
    (told,) = map(str, account_forecast(_request(tmp_path)).sentences)
    assert (
        "spent epsilon 0 of 2 at delta 0; it will be refused: account people was opened with delta 0"
        in told
    )
    policy = Policy(per="month", epsilon=Decimal(1), delta=Decimal(0))
    pure.accounts.change_cap("people", 2.0, 0.0, "a policy", "steward", policy=policy)
    schedule = Schedule("0 3 1 */3 *", "UTC")
    lines = list(map(str, account_forecast(_request(tmp_path), schedule).sentences))
    assert not any("inf" in line for line in lines)
    assert any("a run needs a delta" in line for line in lines)


def test_plan_and_run_advise_alike_on_a_mistyped_account(
    pure: Ledger, location: LedgerLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both know the configuration, and the account that may be meant."""
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(location))
    request = _request(tmp_path, dataset="poeple")
    (told,) = map(str, account_forecast(request).sentences)
    with pytest.raises(BudgetError) as refused:
        open_ledger(request)
    assert told == f"Ledger: {refused.value}"
    assert told.endswith(
        f"did you mean people? If not, open it: marginweave ledger open poeple --for {request.path}"
    )
