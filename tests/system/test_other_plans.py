"""A run that is continued under another plan than was reserved is refused before it draws: what is charged is what is drawn."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from marginweave.accounting.accounts import Account
from marginweave.accounting.charges import ChargedPlan
from marginweave.accounting.records import State
from marginweave.base.budget import Stability
from marginweave.base.errors import BudgetError, InputError, MarginweaveError
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.configuration.release import Configuration
from marginweave.ledger import Ledger
from marginweave.measurements import contribution_bound, prices, split, survivors, tuple_level
from marginweave.measurements.plan import Plan
from marginweave.released.program import Program
from marginweave.runs import capabilities as references
from marginweave.runs import continuity
from marginweave.tasks import budget as budget_stage
from tests.support.forked_runs import run_by_stages
from tests.support.people_table import people


class _Stopped(MarginweaveError):
    pass


def _stop(*_: object, **__: object) -> None:
    raise _Stopped


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose ledger has an account with room for everything."""
    place = tmp_path / "home"
    place.mkdir()
    location = place / "ledger" / "ledger.sqlite"
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(location))
    account = Account(
        dataset="people",
        epsilon=Decimal(50),
        delta=Decimal("1e-4"),
        unit="row",
        neighbors="add-remove",
    )
    Ledger.create(location, environment={}).accounts.open(account, actor="tests")
    return place


def _run(home: Path, config: Path) -> None:
    run_by_stages({"config": str(config), "run": "r", "home": str(home)})


