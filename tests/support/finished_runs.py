"""A home with finished runs of one account, made in the process of a test."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from marginweave.accounting.accounts import Account
from marginweave.ledger import Ledger
from tests.support.people_table import people
from tests.support.plain_runs import run_plainly

KINDS = {
    "k-tuples": {"aggregate__reporting_length": 2, "synthesize": {"method": "aggregate-seeded"}},
    "marginals": {"aggregate": {"method": "marginals", "cliques": {"all": 2}}},
}


def finished_home(home: Path, *kinds: str, rows: int = 200) -> Path:
    """`home` with its ledger, and a finished run of each of `kinds`, or of all KINDS, that has its name; noise is fresh."""
    place = home / "ledger" / "ledger.sqlite"
    account = Account(
        dataset="people",
        epsilon=Decimal(9),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
    Ledger.create(place, environment={}).accounts.open(account, actor="steward")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARGINWEAVE_LEDGER", str(place))
        for kind in kinds or KINDS:
            run_plainly(home, people(home, rows, **KINDS[kind]), kind)
    return home
