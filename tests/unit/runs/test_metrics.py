"""What a monitor reads of a home: how attempts ended, what is left of budgets, when the ledger was verified; and no more."""

from __future__ import annotations

import re
import threading
import time
from contextlib import nullcontext, suppress
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from marginweave.accounting.accounts import Account
from marginweave.base.errors import AuditError, BudgetError, InputError, OperatorError
from marginweave.base.interruption import Stopped
from marginweave.ledger import Ledger
from marginweave.released.manifest import RunState
from marginweave.runs import metrics
from marginweave.runs.metrics import (
    Metric,
    counted,
    metrics_file,
    verification_noted,
    write_metrics,
)
from marginweave.runs.progress import Ending
from tests.support.places import REPOSITORY

SECRET = "a value of the table"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with runs and a ledger of one account, of which nothing is spent."""
    (tmp_path / "runs").mkdir()
    account = Account(
        dataset="people",
        epsilon=Decimal(4),
        delta=Decimal("1e-6"),
        unit="row",
        neighbors="add-remove",
    )
    Ledger.create(tmp_path / "ledger" / "ledger.sqlite", environment={}).accounts.open(
        account, actor="test"
    )
    return tmp_path


def request(home: Path, state: RunState | None = RunState.FINISHED) -> Any:
    """What `counted` looks at of a request."""
    manifest = None if state is None else SimpleNamespace(state=state)
    return SimpleNamespace(
        configuration=SimpleNamespace(dataset="people"),
        folder=SimpleNamespace(home=home, read_manifest=lambda: manifest),
        ledger_location=home / "ledger" / "ledger.sqlite",
    )


def attempt(
    home: Path, error: BaseException | None = None, state: RunState | None = RunState.FINISHED
) -> None:
    with counted(request(home, state)):
        if error is not None:
            raise error


def lines(home: Path) -> dict[str, float]:
    """The samples as they are written."""
    content = metrics_file(home).read_text().splitlines()
    pairs = (line.rsplit(" ", 1) for line in content if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


@pytest.mark.parametrize(
    ("error", "state", "outcome"),
    [
        (None, RunState.FINISHED, "finished"),
        (None, RunState.AWAITING, "awaiting_approval"),
        (BudgetError(SECRET), None, "refused"),
        (OperatorError(SECRET), RunState.RUNNING, "failed"),
        (ZeroDivisionError(SECRET), RunState.RUNNING, "failed"),
        (Stopped(15), RunState.RUNNING, "stopped"),
    ],
)
def test_an_attempt_counts_by_its_end(
    home: Path, error: BaseException | None, state: RunState | None, outcome: str
) -> None:
    """With the time of it, and without the text of the error, which passes through; others stay as they were."""
    before = int(time.time())
    attempt(home)
    for _ in range(2):
        with pytest.raises(type(error)) if error else nullcontext():
            attempt(home, error, state)
    assert SECRET not in metrics_file(home).read_text()
    found, labels = lines(home), f'{{dataset="people",outcome="{outcome}"}}'
    assert found[f"marginweave_attempts_total{labels}"] == (3 if outcome == "finished" else 2)
    assert found[f"marginweave_last_attempt_timestamp_seconds{labels}"] >= before
    assert found['marginweave_attempts_total{dataset="people",outcome="finished"}'] >= 1


def test_budgets_are_public_totals(home: Path) -> None:
    """All that is there of an account; and the file is its owner's alone."""
    write_metrics(home, home / "ledger" / "ledger.sqlite")
    assert lines(home) == {
        'marginweave_budget_left_ratio{dataset="people"}': 1,
        'marginweave_budget_spent_epsilon{dataset="people"}': 0,
        'marginweave_budget_cap_epsilon{dataset="people"}': 4,
    }
    assert metrics_file(home).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("error", "sound"),
    [
        (None, 1),
        (AuditError("row 3"), 0),
        (BudgetError("no ledger"), 0),
        (InputError("typed"), None),
    ],
)
def test_a_verification_is_noted_with_its_result(
    home: Path, error: Exception | None, sound: int | None
) -> None:
    """What was typed wrong verifies nothing, and says nothing."""
    with (
        pytest.raises(type(error)) if error else nullcontext(),
        verification_noted(home, home / "ledger" / "ledger.sqlite"),
    ):
        if error is not None:
            raise error
    found = lines(home) if metrics_file(home).exists() else {}
    assert found.get("marginweave_ledger_verification_success") == sound
    assert ("marginweave_ledger_verification_timestamp_seconds" in found) is (sound is not None)