def _stopped_after_level_1(home: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> Path:
    """The configuration of a run that was stopped when it had drawn its first level, or its single columns."""
    config = people(home, 200, **changes)
    with monkeypatch.context() as patch:
        patch.setattr(survivors, "candidates_above", _stop)
        patch.setattr(sys.modules["marginweave.measurements.rounds"], "candidate_sets", _stop)
        with pytest.raises(_Stopped):
            _run(home, config)
    return config


def _ledger(home: Path) -> Ledger:
    return Ledger.open(home / "ledger" / "ledger.sqlite", environment={})


def _refused(home: Path, config: Path, what: str) -> None:
    """The same command is refused, names `what`, and leaves ledger and draws as they are."""
    before = (
        _ledger(home).verify(),
        sorted(path.name for path in (home / "runs" / "r" / "private" / "draws").iterdir()),
    )
    with pytest.raises(InputError) as refusal:
        _run(home, config)
    assert refusal.value.exit_code == 2
    told = getattr(refusal.value, "detail", "")  # what the operator reads
    assert re.search(what, told), told
    assert "program that began it" in told
    after = (
        _ledger(home).verify(),
        sorted(path.name for path in (home / "runs" / "r" / "private" / "draws").iterdir()),
    )
    assert after == before


def _of_level_2(**changes: Any) -> Callable[[ChargedPlan], ChargedPlan]:
    def change(plan: ChargedPlan) -> ChargedPlan:
        charges = (
            replace(charge, **changes) if charge.name == "level-2" else charge
            for charge in plan.charges
        )
        return replace(plan, charges=tuple(charges))

    return change


def _swapped(plan: ChargedPlan) -> ChargedPlan:
    first, second, *rest = plan.charges
    return replace(plan, charges=(second, first, *rest))


PLANS: dict[str, tuple[Callable[[ChargedPlan], ChargedPlan], str]] = {
    "kind": (_of_level_2(mechanism="discrete-laplace"), "mechanism of level-2"),
    "length": (_of_level_2(length=3), "length of level-2"),
    "order": (_swapped, "the draws in their order"),
    "number of draws": (
        lambda plan: replace(plan, charges=plan.charges[:-1]),
        "the draws in their order",
    ),
    "share of delta": (
        lambda plan: replace(plan, delta_threshold=plan.delta_threshold / 2),
        "delta of thresholds",
    ),
    "neighbors": (lambda plan: replace(plan, neighbors="replace-one"), "neighbors"),
}


@pytest.fixture
def stopped(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of k-tuples with a private domain and a percentile, stopped after its first length."""
    changes = {
        "columns__region": {"type": "category", "domain": "private"},
        "aggregate__percentile": 90,
    }
    return _stopped_after_level_1(home, monkeypatch, **changes)


@pytest.mark.parametrize("difference", PLANS)
def test_another_plan_is_refused(
    home: Path, stopped: Path, monkeypatch: pytest.MonkeyPatch, difference: str
) -> None:
    """Whatever the plan has otherwise than the rows is named, and nothing is drawn."""
    change, what = PLANS[difference]
    planned = Plan.charged
    monkeypatch.setattr(
        Plan, "charged", lambda plan, configuration: change(planned(plan, configuration))
    )
    _refused(home, stopped, what)


def test_another_split_is_refused(
    home: Path, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lengths that are weighed 10 : 1 : 1, as another version of the splitting rule might: charged epsilon 1, drawn 1.2."""
    original = split.level_multipliers
    monkeypatch.setattr(
        split, "level_multipliers", lambda p, budget: original((10.0, *p[1:]), budget)
    )
    _refused(home, stopped, "parameter of level-1")


@pytest.mark.parametrize(
    ("name", "what"),
    [("score_sensitivity", "sensitivity of percentile-1"), ("stability", "records of")],
    ids=["sensitivity", "theta"],
)
def test_other_terms_are_refused(
    home: Path, stopped: Path, monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    """A rule of sensitivity, or the number of rows of a unit, that another version has otherwise."""
    if name == "score_sensitivity":
        original = contribution_bound.score_sensitivity
        monkeypatch.setattr(
            contribution_bound, name, lambda percentile, unit: original(percentile, unit) // 2
        )
    else:
        larger = property(lambda _: Stability(records=3, neighbors="add-remove"))
        monkeypatch.setattr(Configuration, "stability", larger)
    _refused(home, stopped, what)


def test_another_threshold_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least published count of a private value, where the public cap fixes it."""
    changes = {
        "columns__region": {"type": "category", "domain": "private"},
        "aggregate__percentile": "none",
    }
    config = _stopped_after_level_1(home, monkeypatch, **changes)
    original = tuple_level.private_threshold
    monkeypatch.setattr(
        tuple_level, "private_threshold", lambda *arguments: original(*arguments) - 1
    )
    _refused(home, config, "private_threshold of level-1")


def test_another_number_of_rounds_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of selection and measurement are counted when they are reserved."""
    counts = {"method": "marginals", "cliques": {"adaptive": 2, "rounds": 3, "batch": 1}}
    config = _stopped_after_level_1(
        home, monkeypatch, aggregate=counts, synthesize={"method": "mixture"}
    )
    original = prices.round_draws
    monkeypatch.setattr(prices, "round_draws", lambda rounds, *more: original(rounds - 1, *more))
    _refused(home, config, "the draws in their order|parameter of")


def test_a_draw_that_is_needed_and_has_expired_is_refused(home: Path, stopped: Path) -> None:
    """It is not taken for a length that was never reached; the refusal says the way out."""
    _ledger(home).draws.expire(timedelta(0), _record(home).release)
    with pytest.raises(
        BudgetError, match=r"was given back before it was drawn.*can no longer finish"
    ):
        _run(home, stopped)


def _as_program(monkeypatch: pytest.MonkeyPatch, program: Program) -> None:
    for module in (
        continuity,
        references,
        budget_stage,
        sys.modules["marginweave.runs.preparation"],
    ):
        monkeypatch.setattr(module, "program_identity", lambda: program)


def test_a_begun_draw_is_not_made_again_by_other_code(
    home: Path, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with exit 2; the program that began it finishes the run with its one charge."""
    with monkeypatch.context() as patch:
        patch.setattr(tuple_level, "draw_level", _stop)
        with pytest.raises(_Stopped):
            _run(home, stopped)
    assert _states(home)["level-2"] == State.DRAWN
    with monkeypatch.context() as patch:
        _as_program(patch, Program(version="9.9", digest="9" * 64))
        _refused(
            home, stopped, r"draw level-2 .* was begun by marginweave .* this is 9\.9 \(code 999"
        )
    _run(home, stopped)
    assert set(_states(home).values()) == {State.COMMITTED}


def test_other_code_with_the_same_plan_goes_on_and_is_named(
    home: Path, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its remaining draws are exactly those reserved; ledger, manifest and statement name both programs."""
    other = Program(version="9.9", digest="9" * 64)
    with monkeypatch.context() as patch:
        _as_program(patch, other)
        _run(home, stopped)
    manifest = RunFolder.at(home, "r").read_manifest()
    assert manifest is not None
    assert len(manifest.programs) == 2
    assert manifest.programs[1] == other
    record = _ledger(home).releases.find(manifest.release)
    assert record is not None
    assert record.program == manifest.programs[0]
    assert {draw.facts["program"] for draw in record.draws} == {
        program.digest for program in manifest.programs
    }
    statement = json.loads((home / "runs" / "r" / "release" / "privacy.json").read_text())
    told = json.dumps(statement)
    assert all(program.digest in told for program in manifest.programs)


def test_last_digits_of_floats_are_no_other_plan(
    home: Path, stopped: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another library may round otherwise: the run goes on, says so, and draws what was reserved, to the last digit."""
    reserved = {draw.name: draw.parameter for draw in _record(home).draws}
    original = split.level_multipliers
    monkeypatch.setattr(
        split,
        "level_multipliers",
        lambda p, budget: tuple(m * (1 + 1e-13) for m in original(p, budget)),
    )
    used: dict[str, object] = {}
    drawn = tuple_level.plan_level

    def seen(*arguments: Any, **named: Any) -> Any:
        mechanism = drawn(*arguments, **named)
        used[f"level-{mechanism.length}"] = mechanism.sigma / mechanism.contribution_bound
        return mechanism

    monkeypatch.setattr(tuple_level, "plan_level", seen)
    told: list[str] = []
    monkeypatch.setattr(continuity, "reporter", lambda: SimpleNamespace(note=told.append))
    _run(home, stopped)
    assert "last digits" in told[0]
    assert "level-2" in told[0]
    assert {draw.name: draw.parameter for draw in _record(home).draws} == reserved
    assert used


def _record(home: Path) -> Any:
    ledger = _ledger(home)
    (record,) = ledger.releases.of("people")
    return record


def _states(home: Path) -> dict[str, State]:
    return {draw.name: draw.state for draw in _record(home).draws}