def test_what_several_count_at_once_is_counted(home: Path) -> None:
    def count() -> None:
        for _ in range(5):
            attempt(home)

    threads = [threading.Thread(target=count) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lines(home)['marginweave_attempts_total{dataset="people",outcome="finished"}'] == 30


@pytest.mark.parametrize("harm", ["damaged", "a folder", "no ledger", "a mistake of ours"])
def test_nothing_that_goes_wrong_here_hides_the_end_of_a_release(
    home: Path, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot be read is begun anew; one that cannot be written is left; a ledger that is gone tells no totals."""
    place = metrics_file(home)
    place.parent.mkdir()
    if harm == "damaged":
        place.write_text("marginweave_attempts_total{dataset= nothing\n")
    elif harm == "a folder":
        (place / "in the way").mkdir(parents=True)
    elif harm == "no ledger":
        (home / "ledger" / "ledger.sqlite").unlink()
    else:
        monkeypatch.setattr(metrics, "spent_share", lambda _: 1 // 0)
    attempt(home)
    with pytest.raises(KeyError):
        attempt(home, KeyError())
    if harm in {"damaged", "no ledger"}:
        assert sum(value for name, value in lines(home).items() if "attempts" in name) == 2
        assert any("budget" in name for name in lines(home)) is (harm == "damaged")


def test_a_file_of_a_later_version_is_kept_but_for_what_is_unknown(home: Path) -> None:
    attempt(home)
    place = metrics_file(home)
    place.write_text(f"{place.read_text()}# TYPE marginweave_later gauge\nmarginweave_later 7\n")
    attempt(home)
    assert lines(home)['marginweave_attempts_total{dataset="people",outcome="finished"}'] == 2
    assert "marginweave_later" not in lines(home)


def test_the_alerts_know_the_metrics() -> None:
    """The rules for Prometheus name metrics and outcomes that there are, and each metric that says something is wrong."""
    (group,) = yaml.safe_load((REPOSITORY / "deployments" / "alerts.yaml").read_text())["groups"]
    named = set(re.findall(r"marginweave_\w+", " ".join(rule["expr"] for rule in group["rules"])))
    assert named == set(Metric) - {Metric.ATTEMPTS, Metric.SPENT, Metric.CAP}
    outcomes = re.findall(r'outcome=~"([^"]*)"', " ".join(rule["expr"] for rule in group["rules"]))
    assert {name for told in outcomes for name in told.split("|")} == {
        *Ending,
        "awaiting_approval",
        "skipped",
    }
    for rule in group["rules"]:
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert set(rule) >= {"alert", "expr", "annotations"}


def test_what_is_no_home_stays_as_it_is(tmp_path: Path) -> None:
    with suppress(BudgetError):
        attempt(tmp_path, BudgetError("no ledger"), None)
    assert list(tmp_path.iterdir()) == []


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.floats(allow_nan=False) | st.integers(0, 2**50).map(float)


@given(
    samples=st.dictionaries(
        st.tuples(st.sampled_from(list(Metric)), NAMES, NAMES), VALUES, max_size=6
    )
)
def test_what_is_written_is_read_back(samples: dict[tuple[Metric, str, str], float]) -> None:
    """Whatever datasets are called."""
    known = {
        (name.value, (("dataset", dataset), ("outcome", outcome))): value
        for (name, dataset, outcome), value in samples.items()
    }
    assert metrics._samples(metrics._text(known)) == known
